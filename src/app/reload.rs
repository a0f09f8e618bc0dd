//! Reloads the configuration file: reads it, builds a new gateway and swaps it in, or changes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::task::spawn_blocking;
use tokio::time::interval;

use super::assemble;
use super::files::credentials::CredentialFiles;
use super::files::endpoints::EndpointFiles;
use super::files::maintenance::MaintenanceFiles;
use super::files::tls::TlsFiles;
use super::files::tls_watch::TlsFileWatches;
use super::restart::systemd::{self, ServiceState};
use super::signals::{OperatorSignal, Signals};
use crate::config::source_watch::SourceWatches;
use crate::config::{self, Config, Mistakes, Reading};
use crate::console::config_status::ConfigStatus;
use crate::gateway::Gateway;
use crate::identity::upkeep::follow_issuer;
use crate::observe::access_log::AccessLog;
use crate::observe::metrics::ReloadMetrics;
use crate::upstream::watch::discover;

/// How often the file is checked for changes.
const CHECK: Duration = Duration::from_secs(1);

/// The configuration at work, and the file that it came from.
pub struct Reloader {
    pub path: PathBuf,
    /// The file at `path` and those that it includes.
    pub sources: SourceWatches,
    /// The files of certificates that its upstreams name.
    pub certificates: TlsFileWatches,
    pub config: Config,
    pub gateway: Arc<ArcSwap<Gateway>>,
    pub access_log: Option<AccessLog>,
    pub metrics: ReloadMetrics,
    pub status: Arc<ConfigStatus>,
    pub tls: TlsFiles,
    pub credentials: CredentialFiles,
    pub endpoints: EndpointFiles,
    pub maintenance: MaintenanceFiles,
}

impl Reloader {
    /// Reloads whenever the file changes or a SIGHUP asks for it. Ends at SIGTERM or SIGINT.
    pub async fn run(&mut self, signals: &mut Signals) {
        let mut check = interval(CHECK);
        let mut is_due = false;
        loop {
            tokio::select! {
                signal = signals.next() => match signal {
                    OperatorSignal::Stop => return,
                    OperatorSignal::Reload => {
                        is_due = true;
                        // Its file may have been moved away, whatever becomes of the configuration.
                        if let Some(log) = &self.access_log {
                            log.reopen();
                        }
                    }
                },
                _ = check.tick() => {
                    is_due = self.has_changed();
                    self.tls.check(&self.config);
                    self.credentials.check();
                    self.endpoints.check();
                    self.maintenance.check();
                }
                () = self.credentials.follow() => {}
            }
            if std::mem::take(&mut is_due) {
                tokio::select! {
                    biased;
                    () = self.reload() => {}
                    // It may take seconds. What was not applied by now never is.
                    () = signals.stop() => return,
                }
            }
        }
    }

    /// Whether a file has changed since the last check.
    fn has_changed(&mut self) -> bool {
        let certificates_changed = self.certificates.have_changed();
        self.sources.have_changed() || certificates_changed
    }

    /// Applies the file, or logs why not and changes nothing.
    async fn reload(&mut self) {
        systemd::notify(ServiceState::Reloading);
        let applied = self.apply().await;
        systemd::notify(ServiceState::Ready);
        match applied {
            Ok(()) => {
                self.metrics.applied();
                self.status.applied();
                tracing::info!(file = %self.path.display(), config = %self.config.summary(), "reloaded");
            }
            Err(error) => {
                self.metrics.rejected();
                match error.downcast_ref::<Mistakes>() {
                    Some(mistakes) => {
                        mistakes.log();
                        self.status.rejected(mistakes.all().iter().map(ToString::to_string).collect());
                        if mistakes.may_pass() {
                            self.sources.find_again();
                        }
                    }
                    None => {
                        tracing::error!("{error:#}");
                        self.status.rejected(vec![format!("{error:#}")]);
                    }
                }
                tracing::error!(file = %self.path.display(), "not reloaded: nothing has changed");
            }
        }
    }

    async fn apply(&mut self) -> anyhow::Result<()> {
        let (Reading { result, files }, certificates) = read(&self.path);
        self.sources.follow(files.clone(), true);
        let loaded = result?;
        let stuck = self.config.needs_restart(&loaded.config);
        anyhow::ensure!(stuck.is_empty(), "{} can only be changed by a restart", stuck.join(", "));
        loaded.warn();
        let access_log = assemble::access_log(&loaded.config, self.access_log.as_ref())?;
        let before = self.gateway.load_full();
        let tls = self.tls.prepare(&loaded.config)?;
        let gateway = assemble::gateway(&loaded.config, access_log.as_ref(), Some(&before))?;
        let (credentials, endpoints) = (CredentialFiles::of(&gateway), EndpointFiles::prepare(&gateway)?);
        let credentials = spawn_blocking(move || credentials.read()).await??;
        self.endpoints = endpoints.install();
        discover::first_answers(gateway.discovering_upstreams()).await;
        self.credentials = credentials.install();
        gateway.authenticators.values().for_each(follow_issuer);
        self.maintenance = MaintenanceFiles::of(&gateway).follow(&self.maintenance);
        self.gateway.store(Arc::new(gateway));
        self.tls.install(tls);
        self.access_log = access_log;
        self.certificates = certificates;
        self.sources.follow(files, false);
        self.config = loaded.config;
        Ok(())
    }
}

/// Reads the configuration, and watches the files of certificates that its upstreams name from the versions on that were
/// read.
pub fn read(path: &Path) -> (Reading, TlsFileWatches) {
    let reading = config::read(path);
    let upstreams = reading.result.iter().flat_map(|loaded| &loaded.config.upstreams);
    let tls = upstreams.filter_map(|upstream| upstream.tls.as_ref());
    let certificates = TlsFileWatches::new(tls.flat_map(|tls| tls.files.iter().cloned()).collect());
    // It names the files that it is read from. They are read again now that they are watched.
    let reading = if certificates.is_empty() { reading } else { config::read(path) };
    (reading, certificates)
}

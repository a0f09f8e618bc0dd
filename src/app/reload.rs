//! Reloads the configuration file, and newer policies: builds a new gateway of both and swaps it
//! in, or changes nothing.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::pending;
use tokio::task::spawn_blocking;
use tokio::time::interval;

use super::assemble;
use super::files::credentials::CredentialFiles;
use super::files::endpoints::EndpointFiles;
use super::files::maintenance::MaintenanceFiles;
use super::files::tls::TlsFiles;
use super::files::tls_watch::TlsFileWatches;
use super::kept_routes::RunningGateway;
use super::optional::team::{NodePolicies, Policies, PolicyNews};
use super::restart::systemd::{self, ServiceState};
use super::signals::{OperatorSignal, Signals};
use tollgate_admin::config_status::ConfigStatus;
use tollgate_config::source_watch::SourceWatches;
use tollgate_config::watch::FileVersion;
use tollgate_config::{self as config, Config, Ground, Loaded, Mistakes};
use tollgate_gateway::Gateway;
use tollgate_gateway::observe::access_log::AccessLog;
use tollgate_gateway::observe::reload_metrics::ReloadMetrics;
use tollgate_limiter::limit::algorithm::QuotaError;
use tollgate_proxy::upstream::watch::discover;

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
    /// The policies of a database. `None`: the file names no source of policies.
    pub policies: Option<Arc<Policies>>,
    pub news: Option<PolicyNews>,
    /// The policies that are applied over the file at work.
    pub applied_policies: Option<NodePolicies>,
    /// The revision whose warnings were logged last: a revision may be applied many times.
    pub warned: Option<u64>,
}

/// The sources that have to be read again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PendingReload {
    Nothing,
    File,
    Policies,
}

impl Reloader {
    /// Reloads whenever the file changes or a SIGHUP asks for it. Ends at SIGTERM or SIGINT.
    pub async fn run(&mut self, signals: &mut Signals) {
        let mut check = interval(CHECK);
        loop {
            let pending = tokio::select! {
                signal = signals.next() => match signal {
                    OperatorSignal::Stop => return,
                    OperatorSignal::Reload => {
                        // The log's file may have been moved away, whatever becomes of the
                        // configuration.
                        if let Some(log) = &self.access_log {
                            log.reopen();
                        }
                        PendingReload::File
                    }
                },
                _ = check.tick() => self.check_files(),
                () = self.credentials.follow() => PendingReload::Nothing,
                () = news(self.news.as_mut()) => PendingReload::Policies,
            };
            let applying = async {
                match pending {
                    PendingReload::Nothing => {}
                    PendingReload::File => self.reload().await,
                    PendingReload::Policies => self.apply_policies().await,
                }
            };
            tokio::select! {
                biased;
                () = applying => {}
                // A reload may take seconds. What was not applied by now never is.
                () = signals.stop() => return,
            }
        }
    }

    /// Looks whether files have changed since the last check. Only the configuration's own need a
    /// reload.
    fn check_files(&mut self) -> PendingReload {
        let certificates_changed = self.certificates.have_changed();
        let sources_changed = self.sources.have_changed();
        self.tls.check(&self.config);
        self.credentials.check();
        self.endpoints.check();
        self.maintenance.check();
        if certificates_changed || sources_changed {
            PendingReload::File
        } else {
            PendingReload::Nothing
        }
    }

    /// Applies the file, or logs why not and changes nothing.
    async fn reload(&mut self) {
        systemd::notify(ServiceState::Reloading);
        let applied = self.apply_file().await;
        systemd::notify(ServiceState::Ready);
        match applied {
            Ok(()) => {
                self.metrics.applied();
                self.status.applied();
                tracing::info!(file = %self.path.display(), config = %self.config.summary(), "reloaded");
            }
            Err(error) => {
                self.metrics.rejected();
                self.status.rejected(log_reasons(&error));
                let mistakes = error.downcast_ref::<Mistakes>();
                if mistakes.is_some_and(Mistakes::may_pass) {
                    self.sources.find_again();
                }
                tracing::error!(file = %self.path.display(), "not reloaded: nothing has changed");
            }
        }
    }

    async fn apply_file(&mut self) -> anyhow::Result<()> {
        let path = self.path.clone();
        let choices = match &self.policies {
            Some(policies) => policies.choices(),
            None => Vec::new(),
        };
        let fresh = spawn_blocking(move || read(&path, &choices)).await?;
        self.sources.follow(fresh.files.clone(), true);
        let CheckedFile {
            loaded,
            policies: applied,
            refused,
        } = fresh.result?;
        loaded.warn();
        self.install(loaded).await?;
        self.certificates = fresh.certificates;
        self.sources.follow(fresh.files, false);
        if let (Some(policies), Some(ground)) = (self.policies.clone(), fresh.ground) {
            policies.set_ground(ground);
            self.note_applied(&policies, applied);
            let running = policies.running_revision();
            let refused = refused.map(|refused| (refused.revision, shown(&refused.mistakes)));
            self.status.set_policies(running, refused);
        }
        Ok(())
    }

    /// Applies the newest policies over the file at work, or else the running ones without what the
    /// newest have stopped.
    async fn apply_policies(&mut self) {
        let Some(policies) = self.policies.clone() else {
            return;
        };
        let mut refused = None;
        for choice in policies.choices() {
            let revision = choice.revision();
            let applied = self.applied_policies.as_ref();
            if applied.is_some_and(|applied| applied.is_like(&choice)) {
                self.status.set_policies(revision, refused);
                return;
            }
            let Err(error) = self.apply_choice(&policies, choice.clone()).await else {
                self.note_applied(&policies, Some(choice));
                self.status.set_policies(revision, refused);
                tracing::info!(revision, config = %self.config.summary(), "policies applied");
                return;
            };
            policies.note_refused();
            let reasons = log_reasons(&error);
            let running = policies.running_revision();
            tracing::error!(
                revision,
                running,
                "the revision does not fit the file of this node: the one that runs stays in force. Change the file, or the policies"
            );
            refused = Some((revision, reasons));
            self.status.set_policies(running, refused.clone());
        }
    }

    /// Makes the file at work together with these policies the configuration at work. No file that
    /// it names is read for that: one that is broken or gone keeps no revoked key.
    async fn apply_choice(
        &mut self,
        policies: &Policies,
        choice: NodePolicies,
    ) -> anyhow::Result<()> {
        let revision = choice.revision();
        let ground = policies.ground();
        let mut loaded = spawn_blocking(move || choice.apply(&ground)).await??;
        if self.warned != Some(revision) {
            self.warned = Some(revision);
            // Warnings with a place are of the file, and were logged when it was read.
            loaded.warnings.retain(|warning| warning.at.is_none());
            loaded.warn();
        }
        let access_log = self.access_log.clone();
        let gateway = self.assemble(&loaded.config, access_log.as_ref())?;
        self.begin(gateway, loaded.config);
        Ok(())
    }

    fn note_applied(&mut self, policies: &Policies, applied: Option<NodePolicies>) {
        self.applied_policies.clone_from(&applied);
        if let Some(applied) = applied
            && !policies.runs(&applied)
        {
            policies.took_over(applied);
        }
    }

    /// Makes the configuration of a file the one at work, with all files that it names.
    async fn install(&mut self, loaded: Loaded) -> anyhow::Result<()> {
        let stuck = self.config.needs_restart(&loaded.config);
        anyhow::ensure!(
            stuck.is_empty(),
            "{} can only be changed by a restart",
            stuck.join(", ")
        );
        for files in self.config.renewed_files(&loaded.config) {
            tracing::warn!(
                "the files of {files} have changed: those of the start stay in use until a restart"
            );
        }
        let access_log = assemble::access_log(&loaded.config, self.access_log.as_ref())?;
        let tls = self.tls.prepare(&loaded.config)?;
        let gateway = self.assemble(&loaded.config, access_log.as_ref())?;
        let credentials = CredentialFiles::new(&gateway);
        let endpoints = EndpointFiles::prepare(&gateway)?;
        let credentials = spawn_blocking(move || credentials.read()).await??;
        self.endpoints = endpoints.install();
        discover::first_answers(gateway.discovering_upstreams()).await;
        self.credentials = credentials.install();
        for authenticator in gateway.authenticators.values() {
            authenticator.start_upkeep();
        }
        self.begin(gateway, loaded.config);
        self.tls.install(tls);
        self.access_log = access_log;
        Ok(())
    }

    /// Assembles the gateway of `config`, which goes on from the running one.
    fn assemble(
        &self,
        config: &Config,
        access_log: Option<&AccessLog>,
    ) -> Result<Gateway, QuotaError> {
        let running = RunningGateway {
            gateway: &self.gateway.load(),
            config: &self.config,
        };
        assemble::gateway(config, access_log, Some(running))
    }

    /// Makes the gateway of `config` the one at work.
    fn begin(&mut self, gateway: Gateway, config: Config) {
        self.maintenance = MaintenanceFiles::new(&gateway).follow(&self.maintenance);
        self.gateway.store(Arc::new(gateway));
        warn_of_new_algorithms(&self.config, &config);
        self.config = config;
        if let Some(policies) = &self.policies {
            policies.set_acting(self.config.candidates.clone());
        }
    }
}

/// Logs the limits whose buckets begin anew, because they count by another algorithm.
fn warn_of_new_algorithms(old: &Config, new: &Config) {
    let mut old_kinds = HashMap::new();
    for limit in &old.limits {
        old_kinds.insert(&limit.name, limit.algorithm.kind());
    }
    for limit in &new.limits {
        let kind = limit.algorithm.kind();
        if let Some(old_kind) = old_kinds.get(&limit.name)
            && !old_kind.keeps_buckets(&kind)
        {
            tracing::warn!(
                limit = %limit.name,
                before = old_kind.name(),
                now = kind.name(),
                "the limit has another algorithm: its buckets begin anew"
            );
        }
    }
}

/// Waits for newer policies.
async fn news(news: Option<&mut PolicyNews>) {
    match news {
        Some(news) => news.changed().await,
        None => pending().await,
    }
}

/// Logs why a configuration was not applied, and returns it.
fn log_reasons(error: &anyhow::Error) -> Vec<String> {
    match error.downcast_ref::<Mistakes>() {
        Some(mistakes) => {
            mistakes.log();
            shown(mistakes)
        }
        None => {
            tracing::error!("{error:#}");
            vec![format!("{error:#}")]
        }
    }
}

/// The file, read.
pub struct FreshFile {
    /// The file below any policies. `None`: it could not be read.
    pub ground: Option<Ground>,
    pub result: Result<CheckedFile, Mistakes>,
    pub files: Vec<FileVersion>,
    /// The files of certificates that its upstreams name, as of the versions that were read.
    pub certificates: TlsFileWatches,
}

/// A file without mistakes.
pub struct CheckedFile {
    pub loaded: Loaded,
    /// The policies that are applied over the file.
    policies: Option<NodePolicies>,
    /// A newer revision of them that does not fit.
    refused: Option<RefusedRevision>,
}

struct RefusedRevision {
    revision: u64,
    mistakes: Mistakes,
}

/// Reads the configuration, with the first of the `choices` over it that fits, if there are any.
pub fn read(path: &Path, choices: &[NodePolicies]) -> FreshFile {
    let fresh = read_once(path, choices);
    let certificates = certificate_files(&fresh);
    if certificates.is_empty() {
        return fresh;
    }
    // The first reading has named the files. They are read again now that they are watched.
    let certificates = TlsFileWatches::new(certificates);
    FreshFile {
        certificates,
        ..read_once(path, choices)
    }
}

/// The files of certificates that upstreams name.
fn certificate_files(fresh: &FreshFile) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    if let Ok(checked) = &fresh.result {
        for upstream in &checked.loaded.config.upstreams {
            if let Some(tls) = &upstream.tls {
                files.extend(tls.files.iter().cloned());
            }
        }
    }
    files
}

fn read_once(path: &Path, choices: &[NodePolicies]) -> FreshFile {
    let (ground, files) = config::read_ground(path);
    let result = match &ground {
        Ok(ground) => checked(ground, choices),
        Err(mistakes) => Err(mistakes.clone()),
    };
    FreshFile {
        ground: ground.ok(),
        result,
        files,
        certificates: TlsFileWatches::default(),
    }
}

fn checked(ground: &Ground, choices: &[NodePolicies]) -> Result<CheckedFile, Mistakes> {
    let [newest, others @ ..] = choices else {
        return Ok(CheckedFile {
            loaded: ground.with(None)?,
            policies: None,
            refused: None,
        });
    };
    match newest.apply(ground) {
        Ok(loaded) => Ok(CheckedFile {
            loaded,
            policies: Some(newest.clone()),
            refused: None,
        }),
        Err(mistakes) if others.is_empty() => Err(mistakes),
        Err(mistakes) => {
            let mut checked = checked(ground, others)?;
            checked.refused = Some(RefusedRevision {
                revision: newest.revision(),
                mistakes,
            });
            Ok(checked)
        }
    }
}

fn shown(mistakes: &Mistakes) -> Vec<String> {
    mistakes.all().iter().map(ToString::to_string).collect()
}

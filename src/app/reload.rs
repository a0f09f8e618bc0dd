//! Reloads the configuration file, and newer policies: builds a new gateway of both and swaps it
//! in, or changes nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::pending;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{interval, sleep};
use tollgate_policies::model::PolicyState;

use super::assemble;
use super::files::credentials::CredentialFiles;
use super::files::endpoints::EndpointFiles;
use super::files::maintenance::MaintenanceFiles;
use super::files::tls::TlsFiles;
use super::files::tls_watch::TlsFileWatches;
use super::kept_routes::RunningGateway;
use super::policies::handle::Policies;
use super::policies::local::{CandidateKnowledge, NodePolicies};
use super::restart::systemd::{self, ServiceState};
use super::signals::{OperatorSignal, Signals};
use crate::clock::{self, Instant};
use crate::config::source_watch::SourceWatches;
use crate::config::watch::FileVersion;
use crate::config::{self, Config, Ground, Loaded, Mistakes};
use crate::console::config_status::ConfigStatus;
use crate::gateway::Gateway;
use crate::identity::upkeep::follow_issuer;
use crate::observe::access_log::AccessLog;
use crate::observe::metrics::ReloadMetrics;
use crate::upstream::watch::discover;

/// How often the file is checked for changes.
const CHECK: Duration = Duration::from_secs(1);

/// Between two tries to take policies over, at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

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
    /// Of a file that says where policies come from.
    pub policies: Option<Arc<Policies>>,
    pub news: Option<PolicyNews>,
    /// The policies that lie over the file at work.
    pub laid: Option<NodePolicies>,
    /// When policies that something passing kept from being taken over are tried again, and how
    /// long that was waited for.
    pub again: Option<(Instant, Duration)>,
    /// The revision whose warnings were logged last: it may be laid over the file many times.
    pub warned: Option<u64>,
}

/// Tells of newer policies, and of candidates that act no longer or again.
pub struct PolicyNews {
    newest: watch::Receiver<PolicyState>,
    candidates: watch::Receiver<CandidateKnowledge>,
}

/// The sources that have to be read again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DueReload {
    Nothing,
    File,
    Policies,
}

impl Reloader {
    /// Reloads whenever the file changes or a SIGHUP asks for it. Ends at SIGTERM or SIGINT.
    pub async fn run(&mut self, signals: &mut Signals) {
        let mut check = interval(CHECK);
        let mut due = DueReload::Nothing;
        loop {
            tokio::select! {
                signal = signals.next() => match signal {
                    OperatorSignal::Stop => return,
                    OperatorSignal::Reload => {
                        due = DueReload::File;
                        // Its file may have been moved away, whatever becomes of the configuration.
                        if let Some(log) = &self.access_log {
                            log.reopen();
                        }
                    }
                },
                _ = check.tick() => {
                    if self.has_changed() {
                        due = DueReload::File;
                    }
                    self.tls.check(&self.config);
                    self.credentials.check();
                    self.endpoints.check();
                    self.maintenance.check();
                }
                () = self.credentials.follow() => {}
                () = due_again(self.again) => due = DueReload::Policies,
                () = news(self.news.as_mut()) => due = DueReload::Policies,
            }
            let applying = async {
                match std::mem::replace(&mut due, DueReload::Nothing) {
                    DueReload::Nothing => {}
                    DueReload::File => self.reload().await,
                    DueReload::Policies => self.take_policies_over().await,
                }
            };
            tokio::select! {
                biased;
                () = applying => {}
                // It may take seconds. What was not applied by now never is.
                () = signals.stop() => return,
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
                        self.status.rejected(shown(mistakes));
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
        let (path, choices) = (
            self.path.clone(),
            self.policies.as_ref().map(|policies| policies.choices()),
        );
        let fresh = spawn_blocking(move || read(&path, &choices.unwrap_or_default())).await?;
        let FreshFile {
            ground,
            result,
            files,
            certificates,
        } = fresh;
        self.sources.follow(files.clone(), true);
        let CheckedFile {
            loaded,
            laid,
            refused,
        } = result?;
        loaded.warn();
        self.install(loaded).await?;
        self.certificates = certificates;
        self.sources.follow(files, false);
        if let (Some(policies), Some(ground)) = (&self.policies, ground) {
            policies.ground.store(Arc::new(ground));
            self.laid.clone_from(&laid);
            if let Some(laid) = laid.filter(|laid| !policies.runs(&laid.state)) {
                policies.took_over(laid.state);
            }
            let running = policies.running.borrow().revision();
            let refused = refused.map(|(revision, mistakes)| (revision, shown(&mistakes)));
            self.status.set_policies(running, refused);
        }
        Ok(())
    }

    /// Lays the newest policies over the file at work, or else those at work without what the
    /// newest have stopped.
    async fn take_policies_over(&mut self) {
        let Some(policies) = self.policies.clone() else {
            return;
        };
        let waited = self
            .again
            .take()
            .map_or(Duration::ZERO, |(_, waited)| waited);
        let mut refused = None;
        for choice in policies.choices() {
            let revision = choice.state.revision();
            if self.laid.as_ref().is_some_and(|laid| laid.is_like(&choice)) {
                self.status.set_policies(revision, refused);
                return;
            }
            let laid = lay(&policies, choice.clone()).await;
            if let Ok(loaded) = &laid
                && self.warned.replace(revision) != Some(revision)
            {
                loaded.warn();
            }
            // No other revision need come for this one to be taken over: a file that the
            // configuration names may be missing for a moment.
            let may_pass = match &laid {
                Ok(_) => true,
                Err(error) => error
                    .downcast_ref::<Mistakes>()
                    .is_none_or(Mistakes::may_pass),
            };
            let applied = match laid {
                Ok(loaded) => self.install(loaded).await,
                Err(error) => Err(error),
            };
            match applied {
                Ok(()) => {
                    self.laid = Some(choice.clone());
                    if !policies.runs(&choice.state) {
                        policies.took_over(choice.state);
                    }
                    self.status.set_policies(revision, refused);
                    tracing::info!(revision, config = %self.config.summary(), "policies applied");
                    return;
                }
                Err(error) => {
                    if may_pass {
                        let pause = (2 * waited).clamp(CHECK, LONGEST_PAUSE);
                        self.again = Some((clock::now() + pause, pause));
                    }
                    let running = policies.running.borrow().revision();
                    let mistakes = refuse(&policies, &error, (revision, running));
                    self.status
                        .set_policies(running, Some((revision, mistakes.clone())));
                    refused = Some((revision, mistakes));
                }
            }
        }
    }

    /// Makes a configuration the one at work.
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
        let before = self.gateway.load_full();
        let tls = self.tls.prepare(&loaded.config)?;
        let gateway = assemble::gateway(
            &loaded.config,
            access_log.as_ref(),
            Some(RunningGateway {
                gateway: &before,
                config: &self.config,
            }),
        )?;
        let (credentials, endpoints) = (
            CredentialFiles::of(&gateway),
            EndpointFiles::prepare(&gateway)?,
        );
        let credentials = spawn_blocking(move || credentials.read()).await??;
        self.endpoints = endpoints.install();
        discover::first_answers(gateway.discovering_upstreams()).await;
        self.credentials = credentials.install();
        gateway.authenticators.values().for_each(follow_issuer);
        self.maintenance = MaintenanceFiles::of(&gateway).follow(&self.maintenance);
        self.gateway.store(Arc::new(gateway));
        self.tls.install(tls);
        self.access_log = access_log;
        self.config = loaded.config;
        if let Some(policies) = &self.policies {
            policies.acting.send_replace(self.config.candidates.clone());
        }
        Ok(())
    }
}

impl PolicyNews {
    pub fn of(policies: &Policies) -> Self {
        Self {
            newest: policies.newest.subscribe(),
            candidates: policies.candidates.subscribe(),
        }
    }
}

/// Waits until policies are tried again.
async fn due_again(again: Option<(Instant, Duration)>) {
    match again {
        Some((at, _)) => sleep(at.saturating_duration_since(clock::now())).await,
        None => pending().await,
    }
}

/// Waits for newer policies.
async fn news(news: Option<&mut PolicyNews>) {
    let Some(PolicyNews { newest, candidates }) = news else {
        return pending().await;
    };
    tokio::select! {
        Ok(()) = newest.changed() => {}
        Ok(()) = candidates.changed() => {}
        else => pending().await,
    }
}

/// The configuration that the file comes to with these policies.
async fn lay(policies: &Policies, choice: NodePolicies) -> anyhow::Result<Loaded> {
    let ground = policies.ground.load_full();
    let mut loaded = spawn_blocking(move || choice.lay(&ground)).await??;
    // Those of the file were told when it was read.
    loaded.warnings.retain(|warning| warning.at.is_none());
    Ok(loaded)
}

/// Logs and counts that a revision does not fit, and returns why.
fn refuse(
    policies: &Policies,
    error: &anyhow::Error,
    (revision, running): (u64, u64),
) -> Vec<String> {
    policies.metrics.refused();
    let mistakes = error.downcast_ref::<Mistakes>();
    match mistakes {
        Some(mistakes) => mistakes.log(),
        None => tracing::error!("{error:#}"),
    }
    tracing::error!(
        revision,
        running,
        "the revision does not fit the file of this node: the one that runs stays in force. Change the file, or the policies"
    );
    mistakes.map_or_else(|| vec![format!("{error:#}")], shown)
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
    /// The policies that lie over it.
    laid: Option<NodePolicies>,
    /// A newer revision of them that does not fit, and why.
    refused: Option<(u64, Mistakes)>,
}

/// Reads the configuration, with the first of the `choices` over it that fits, if there are any.
pub fn read(path: &Path, choices: &[NodePolicies]) -> FreshFile {
    let fresh = read_once(path, choices);
    let certificates = |fresh: &FreshFile| {
        let upstreams = fresh
            .result
            .iter()
            .flat_map(|checked| &checked.loaded.config.upstreams);
        let tls = upstreams.filter_map(|upstream| upstream.tls.as_ref());
        TlsFileWatches::new(tls.flat_map(|tls| tls.files.iter().cloned()).collect())
    };
    let certificates = certificates(&fresh);
    // It names the files that it is read from. They are read again now that they are watched.
    let fresh = if certificates.is_empty() {
        fresh
    } else {
        read_once(path, choices)
    };
    FreshFile {
        certificates,
        ..fresh
    }
}

fn read_once(path: &Path, choices: &[NodePolicies]) -> FreshFile {
    let (ground, files) = config::read_ground(path);
    let result = ground
        .as_ref()
        .map_err(Clone::clone)
        .and_then(|ground| checked(ground, choices));
    FreshFile {
        ground: ground.ok(),
        result,
        files,
        certificates: TlsFileWatches::new(BTreeSet::new()),
    }
}

fn checked(ground: &Ground, choices: &[NodePolicies]) -> Result<CheckedFile, Mistakes> {
    let [newest, others @ ..] = choices else {
        return ground.with(None).map(|loaded| CheckedFile {
            loaded,
            laid: None,
            refused: None,
        });
    };
    match newest.lay(ground) {
        Ok(loaded) => Ok(CheckedFile {
            loaded,
            laid: Some(newest.clone()),
            refused: None,
        }),
        Err(mistakes) if others.is_empty() => Err(mistakes),
        Err(mistakes) => {
            let refused = Some((newest.state.revision(), mistakes));
            checked(ground, others).map(|checked| CheckedFile { refused, ..checked })
        }
    }
}

fn shown(mistakes: &Mistakes) -> Vec<String> {
    mistakes.all().iter().map(ToString::to_string).collect()
}

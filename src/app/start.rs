//! The start of a gateway: its configuration, its sockets, its workers, in the order in which each
//! may fail.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use arc_swap::ArcSwap;
use tokio::runtime::Runtime;
use tollgate_limiter::store::memory::MemoryStore;

use super::assemble;
use super::control::ControlPlane;
use super::descriptors;
use super::files::credentials::CredentialFiles;
use super::files::endpoints::EndpointFiles;
use super::files::maintenance::MaintenanceFiles;
use super::files::tls::TlsFiles;
use super::files::tls_watch::TlsFileWatches;
use super::listeners::{self, AdminSockets, BoundListeners, SocketSources};
use super::optional::team::{self, FirstPolicies, Policies, PolicyNews};
use super::reload::{self, Reloader};
use super::restart::attempts::OfferedSockets;
use super::restart::inherited::InheritedSockets;
use super::restart::predecessor::{HandoverPoint, PreparedOffer};
use super::restart::successor::{self, HandedOver, Predecessor};
use super::shared::{FleetMember, SharedState};
use super::signals::Signals;
use super::workers::Workers;
use tollgate_admin::config_status::ConfigStatus;
use tollgate_config::source_watch::SourceWatches;
use tollgate_config::watch::FileVersion;
use tollgate_config::{Config, Ground};
use tollgate_gateway::observe::recorder::MetricsHandle;
use tollgate_gateway::observe::reload_metrics::ReloadMetrics;
use tollgate_server::{ProcessLimit, drain};

/// The configuration of a start, and what it was read from.
pub struct FirstConfig {
    config: Config,
    /// The file below any policies.
    ground: Option<Ground>,
    policies: Option<FirstPolicies>,
    files: Vec<FileVersion>,
    certificates: TlsFileWatches,
}

/// The sockets of a gateway, bound or taken over, and not served yet.
pub struct OpenSockets {
    listeners: BoundListeners,
    admin: AdminSockets,
    process: ProcessLimit,
    /// The offer of these sockets to a successor.
    handover: Option<PreparedOffer>,
    predecessor: Option<Predecessor>,
}

impl FirstConfig {
    /// Reads the file at `path`, and the policies that it names a source of.
    ///
    /// # Errors
    /// When the file has mistakes, or when it requires policies and there are none that fit.
    pub fn read(path: &Path, runtime: &Runtime) -> anyhow::Result<Self> {
        let fresh = reload::read(path, &[]);
        let loaded = fresh.result?.loaded;
        let (loaded, policies) = team::with_policies(runtime, loaded, fresh.ground.as_ref())?;
        loaded.warn();
        Ok(Self {
            config: loaded.config,
            ground: fresh.ground,
            policies,
            files: fresh.files,
            certificates: fresh.certificates,
        })
    }

    /// Builds the gateway, and what replaces it at a reload. Nothing runs yet.
    ///
    /// # Errors
    /// When a file that the configuration names cannot be used.
    pub fn reloader(self, path: &Path) -> anyhow::Result<Reloader> {
        let config = self.config;
        let access_log = assemble::access_log(&config, None)?;
        let policies = match (self.policies, self.ground) {
            (Some(first), Some(ground)) => Some(Arc::new(Policies::new(first, ground, &config))),
            _ => None,
        };
        let gateway = assemble::gateway(&config, access_log.as_ref(), None)
            .context("cannot build the gateway")?;
        let status = Arc::new(ConfigStatus::new(path.display().to_string()));
        let mut applied_policies = None;
        if let Some(policies) = &policies {
            status.set_policies(policies.running_revision(), None);
            applied_policies = policies.choices().pop();
        }
        Ok(Reloader {
            path: path.to_owned(),
            sources: SourceWatches::new(self.files),
            certificates: self.certificates,
            credentials: CredentialFiles::new(&gateway).read()?.install(),
            endpoints: EndpointFiles::prepare(&gateway)?.install(),
            maintenance: MaintenanceFiles::new(&gateway).follow(&MaintenanceFiles::default()),
            gateway: Arc::new(ArcSwap::from_pointee(gateway)),
            access_log,
            metrics: ReloadMetrics::new(),
            status,
            tls: TlsFiles::load(&config)?,
            news: policies.as_deref().map(PolicyNews::of),
            applied_policies,
            warned: None,
            policies,
            config,
        })
    }
}

impl OpenSockets {
    /// Binds what the file of `reloader` names, save what systemd or a predecessor has open.
    ///
    /// # Errors
    /// When an address cannot be bound, or a running gateway does not hand over.
    pub fn open(
        reloader: &Reloader,
        systemd: InheritedSockets,
        take_over: bool,
    ) -> anyhow::Result<Self> {
        let config = &reloader.config;
        let mut handed_over = if take_over {
            taken_over(config)?
        } else {
            HandedOver::default()
        };
        let limit = descriptors::raise_limit();
        let process = ProcessLimit::new(descriptors::client_connections(config, limit));
        let sources = SocketSources {
            systemd,
            predecessor: std::mem::take(&mut handed_over.listeners),
        };
        let listeners = listeners::bind(config, &reloader.tls, sources, &process)?;
        let admin = AdminSockets::open(config.admin.as_ref(), &mut handed_over.admin)?;
        let mut handover = None;
        if let Some(path) = &config.handover {
            let point = HandoverPoint::open(path, handed_over.handover)?;
            let sockets = OfferedSockets {
                listeners: listeners::duplicate(config, &listeners.workers)?,
                admin: admin.duplicate()?,
            };
            handover = Some(point.offer(sockets)?);
        }
        Ok(Self {
            listeners,
            admin,
            process,
            handover,
            predecessor: handed_over.predecessor,
        })
    }

    /// Starts the workers on these sockets, and what watches over them.
    ///
    /// # Errors
    /// When a worker cannot be started.
    pub fn start(
        self,
        reloader: Reloader,
        signals: Signals,
        metrics: MetricsHandle,
    ) -> anyhow::Result<ControlPlane> {
        let config = &reloader.config;
        let (drain_signal, drain) = drain::channel();
        let memory = Arc::new(MemoryStore::new(config.max_local_buckets.get()));
        let store = config.store.clone();
        let fleet = store.map(|spec| FleetMember::new(spec, memory.clone()));
        let permits = match &fleet {
            Some(fleet) => fleet.node.permits.clone(),
            None => Arc::default(),
        };
        let shared = SharedState {
            gateway: reloader.gateway.clone(),
            memory,
            permits,
            fleet,
            drain,
            process: self.process,
        };
        let workers = Workers::start(self.listeners.workers, &shared)?;
        Ok(ControlPlane {
            reloader,
            signals,
            shared,
            workers,
            admin: self.admin,
            metrics,
            drain_signal,
            handover: self.handover,
            socket_files: self.listeners.files,
            predecessor: self.predecessor,
            reserved: self.listeners.reserved,
        })
    }
}

/// The sockets of the gateway that runs, if one does.
fn taken_over(config: &Config) -> anyhow::Result<HandedOver> {
    let Some(handover) = &config.handover else {
        anyhow::bail!(
            "--take-over needs `handover` in the file: where the running gateway is found"
        );
    };
    Ok(successor::take_over(handover)?.unwrap_or_default())
}

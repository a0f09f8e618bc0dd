//! From a configuration to a running gateway, through its reloads, to its end. Knows every other
//! room.
//!
//! `assemble` turns a configuration into a [`Gateway`], of which `kept_routes` has the routes that
//! go on; `workers` serve it on the data plane, and `control` is the control plane: `signals` and
//! changed files lead to a `reload`, and the `exporter` renders the metrics. `shared` is the state
//! that both planes use. `optional` are the parts for people, which a build may lack.
//! `listeners` opens sockets, and `restart` has those that another process opened.

mod assemble;
mod control;
mod descriptors;
mod exporter;
pub mod files;
mod kept_routes;
mod listeners;
mod node_report;
mod optional;
mod reload;
mod restart;
mod shared;
mod signals;
#[cfg(test)]
mod tests;

mod workers;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use arc_swap::ArcSwap;
use control::ControlPlane;
use files::credentials::CredentialFiles;
use files::endpoints::EndpointFiles;
use files::maintenance::MaintenanceFiles;
use files::tls::TlsFiles;
use listeners::{AdminSockets, BoundListener, BoundListeners, SocketSources};
use optional::team::{self, Policies, PolicyNews};
use reload::{FreshFile, Reloader};
use restart::attempts::OfferedSockets;
use restart::predecessor::{HandoverPoint, PreparedOffer};
use restart::successor::HandedOver;
use restart::{successor, systemd};
use shared::{FleetMember, SharedState};
use signals::Signals;

use tollgate_limiter::limit::algorithm::QuotaError;
use tollgate_limiter::store::memory::MemoryStore;
use workers::Workers;

use crate::admin::config_status::ConfigStatus;
use crate::config::Config;
use crate::config::source_watch::SourceWatches;
use crate::gateway::Gateway;
use crate::observe::logging::background;
use crate::observe::metrics;
use crate::observe::reload_metrics::ReloadMetrics;
use crate::server::{ProcessLimit, drain};

/// Runs the gateway on the file at `path` until a signal ends it or another process takes over.
/// With `take_over`, takes over from the process that runs, if one does.
///
/// # Errors
/// When the file has mistakes, an address can't be bound, or a thread can't be started.
pub fn run(path: &Path, take_over: bool) -> anyhow::Result<ExitCode> {
    // Before there is another thread: this changes the environment.
    let systemd = systemd::inherited_sockets();
    background::start_writer().context("cannot start the log")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let signals = {
        let _inside = runtime.enter();
        Signals::install().context("cannot listen to signals")?
    };
    let FreshFile {
        ground,
        result,
        files,
        certificates,
    } = reload::read(path, &[]);
    let (loaded, first) = team::with_policies(&runtime, result?.loaded, ground.as_ref())?;
    loaded.warn();
    let config = loaded.config;
    let recorded = metrics::install().context("cannot start the metrics")?;
    let access_log = assemble::access_log(&config, None)?;
    let policies = first
        .zip(ground)
        .map(|(first, ground)| Arc::new(Policies::new(first, ground, &config)));
    let gateway = assemble::gateway(&config, access_log.as_ref(), None)
        .context("cannot build the gateway")?;
    let credentials = CredentialFiles::of(&gateway).read()?.install();
    let endpoints = EndpointFiles::prepare(&gateway)?.install();
    let maintenance = MaintenanceFiles::of(&gateway).follow(&MaintenanceFiles::default());
    let gateway = Arc::new(ArcSwap::from_pointee(gateway));

    let tls = TlsFiles::load(&config)?;
    // Late: everything that is likely to fail has been done.
    let mut handed_over = match &config.handover {
        Some(handover) if take_over => successor::take_over(handover)?.unwrap_or_default(),
        None if take_over => {
            anyhow::bail!(
                "--take-over needs `handover` in the file: where the running gateway is found"
            )
        }
        _ => HandedOver::default(),
    };
    let process = ProcessLimit::new(descriptors::client_connections(
        &config,
        descriptors::raise_limit(),
    ));
    let sources = SocketSources {
        systemd,
        predecessor: std::mem::take(&mut handed_over.listeners),
    };
    let BoundListeners {
        workers: listeners,
        files: socket_files,
        reserved,
    } = listeners::bind(&config, &tls, sources, &process)?;
    let admin = AdminSockets::open(config.admin.as_ref(), &mut handed_over.admin)?;
    let handover = config
        .handover
        .as_deref()
        .map(|path| HandoverPoint::open(path, handed_over.handover))
        .transpose()?;
    let handover = handover
        .map(|point| offer(point, &config, &listeners, &admin))
        .transpose()?;
    let (drain_signal, drain) = drain::channel();
    let memory = Arc::new(MemoryStore::new(config.max_local_buckets.get()));
    let fleet = config
        .store
        .clone()
        .map(|spec| FleetMember::new(spec, memory.clone()));
    let permits = fleet
        .as_ref()
        .map(|fleet| fleet.node.permits.clone())
        .unwrap_or_default();
    let shared = SharedState {
        gateway: gateway.clone(),
        memory,
        permits,
        fleet,
        drain,
        process,
    };
    let workers = Workers::start(listeners, &shared)?;

    let metrics = ReloadMetrics::new();
    let status = Arc::new(ConfigStatus::new(path.display().to_string()));
    if let Some(policies) = &policies {
        status.set_policies(policies.running_revision(), None);
    }
    let sources = SourceWatches::new(files);
    let path = path.to_owned();
    let reloader = Reloader {
        path,
        sources,
        certificates,
        config,
        gateway,
        access_log,
        metrics,
        status,
        tls,
        credentials,
        endpoints,
        maintenance,
        news: policies.as_deref().map(PolicyNews::of),
        laid: policies
            .as_ref()
            .and_then(|policies| policies.choices().pop()),
        again: None,
        warned: None,
        policies,
    };
    let predecessor = handed_over.predecessor;
    let control = ControlPlane {
        reloader,
        signals,
        shared,
        workers,
        admin,
        metrics: recorded,
        drain_signal,
        handover,
        predecessor,
        socket_files,
        reserved,
    };
    let ended = runtime.block_on(control.run());
    // A thread of the runtime may still wait for workers that drain, and the operator may have said
    // not to wait for them.
    runtime.shutdown_background();
    ended
}

/// Offers the sockets to a successor.
fn offer(
    point: HandoverPoint,
    config: &Config,
    listeners: &[Vec<BoundListener>],
    admin: &AdminSockets,
) -> anyhow::Result<PreparedOffer> {
    let sockets = OfferedSockets {
        listeners: listeners::duplicate(config, listeners)?,
        admin: admin.duplicate()?,
    };
    Ok(point.offer(sockets)?)
}

/// The gateway that `config` describes, without anything that runs: to ask what it would do.
///
/// # Errors
/// When a limit's rate or burst is out of bounds, which those of a checked configuration are not.
pub fn for_explaining(config: &Config) -> Result<Gateway, QuotaError> {
    let gateway = assemble::gateway(config, None, None)?;
    // Each route is under maintenance as its file has it now.
    drop(MaintenanceFiles::of(&gateway));
    Ok(gateway)
}

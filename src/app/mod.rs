//! From a configuration to a running gateway, through its reloads, to its end. Knows every other room.
//!
//! `assemble` turns a configuration into a [`Gateway`], `workers` serve it on the data plane, and `control` is the control
//! plane: `signals` and the file's changes lead to a `reload`, and the `exporter` renders the metrics. `shared` is the state
//! that both planes use.

mod assemble;
mod control;
mod exporter;
mod listeners;
mod reload;
mod shared;
mod signals;
#[cfg(test)]
mod tests;
mod workers;

use std::net::TcpListener as StdListener;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use arc_swap::ArcSwap;
use control::ControlPlane;
use reload::Reloader;
use shared::{FleetMember, SharedState};
use signals::Signals;
use tollgate_limiter::limit::algorithm::QuotaError;
use tollgate_limiter::store::memory::MemoryStore;
use workers::Workers;

use crate::config::watch::FileWatch;
use crate::config::{self, Config};
use crate::gateway::Gateway;
use crate::observe::metrics;
use crate::observe::metrics::ReloadMetrics;
use crate::server::drain;

/// Runs the gateway on the file at `path` until a signal ends it.
///
/// # Errors
/// When the file has mistakes, an address can't be bound, or a thread can't be started.
pub fn run(path: &Path) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signals = {
        let _inside = runtime.enter();
        Signals::install().context("cannot listen to signals")?
    };
    // Before the file is read: a change from then on is a change.
    let watch = FileWatch::new(path.to_owned());
    let loaded = config::load(path)?;
    loaded.warn();
    let config = loaded.config;
    let prometheus = metrics::install().context("cannot start the metrics")?;
    let access_log = assemble::access_log(&config, None)?;
    let gateway = assemble::gateway(&config, access_log.clone(), None).context("cannot build the gateway")?;
    let gateway = Arc::new(ArcSwap::from_pointee(gateway));

    let listeners = listeners::bind(&config)?;
    let open =
        |address| StdListener::bind(address).with_context(|| format!("cannot listen on {address} for the admin"));
    let admin = config.admin.map(open).transpose()?;
    let (drain_signal, drain) = drain::channel();
    let memory = Arc::new(MemoryStore::new(config.max_local_buckets.get()));
    let fleet = config.store.clone().map(|spec| FleetMember::new(spec, memory.clone()));
    let permits = fleet.as_ref().map(|fleet| fleet.node.permits.clone()).unwrap_or_default();
    let shared = SharedState { gateway: gateway.clone(), memory, permits, fleet, drain };
    let workers = Workers::start(listeners, &shared)?;

    let metrics = ReloadMetrics::new();
    let reloader = Reloader { path: path.to_owned(), watch, config, gateway, access_log, metrics };
    let control = ControlPlane { reloader, signals, shared, workers, admin, prometheus, drain_signal };
    let ended = runtime.block_on(control.run());
    // A thread of the runtime may still wait for workers that drain, and the operator may have said not to wait for them.
    runtime.shutdown_background();
    ended
}

/// The gateway that `config` describes, without anything that runs: to ask what it would do.
///
/// # Errors
/// When a limit's rate or burst is out of bounds, which those of a checked configuration are not.
pub fn for_explaining(config: &Config) -> Result<Gateway, QuotaError> {
    assemble::gateway(config, None, None)
}

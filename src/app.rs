//! The one module that knows everyone: from a configuration to a running gateway, through its reloads, to its end.
//!
//! `assemble` turns a configuration into a [`Gateway`], `workers` serve it, `control` watches over both. All workers
//! share the gateway, which a reload replaces as a whole.

mod assemble;
mod control;
#[cfg(test)]
mod tests;
mod workers;

use std::net::TcpListener as StdListener;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use arc_swap::ArcSwap;
use control::{Live, Signals};
use tollgate_limiter::limit::algorithm_kind::QuotaError;
use tollgate_limiter::node::Node;
use tollgate_limiter::node::breaker::Breaker;
use tollgate_limiter::node::permits::PermitTable;
use tollgate_limiter::store::fleet_share::FleetShare;
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::redis::spec::RedisSpec;
use workers::{BoundListener, Workers};

use crate::config::watch::FileWatch;
use crate::config::{self, AccessLogFormat, Config, ListenerConfig};
use crate::gateway::Gateway;
use crate::observe::access_log::AccessLog;
use crate::observe::metrics as exporter;
use crate::observe::metrics::ReloadMetrics;
use crate::server::drain::{self, Drain};
use crate::server::{self, ConnectionLimit};

/// How often histograms are drained, idle connections closed and full buckets dropped.
const UPKEEP: Duration = Duration::from_secs(2);

/// What the workers of a node have in common.
#[derive(Clone)]
struct Common {
    gateway: Arc<ArcSwap<Gateway>>,
    memory: Arc<MemoryStore>,
    permits: Arc<PermitTable>,
    fleet: Option<FleetState>,
    drain: Drain,
}

/// What a node knows of the store and of the nodes it shares it with.
#[derive(Clone)]
struct FleetState {
    spec: RedisSpec,
    node: Arc<Node>,
}

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
    let prometheus = exporter::install().context("cannot start the metrics")?;
    let access_log = access_log(&config, None)?;
    let gateway = assemble::gateway(&config, access_log.clone(), None).context("cannot build the gateway")?;
    let gateway = Arc::new(ArcSwap::from_pointee(gateway));

    let listeners = bind_listeners(&config)?;
    let open =
        |address| StdListener::bind(address).with_context(|| format!("cannot listen on {address} for the admin"));
    let admin = config.admin.map(open).transpose()?;
    let (signal, drain) = drain::channel();
    let memory = Arc::new(MemoryStore::new(config.max_local_buckets.get()));
    let fleet = config.store.clone().map(|spec| FleetState::new(spec, memory.clone()));
    let permits = fleet.as_ref().map(|fleet| fleet.node.permits.clone()).unwrap_or_default();
    let common = Common { gateway: gateway.clone(), memory, permits, fleet, drain };
    let workers = Workers::start(listeners, &common)?;

    let metrics = ReloadMetrics::new();
    let live = Live { path: path.to_owned(), watch, config, gateway, access_log, metrics };
    let ended = runtime.block_on(control::run(live, signals, common, workers, admin, prometheus, signal));
    // A thread of it may still wait for workers that drain. Whoever does not want to wait for them has said so.
    runtime.shutdown_background();
    ended
}

/// The gateway that `config` describes, without anything that runs: to ask what it would do.
///
/// # Errors
/// When a limit's rate or burst is out of bounds, which a checked configuration's are not.
pub fn for_explaining(config: &Config) -> Result<Gateway, QuotaError> {
    assemble::gateway(config, None, None)
}

/// Binds every address for every worker before any of them runs: what can't be bound stops the start.
fn bind_listeners(config: &Config) -> anyhow::Result<Vec<Vec<BoundListener>>> {
    for ListenerConfig { server: spec, .. } in &config.listeners {
        server::check_free(spec).with_context(|| format!("cannot listen on {}", spec.address))?;
    }
    let mut workers: Vec<Vec<BoundListener>> = Vec::new();
    workers.resize_with(config.workers.get(), Vec::new);
    for listener in &config.listeners {
        let mut spec = listener.server.clone();
        let limit = ConnectionLimit::new(spec.max_connections);
        for listeners in &mut workers {
            let socket = server::bind(&spec).with_context(|| format!("cannot listen on {}", spec.address))?;
            // Port 0 is any free port, the same for all workers.
            spec.address = socket.local_addr()?;
            listeners.push(BoundListener { socket, spec: Arc::new(spec.clone()), limit: limit.clone() });
        }
        tracing::info!(address = %spec.address, "listening");
    }
    Ok(workers)
}

/// The access log that `config` asks for; `running` goes on where there is one.
fn access_log(config: &Config, running: Option<AccessLog>) -> anyhow::Result<Option<AccessLog>> {
    match (config.access_log, running) {
        (AccessLogFormat::Off, _) => Ok(None),
        (AccessLogFormat::Json, Some(running)) => Ok(Some(running)),
        (AccessLogFormat::Json, None) => AccessLog::start().map(Some).context("cannot start the access log"),
    }
}

impl FleetState {
    fn new(spec: RedisSpec, memory: Arc<MemoryStore>) -> Self {
        let share = Arc::new(FleetShare::expecting(spec.expected_nodes));
        Self { spec, node: Arc::new(Node::new(memory, Arc::new(Breaker::new()), share)) }
    }
}

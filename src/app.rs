//! The one module that knows everyone: from a configuration to a running gateway, through its reloads, to its end.
//!
//! `assemble` turns a configuration into a [`Gateway`], `workers` serve it, `control` watches over both. All workers
//! share the gateway, which a reload replaces as a whole.

mod assemble;
mod control;
mod workers;

use std::net::TcpListener as StdListener;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use arc_swap::ArcSwap;

use crate::config::{self, AccessLog, Config};
use crate::gateway::Gateway;
use crate::rate_limit::breaker::Breaker;
use crate::rate_limit::bucket::ShapeError;
use crate::rate_limit::share::ShareCell;
use crate::server::drain::{self, Drain};
use crate::server::{self, Slots};
use crate::store::RedisSpec;
use crate::store::memory::MemoryStore;
use crate::{metrics as exporter, telemetry};
use control::Live;
use workers::{Door, Workers};

/// How often histograms are drained, idle connections closed and full buckets dropped.
const UPKEEP: Duration = Duration::from_secs(2);
/// What the workers of a node have in common.
#[derive(Clone)]
struct Common {
    gateway: Arc<ArcSwap<Gateway>>,
    memory: Arc<MemoryStore>,
    fleet: Option<FleetState>,
    drain: Drain,
}

/// What a node knows of the store and of the nodes it shares it with.
#[derive(Clone)]
struct FleetState {
    spec: RedisSpec,
    breaker: Arc<Breaker>,
    share: Arc<ShareCell>,
}

/// Runs the gateway on the file at `path` until a signal ends it.
///
/// # Errors
/// When the file has mistakes, an address can't be bound, or a thread can't be started.
pub fn run(path: &Path) -> anyhow::Result<ExitCode> {
    let loaded = config::load(path).map_err(|mistakes| anyhow::anyhow!("{mistakes}"))?;
    loaded.warn();
    let config = loaded.config;
    let prometheus = exporter::install().context("cannot start the metrics")?;
    let access_log = access_log(&config, None)?;
    let gateway = assemble::gateway(&config, access_log.clone(), None).context("cannot build the gateway")?;
    let gateway = Arc::new(ArcSwap::from_pointee(gateway));

    let doors = open_doors(&config)?;
    let admin = config.admin.map(StdListener::bind).transpose();
    let admin = admin.with_context(|| format!("cannot listen on the admin address {:?}", config.admin))?;
    let (signal, drain) = drain::channel();
    let memory = Arc::new(MemoryStore::new(config.max_local_buckets.get()));
    let fleet = config.store.clone().map(FleetState::new);
    let common = Common { gateway: gateway.clone(), memory, fleet, drain };
    let workers = Workers::start(doors, &common)?;

    let live = Live { path: path.to_owned(), config, gateway, access_log };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(control::run(live, common, workers, admin, prometheus, signal))
}

/// The gateway that `config` describes, without anything that runs: to ask what it would do.
///
/// # Errors
/// When a limit's rate or burst is out of bounds, which a checked configuration's are not.
pub fn for_explaining(config: &Config) -> Result<Gateway, ShapeError> {
    assemble::gateway(config, None, None)
}

/// Binds every address for every worker before any of them runs: what can't be bound stops the start.
fn open_doors(config: &Config) -> anyhow::Result<Vec<Vec<Door>>> {
    let mut workers: Vec<Vec<Door>> = Vec::new();
    workers.resize_with(config.workers.get(), Vec::new);
    for listener in &config.listeners {
        let mut spec = listener.server.clone();
        let slots = Slots::new(spec.max_connections);
        for doors in &mut workers {
            let socket = server::bind(&spec).with_context(|| format!("cannot listen on {}", spec.address))?;
            // Port 0 is any free port, the same for all workers.
            spec.address = socket.local_addr()?;
            doors.push(Door { socket, spec: Arc::new(spec.clone()), slots: slots.clone() });
        }
        tracing::info!(address = %spec.address, "listening");
    }
    Ok(workers)
}

/// The access log that `config` asks for; `running` goes on where there is one.
fn access_log(config: &Config, running: Option<telemetry::AccessLog>) -> anyhow::Result<Option<telemetry::AccessLog>> {
    match (config.access_log, running) {
        (AccessLog::Off, _) => Ok(None),
        (AccessLog::Json, Some(running)) => Ok(Some(running)),
        (AccessLog::Json, None) => telemetry::AccessLog::start().map(Some).context("cannot start the access log"),
    }
}

impl FleetState {
    fn new(spec: RedisSpec) -> Self {
        let share = Arc::new(ShareCell::expecting(spec.expected_nodes));
        Self { spec, breaker: Arc::new(Breaker::new()), share }
    }
}

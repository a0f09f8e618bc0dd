//! The one file that knows everyone: from a configuration to a running gateway, through its reloads, to its end.
//!
//! Each worker is a thread with its own runtime, sockets, upstream connections and Redis connection. This thread is the
//! control plane: admin port, breaker and heartbeats, upkeep, watching the file, signals. They share the [`Gateway`],
//! which a reload replaces as a whole, and the node's [`Node`], which outlives reloads.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::Context;
use arc_swap::ArcSwap;
use metrics::{counter, gauge};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::admin::{self, Phase, Readiness, Render};
use crate::config::watch::Watch;
use crate::config::{self, AccessLog, Config};
use crate::gateway::account::{InFlight, RouteMetrics};
use crate::gateway::route::{Action, Route};
use crate::gateway::table::RouteTable;
use crate::gateway::{Entrance, Gateway, Guarded, Upstreams};
use crate::proxy::Proxy;
use crate::proxy::forwarded::TrustedProxies;
use crate::rate_limit::limiter::Limiter;
use crate::rate_limit::policy::LimitUse;
use crate::rate_limit::rules::Rules;
use crate::server::drain::Drain;
use crate::server::{self, worker};
use crate::store::memory::MemoryStore;
use crate::upstream::Upstream;
use crate::{metrics as exporter, telemetry};

/// How often histograms are drained and full buckets dropped.
const UPKEEP: Duration = Duration::from_secs(2);
/// How often the file is looked at.
const WATCH: Duration = Duration::from_secs(1);
/// What a node has once, whatever its configuration says meanwhile.
struct Node {
    path: PathBuf,
    config: Config,
    gateway: Arc<ArcSwap<Gateway>>,
    upstreams: Upstreams,
    access_log: Option<telemetry::AccessLog>,
}

/// Runs the gateway on the file at `path` until a signal ends it.
///
/// # Errors
/// When the file has mistakes, an address can't be bound, or a thread can't be started.
pub fn run(path: &Path) -> anyhow::Result<ExitCode> {
    let loaded = config::load(path).map_err(|mistakes| anyhow::anyhow!("{mistakes}"))?;
    warn_of(&loaded);
    let prometheus = exporter::install().context("cannot start the metrics")?;
    let node = Node::new(path.to_owned(), loaded.config)?;
    let sockets = node.bind()?;
    let memory = Arc::new(MemoryStore::new(node.config.max_local_buckets));
    let _ = (prometheus, sockets, memory);
    anyhow::bail!("unfinished")
}

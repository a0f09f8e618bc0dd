//! The control plane: admin port, breaker and heartbeats, upkeep, watching the file, signals, the end.

use std::net::TcpListener as StdListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::pending;
use metrics::{Gauge, counter, gauge};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{interval, sleep};
use tollgate_limiter::decide::plans::reader::PlanReader;
use tollgate_limiter::node::recovery;
use tollgate_limiter::request::explanation::BucketUse;
use tollgate_limiter::store::Store;
use tollgate_limiter::store::inspect::{BucketChange, CacheListener};
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::redis::heartbeat::Heartbeat;
use tollgate_limiter::store::redis::inspect::RedisInspector;

use super::workers::Workers;
use super::{Common, UPKEEP, access_log, assemble};
use crate::admin::desk::{self, Desk};
use crate::admin::{self, Panel, Phase, Readiness};
use crate::config::watch::Watch;
use crate::config::{self, Config, Mistakes};
use crate::gateway::Gateway;
use crate::gateway::account::InFlight;
use crate::server::DrainSignal;
use crate::{clock, telemetry};

/// How often the file is looked at.
const WATCH: Duration = Duration::from_secs(1);

/// What reloads work on.
pub struct Live {
    pub path: PathBuf,
    pub watch: Watch,
    pub config: Config,
    pub gateway: Arc<ArcSwap<Gateway>>,
    pub access_log: Option<telemetry::AccessLog>,
}

/// What an operator tells the process. Made before anything is started: until then a hangup ends the process, and the
/// first process of a container ignores a termination.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

enum Told {
    Stop,
    Reload,
}

/// Renders the metrics, the levels among them as of now.
struct Exporter {
    prometheus: PrometheusHandle,
    memory: Arc<MemoryStore>,
    in_flight: Vec<Arc<InFlight>>,
    requests: Gauge,
    buckets: Gauge,
}

impl Signals {
    /// From now on, in the current runtime.
    pub fn install() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::Stop,
            _ = self.interrupt.recv() => Told::Stop,
            _ = self.hangup.recv() => Told::Reload,
        }
    }

    async fn stop(&mut self) {
        while !matches!(self.next().await, Told::Stop) {}
    }
}

/// Watches over the running gateway until a signal ends it, then drains it.
pub async fn run(
    mut live: Live,
    mut signals: Signals,
    common: Common,
    workers: Workers,
    admin: Option<StdListener>,
    prometheus: PrometheusHandle,
    signal: DrainSignal,
) -> anyhow::Result<ExitCode> {
    let readiness = Readiness::default();
    let exporter = Arc::new(Exporter::new(prometheus, &common, &workers));
    let exporting = exporter.clone();
    let inspector = common.fleet.as_ref().map(|state| RedisInspector::connect(&state.spec)).transpose()?;
    let desk = Arc::new(desk(&common, inspector.as_ref()));
    let panel = Panel {
        readiness: readiness.clone(),
        render: Arc::new(move || exporting.render()),
        gateway: common.gateway.clone(),
        desk: desk.clone(),
    };
    let opened = admin.map(|socket| open_admin(socket, panel)).transpose()?;
    let fleet =
        common.fleet.as_ref().map(|state| Heartbeat::join(&state.spec, state.node.share.clone())).transpose()?;

    readiness.enter(Phase::Serving);
    tracing::info!(workers = workers.threads.len(), version = env!("CARGO_PKG_VERSION"), "serving");
    let drain_timeout = tokio::select! {
        () = stop_or_reload(&mut live, &mut signals) => live.config.drain_timeout,
        // The kernel would spread its connections over the others, which may well die of the same bug.
        () = workers.lost() => anyhow::bail!("a worker ended before its time"),
        () = upkeep(&common, &exporter) => unreachable_end()?,
        () = guard_store(&common, &workers) => unreachable_end()?,
        () = beat(fleet.as_ref()) => unreachable_end()?,
        () = hear_operators(inspector.as_ref(), &common, &desk) => unreachable_end()?,
    };

    readiness.enter(Phase::Draining);
    tracing::info!(timeout_s = drain_timeout.as_secs_f64(), "draining: no new connections, requests in flight may end");
    signal.start(drain_timeout);
    let cut = tokio::select! {
        cut = workers.join() => cut?,
        // Whoever asks twice means it.
        () = signals.stop() => anyhow::bail!("stopped before the requests in flight had ended"),
    };
    if let Some(fleet) = fleet {
        fleet.leave().await;
    }
    if let Some(inspector) = inspector {
        inspector.close().await;
    }
    if let Some(log) = &live.access_log {
        log.flush();
    }
    tracing::info!(cut, "stopped");
    drop(opened);
    Ok(ExitCode::SUCCESS)
}

/// These tasks run until they are dropped: one that ends is a bug, and the gateway must not go on half alive.
fn unreachable_end() -> anyhow::Result<Duration> {
    anyhow::bail!("a task of the control plane ended")
}

fn open_admin(socket: StdListener, panel: Panel) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    socket.set_nonblocking(true)?;
    tracing::info!(address = %socket.local_addr()?, "admin port open");
    let listener = TcpListener::from_std(socket)?;
    Ok(tokio::spawn(async move {
        if let Err(error) = admin::serve(listener, panel).await {
            tracing::error!(%error, "the admin port failed");
        }
    }))
}

/// What a reset or a grant must reach in this process, beside the local buckets: see [`Node`].
fn desk(common: &Common, inspector: Option<&RedisInspector>) -> Desk {
    let fleet = common.fleet.as_ref().zip(inspector);
    let holders = fleet.iter().map(|(state, _)| state.node.clone() as Arc<dyn CacheListener>).collect();
    let fleet = fleet.map(|(state, inspector)| desk::Fleet {
        inspect: Arc::new(inspector.clone()),
        breaker: state.node.breaker.clone(),
        share: state.node.share.clone(),
        plans: Arc::new(PlanReader::new(Arc::new(inspector.clone()), state.node.breaker.clone())),
    });
    Desk::new(common.memory.clone(), common.slots.clone(), fleet, holders)
}

/// Takes over what operators changed, on whatever node.
async fn hear_operators(inspector: Option<&RedisInspector>, common: &Common, desk: &Desk) {
    let Some(inspector) = inspector else { return pending().await };
    let take_over = async |notice: BucketChange| {
        let taken = common.gateway.load().limits.of_key(&notice.key).map(|listed| listed.ask(notice.key.clone()));
        // A limit that this node does not have holds nothing here.
        if let Some(charge) = taken.as_ref().and_then(BucketUse::tokens) {
            desk.take_over(charge, &notice).await;
        }
    };
    inspector.listen(take_over).await;
}

/// Reloads whenever the file changes or a SIGHUP asks for it. Ends at SIGTERM or SIGINT.
async fn stop_or_reload(live: &mut Live, signals: &mut Signals) {
    let mut look = interval(WATCH);
    loop {
        tokio::select! {
            told = signals.next() => match told {
                Told::Stop => return,
                Told::Reload => {
                    // This version is dealt with now, and need not be again at the next look.
                    live.watch = Watch::new(live.path.clone());
                    live.reload();
                }
            },
            _ = look.tick() => if live.watch.changed() { live.reload() },
        }
    }
}

async fn upkeep(common: &Common, exporter: &Exporter) {
    loop {
        sleep(UPKEEP).await;
        exporter.prometheus.run_upkeep();
        common.memory.sweep(clock::monotonic_micros());
        common.memory.follow_clock();
        if let Some(fleet) = &common.fleet {
            fleet.node.sweep(clock::monotonic_micros());
        }
    }
}

/// Closes the breaker again when the store is back, as seen over every worker's connection.
async fn guard_store(common: &Common, workers: &Workers) {
    if let Some(fleet) = &common.fleet {
        let stores = workers.stores.iter().map(|store| Arc::new(store.clone()) as Arc<dyn Store>).collect();
        recovery::run_control(fleet.node.clone(), stores).await;
    }
    pending().await
}

async fn beat(fleet: Option<&Heartbeat>) {
    match fleet {
        Some(fleet) => fleet.run().await,
        None => pending().await,
    }
}

impl Live {
    /// Takes the file over, or says why not and changes nothing.
    fn reload(&mut self) {
        match self.apply() {
            Ok(()) => {
                counter!("tollgate_config_reloads_total", "outcome" => "applied").increment(1);
                tracing::info!(file = %self.path.display(), config = %self.config.summary(), "reloaded");
            }
            Err(error) => {
                counter!("tollgate_config_reloads_total", "outcome" => "rejected").increment(1);
                match error.downcast_ref::<Mistakes>() {
                    Some(mistakes) => mistakes.log(),
                    None => tracing::error!("{error:#}"),
                }
                tracing::error!(file = %self.path.display(), "not reloaded: nothing has changed");
            }
        }
    }

    fn apply(&mut self) -> anyhow::Result<()> {
        let loaded = config::load(&self.path)?;
        let stuck = self.config.needs_restart(&loaded.config);
        anyhow::ensure!(stuck.is_empty(), "{} can only be changed by a restart", stuck.join(", "));
        loaded.warn();
        let access_log = access_log(&loaded.config, self.access_log.clone())?;
        let before = self.gateway.load_full();
        self.gateway.store(Arc::new(assemble::gateway(&loaded.config, access_log.clone(), Some(&before))?));
        self.access_log = access_log;
        self.config = loaded.config;
        Ok(())
    }
}

impl Exporter {
    fn new(prometheus: PrometheusHandle, common: &Common, workers: &Workers) -> Self {
        Self {
            prometheus,
            memory: common.memory.clone(),
            in_flight: workers.in_flight.clone(),
            requests: gauge!("tollgate_requests_in_flight"),
            buckets: gauge!("tollgate_local_buckets"),
        }
    }

    fn render(&self) -> String {
        let requests: usize = self.in_flight.iter().map(|worker| worker.count()).sum();
        self.requests.set(requests as f64);
        self.buckets.set(self.memory.len() as f64);
        self.prometheus.render()
    }
}

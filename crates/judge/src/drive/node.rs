//! A node of a fleet in this process: the limiter of a gateway, without its HTTP.
//!
//! Guarantees that nodes share nothing but their store: each has its own buckets, breaker,
//! heartbeat, threads and connections. `limiter` puts them together as a gateway does.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tollgate_limiter::clock;
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::node::breaker::Breaker;
use tollgate_limiter::node::{self, recovery};
use tollgate_limiter::request::rule_set::RuleSet;
use tollgate_limiter::store::Store;
use tollgate_limiter::store::fleet_share::FleetShare;
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::redis::RedisStore;
use tollgate_limiter::store::redis::heartbeat::Heartbeat;
use tollgate_limiter::store::redis::spec::RedisSpec;

use crate::drive::client::{self, ClientSettings};
use crate::drive::held_client::{RouteLimits, WorkerClients};
use crate::drive::load::OfferedLoad;
use crate::drive::store_calls::StoreCalls;
use crate::drive::thread::{runtime, spawn};
use crate::error::Error;
use crate::plan::RunPlan;
use crate::report::observations::Observations;

/// The store that the nodes share.
#[derive(Clone)]
pub enum Backing {
    /// None: each node keeps its own buckets.
    Memory,
    Redis(RedisSpec),
    /// The caller's own store, made for each worker of the node with this number: for tests of the
    /// judge.
    Custom(Arc<dyn Fn(u32) -> Arc<dyn Store> + Send + Sync>),
}

/// The life of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Phase {
    Waiting,
    Driving,
    /// Calls in flight end, and the node leaves the fleet.
    Stopping,
    /// Calls in flight are dropped.
    Crashed,
}

/// A running node.
pub struct DrivenNode {
    pub settings: Arc<ClientSettings>,
    pub calls: StoreCalls,
    share: Arc<FleetShare>,
    phase: watch::Sender<Phase>,
    workers: Vec<JoinHandle<Result<Observations, Error>>>,
    control: JoinHandle<Result<(), Error>>,
}

/// The parts of a node that its workers share.
#[derive(Clone)]
struct NodeParts {
    index: u32,
    backing: Backing,
    node: Arc<node::Node>,
    calls: StoreCalls,
    settings: Arc<ClientSettings>,
    /// For clients whose requests wait or are in flight.
    rules: Arc<RuleSet>,
}

/// A thread of a node with its clients.
struct NodeWorker {
    load: Arc<OfferedLoad>,
    clients: WorkerClients,
    phase: watch::Receiver<Phase>,
    ready: mpsc::Sender<Option<Arc<dyn Store>>>,
}

/// The longest that a start waits for the store.
const FIRST_CONTACT: Duration = Duration::from_secs(20);

/// The longest that answers may take after the end.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

const MAX_BUCKETS: usize = 1_000_000;

/// A worker's limiter, and its store if the node's breaker is to be closed by it.
fn limiter(parts: &NodeParts) -> Result<(Limiter, Option<Arc<dyn Store>>), Error> {
    let store: Arc<dyn Store> = match &parts.backing {
        Backing::Memory => return Ok((Limiter::local(parts.node.memory.clone()), None)),
        Backing::Redis(spec) => {
            Arc::new(RedisStore::connect(spec)?.in_fleet(parts.node.share.clone()))
        }
        Backing::Custom(make) => make(parts.index),
    };
    Ok((
        Limiter::for_node(parts.node.clone(), store.clone()),
        Some(store),
    ))
}

impl DrivenNode {
    /// Starts a node whose clients wait for [`Self::go`]. Returns once its workers have their
    /// connections.
    ///
    /// # Errors
    /// When a thread cannot be started, or the store is not there.
    pub fn start(
        plan: &RunPlan,
        backing: &Backing,
        load: &Arc<OfferedLoad>,
        index: u32,
        seed: u64,
    ) -> Result<Self, Error> {
        let expected = match backing {
            Backing::Redis(spec) => spec.expected_nodes,
            Backing::Memory | Backing::Custom(_) => 1,
        };
        let memory = Arc::new(MemoryStore::new(MAX_BUCKETS));
        let share = Arc::new(FleetShare::expecting(expected));
        let calls = StoreCalls::default();
        let parts = NodeParts {
            index,
            backing: backing.clone(),
            node: Arc::new(metrics::with_local_recorder(&calls, || {
                node::Node::new(memory, Arc::new(Breaker::new()), share)
            })),
            calls,
            settings: Arc::new(ClientSettings::new(plan.quota(&plan.limit)?)),
            rules: Arc::new(plan.rules()?),
        };
        let (phase, waiting) = watch::channel(Phase::Waiting);
        let (ready, readies) = mpsc::channel();
        let mut rng = fastrand::Rng::with_seed(seed ^ u64::from(index) << 32);
        let workers = (0..plan.workers.get()).map(|worker| {
            let load = load.clone();
            let phase = waiting.clone();
            let ready = ready.clone();
            let workers = plan.workers.get();
            let place = (
                u64::from(index * workers + worker),
                u64::from(plan.nodes.get() * workers),
            );
            let most = plan.burst();
            let count = plan.clients.get();
            let seed = rng.u64(..);
            let clients = WorkerClients {
                place,
                most,
                count,
                seed,
            };
            let work = NodeWorker {
                load,
                clients,
                phase,
                ready,
            };
            let parts = parts.clone();
            spawn("torture-worker", move || work.run(&parts))
        });
        let workers = workers.collect::<Result<Vec<_>, _>>()?;
        drop(ready);
        let stores: Vec<Option<Arc<dyn Store>>> = readies.into_iter().take(workers.len()).collect();
        let started = stores.len() == workers.len();
        let away = parts.node.breaker.is_open();
        let settings = parts.settings.clone();
        let calls = parts.calls.clone();
        let share = parts.node.share.clone();
        let stores: Vec<Arc<dyn Store>> = stores.into_iter().flatten().collect();
        let control = spawn("torture-control", move || control(&parts, stores, waiting))?;
        let node = Self {
            settings,
            calls,
            share,
            phase,
            workers,
            control,
        };
        if !started || away {
            node.end(Phase::Stopping)?;
            return Err(Error::NoRedis);
        }
        Ok(node)
    }

    /// Whether the node has a place in a fleet of this many nodes.
    pub fn is_among(&self, nodes: u32) -> bool {
        let share = self.share.get();
        share.nodes() >= nodes && share.rank().is_some()
    }

    /// Lets the clients begin.
    pub fn go(&self) {
        self.phase.send_replace(Phase::Driving);
    }

    /// Ends the node in order.
    pub fn stop(self) -> Result<Observations, Error> {
        self.end(Phase::Stopping)
    }

    /// Ends the node at once: its calls in flight are dropped, its leases and its place in the
    /// fleet are not given back.
    pub fn crash(self) -> Result<Observations, Error> {
        self.end(Phase::Crashed)
    }

    fn end(self, how: Phase) -> Result<Observations, Error> {
        if how == Phase::Stopping {
            self.settings.stop.store(true, Ordering::Relaxed);
        }
        self.phase.send_replace(how);
        let mut all = Observations::default();
        for worker in self.workers {
            all.absorb(worker.join().map_err(|_| Error::Panicked)??);
        }
        self.control.join().map_err(|_| Error::Panicked)??;
        Ok(all)
    }
}

impl NodeWorker {
    fn run(self, parts: &NodeParts) -> Result<Observations, Error> {
        let observed = Arc::new(Mutex::new(Observations::default()));
        // Dropped at the end of the statement, with all that was still in flight.
        runtime()?.block_on(self.drive(parts, &observed))?;
        let observed = std::mem::take(&mut *observed.lock());
        Ok(observed)
    }

    async fn drive(
        mut self,
        parts: &NodeParts,
        observed: &Arc<Mutex<Observations>>,
    ) -> Result<(), Error> {
        let (limiter, store) = limiter(parts)?;
        if let Some(store) = &store {
            recovery::first_contact(&parts.node, &**store, FIRST_CONTACT).await;
        }
        // A start that has failed does not listen any more.
        let _ = self.ready.send(store);
        drop(self.ready);
        let begun = until(&mut self.phase, |phase| phase != Phase::Waiting).await;
        if begun != Phase::Driving {
            return Ok(());
        }
        let rules = parts.rules.clone();
        let load = self.load;
        let limits = RouteLimits {
            limiter,
            rules,
            load,
            settings: parts.settings.clone(),
            observed: observed.clone(),
        };
        let clients = self.clients.start(&limits);
        if until(&mut self.phase, |phase| phase != Phase::Driving).await == Phase::Stopping {
            client::finish(clients, LAST_ANSWERS).await;
        }
        Ok(())
    }
}

/// Sends heartbeats and closes the breaker again.
fn control(
    parts: &NodeParts,
    stores: Vec<Arc<dyn Store>>,
    mut phase: watch::Receiver<Phase>,
) -> Result<(), Error> {
    runtime()?.block_on(async {
        let fleet = match &parts.backing {
            Backing::Redis(spec) => Some(Heartbeat::join(spec, parts.node.share.clone())?),
            Backing::Memory | Backing::Custom(_) => None,
        };
        let guard = recovery::run_control(parts.node.clone(), stores);
        let ended = tokio::select! {
            ended = until(&mut phase, |phase| phase > Phase::Driving) => ended,
            () = async { tokio::join!(guard, beat(fleet.as_ref()), sweep(&parts.node)); } => Phase::Stopping,
        };
        if let Some(fleet) = fleet.filter(|_| ended == Phase::Stopping) {
            fleet.leave().await;
        }
        Ok(())
    })
}

async fn beat(fleet: Option<&Heartbeat>) {
    if let Some(fleet) = fleet {
        fleet.run().await;
    }
}

async fn sweep(node: &node::Node) {
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now_us = clock::monotonic_micros();
        node.memory.sweep(now_us);
        node.sweep(now_us);
    }
}

/// A node whose owner is gone has crashed.
async fn until(phase: &mut watch::Receiver<Phase>, reached: impl Fn(Phase) -> bool) -> Phase {
    phase
        .wait_for(|phase| reached(*phase))
        .await
        .map_or(Phase::Crashed, |phase| *phase)
}

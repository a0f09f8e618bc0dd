//! One node of a fleet, in this process: what a gateway has of limits, without its HTTP.
//!
//! Guarantees that nodes share nothing but their store: each has its own buckets, breaker, heartbeat, threads and
//! connections, put together as `app` does. [`limiter`] is the one place that knows how.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tollgate_limiter::clock;
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::node::breaker::Breaker;
use tollgate_limiter::node::{self, recovery};
use tollgate_limiter::store::Store;
use tollgate_limiter::store::fleet_share::FleetShare;
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::redis::RedisStore;
use tollgate_limiter::store::redis::heartbeat::Heartbeat;
use tollgate_limiter::store::redis::spec::RedisSpec;

use crate::Error;
use crate::drive::{self, Demand, Orders};
use crate::meters::StoreCalls;
use crate::plan::Plan;
use crate::tally::Tally;

/// What the nodes share.
#[derive(Clone)]
pub enum Backing {
    /// Nothing: each keeps its own buckets.
    Memory,
    Redis(RedisSpec),
    /// A store of the caller's, made for each worker of a node: to see a judge find what is wrong with it.
    Custom(Arc<dyn Fn(u32) -> Arc<dyn Store> + Send + Sync>),
}

/// How a node ends, and whether it has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Phase {
    Waiting,
    Driving,
    /// Calls in flight end, the node takes its leave.
    Stopping,
    /// Nothing is waited for.
    Crashed,
}

/// A node at work.
pub struct Node {
    pub orders: Arc<Orders>,
    pub calls: StoreCalls,
    phase: watch::Sender<Phase>,
    workers: Vec<JoinHandle<Result<Tally, Error>>>,
    control: JoinHandle<Result<(), Error>>,
}

/// What the workers of a node have in common.
#[derive(Clone)]
struct Parts {
    index: u32,
    backing: Backing,
    limits: Arc<node::Node>,
    calls: StoreCalls,
    orders: Arc<Orders>,
}

/// What one worker does.
struct Work {
    demand: Arc<Demand>,
    clients: u32,
    seed: u64,
    phase: watch::Receiver<Phase>,
    ready: mpsc::Sender<Option<Arc<dyn Store>>>,
}

/// How long a start waits for the store.
const FIRST_CONTACT: Duration = Duration::from_secs(2);

/// How long answers may take after the end.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

const MAX_BUCKETS: usize = 1_000_000;

/// A worker's limiter, and its store if the node's breaker is to be closed by it.
fn limiter(parts: &Parts) -> Result<(Limiter, Option<Arc<dyn Store>>), Error> {
    let store: Arc<dyn Store> = match &parts.backing {
        Backing::Memory => return Ok((Limiter::local(parts.limits.memory.clone()), None)),
        Backing::Redis(spec) => Arc::new(RedisStore::connect(spec)?),
        Backing::Custom(make) => make(parts.index),
    };
    Ok((Limiter::of_node(parts.limits.clone(), store.clone()), Some(store)))
}

impl Node {
    /// Starts one, whose clients wait for [`Self::go`]. Returns once its workers have their connections.
    ///
    /// # Errors
    /// When a thread cannot be started, or the store is not there.
    pub fn start(plan: &Plan, backing: &Backing, demand: &Arc<Demand>, index: u32, seed: u64) -> Result<Self, Error> {
        let expected = match backing {
            Backing::Redis(spec) => spec.expected_nodes,
            Backing::Memory | Backing::Custom(_) => 1,
        };
        let memory = Arc::new(MemoryStore::new(MAX_BUCKETS));
        let share = Arc::new(FleetShare::expecting(expected));
        let calls = StoreCalls::default();
        let of_node = || node::Node::new(memory, Arc::new(Breaker::new()), share);
        let parts = Parts {
            index,
            backing: backing.clone(),
            limits: Arc::new(metrics::with_local_recorder(&calls, of_node)),
            calls,
            orders: Arc::new(Orders::new(plan.shape(&plan.limit)?)),
        };
        let (phase, waiting) = watch::channel(Phase::Waiting);
        let (ready, readies) = mpsc::channel();
        let mut rng = fastrand::Rng::with_seed(seed ^ u64::from(index) << 32);
        let workers = (0..plan.workers.get()).map(|_| {
            let (demand, phase, ready) = (demand.clone(), waiting.clone(), ready.clone());
            let work = Work { demand, clients: plan.clients.get(), seed: rng.u64(..), phase, ready };
            let parts = parts.clone();
            spawn("torture-worker", move || work.run(&parts))
        });
        let workers = workers.collect::<Result<Vec<_>, _>>()?;
        drop(ready);
        let stores: Vec<Option<Arc<dyn Store>>> = readies.into_iter().take(workers.len()).collect();
        let started = stores.len() == workers.len();
        let away = parts.limits.breaker.is_open();
        let (orders, calls) = (parts.orders.clone(), parts.calls.clone());
        let stores: Vec<Arc<dyn Store>> = stores.into_iter().flatten().collect();
        let control = spawn("torture-control", move || control(&parts, stores, waiting))?;
        let node = Self { orders, calls, phase, workers, control };
        if !started || away {
            node.end(Phase::Stopping)?;
            return Err(Error::Away);
        }
        Ok(node)
    }

    pub fn go(&self) {
        self.phase.send_replace(Phase::Driving);
    }

    /// Ends it in order.
    pub fn stop(self) -> Result<Tally, Error> {
        self.end(Phase::Stopping)
    }

    /// Ends it with what it is about to do undone: calls in flight, what it took ahead, its place in the fleet.
    pub fn crash(self) -> Result<Tally, Error> {
        self.end(Phase::Crashed)
    }

    fn end(self, how: Phase) -> Result<Tally, Error> {
        if how == Phase::Stopping {
            self.orders.stop.store(true, Ordering::Relaxed);
        }
        self.phase.send_replace(how);
        let mut all = Tally::default();
        for worker in self.workers {
            all.absorb(worker.join().map_err(|_| Error::Panicked)??);
        }
        self.control.join().map_err(|_| Error::Panicked)??;
        Ok(all)
    }
}

impl Work {
    fn run(self, parts: &Parts) -> Result<Tally, Error> {
        let tally = Arc::new(Mutex::new(Tally::default()));
        // Dropped at the end of the statement, with all that was still in flight.
        runtime()?.block_on(self.drive(parts, &tally))?;
        let tally = std::mem::take(&mut *tally.lock());
        Ok(tally)
    }

    async fn drive(mut self, parts: &Parts, tally: &Arc<Mutex<Tally>>) -> Result<(), Error> {
        let (limiter, store) = limiter(parts)?;
        if let Some(store) = &store {
            recovery::first_contact(&parts.limits.breaker, &**store, FIRST_CONTACT).await;
        }
        // Who does not listen any more has given up starting.
        let _ = self.ready.send(store);
        drop(self.ready);
        let begun = until(&mut self.phase, |phase| phase != Phase::Waiting).await;
        if begun != Phase::Driving {
            return Ok(());
        }
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let clients = (0..self.clients).map(|_| {
            let (demand, orders, tally) = (self.demand.clone(), parts.orders.clone(), tally.clone());
            tokio::spawn(drive::client(limiter.clone(), demand, orders, tally, rng.u64(..)))
        });
        let clients = clients.collect();
        if until(&mut self.phase, |phase| phase != Phase::Driving).await == Phase::Stopping {
            drive::finish(clients, LAST_ANSWERS).await;
        }
        Ok(())
    }
}

/// Heartbeats, and closing the breaker again.
fn control(parts: &Parts, stores: Vec<Arc<dyn Store>>, mut phase: watch::Receiver<Phase>) -> Result<(), Error> {
    runtime()?.block_on(async {
        let fleet = match &parts.backing {
            Backing::Redis(spec) => Some(Heartbeat::join(spec, parts.limits.share.clone())?),
            Backing::Memory | Backing::Custom(_) => None,
        };
        let guard = recovery::run_control(parts.limits.clone(), stores);
        let ended = tokio::select! {
            ended = until(&mut phase, |phase| phase > Phase::Driving) => ended,
            () = async { tokio::join!(guard, beat(fleet.as_ref()), sweep(&parts.limits)); } => Phase::Stopping,
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

async fn sweep(limits: &node::Node) {
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now_us = clock::monotonic_micros();
        limits.memory.sweep(now_us);
        limits.sweep(now_us);
    }
}

/// A node whose owner is gone has crashed.
async fn until(phase: &mut watch::Receiver<Phase>, reached: impl Fn(Phase) -> bool) -> Phase {
    phase.wait_for(|phase| reached(*phase)).await.map_or(Phase::Crashed, |phase| *phase)
}

/// A thread's own runtime.
pub fn runtime() -> Result<Runtime, Error> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, std::io::Error> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work)
}

//! The nodes of a simulated fleet, put together as the gateway does: workers that share a node, the
//! task that finds the store again, heartbeats, and a sweep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tollgate_limiter::algorithm::share::Share;
use tollgate_limiter::clock;
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::node::Node;
use tollgate_limiter::node::breaker::Breaker;
use tollgate_limiter::node::recovery::run_control;
use tollgate_limiter::store::Store;
use tollgate_limiter::store::fleet_share::{FleetShare, SilentNode};
use tollgate_limiter::store::memory::MemoryStore;

use super::schedule::{LossRates, NodePlan, Outage};
use super::server::{AUTONOMY, EPOCH_US, Fleet, FleetView, SILENCE, with_redis};
use super::wire::{NodeWires, WireCondition, WireStore};

/// How often a node announces itself.
const BEAT: Duration = Duration::from_millis(500);

/// A node that reaches the server again, or that it had lost, believes a lower count after so long.
pub const BELIEF: Duration = Duration::from_secs(3);

/// Less often than in a gateway: it goes through tables of many thousand sets.
const SWEEP: Duration = Duration::from_secs(25);

/// The longest that a node which leaves waits for its last claims.
const LAST_CLAIMS: Duration = Duration::from_secs(1);

/// A node of the fleet.
pub struct SimulatedNode {
    pub number: usize,
    pub state: Arc<Node>,
    pub workers: Vec<Limiter>,
    pub wires: Arc<NodeWires>,
    /// Its requests.
    pub requests: JoinSet<()>,
    background: JoinSet<()>,
}

impl SimulatedNode {
    /// A node that knows nothing yet, of a fleet of `expected`.
    pub fn start(number: usize, plan: &NodePlan, expected: usize, seed: u64) -> Self {
        let share = Arc::new(FleetShare::expecting(u32::try_from(expected).unwrap()));
        let memory = Arc::new(MemoryStore::new(1_000));
        // The wall clock, as far as windows go by it, is that of the run and not of the machine.
        let elapsed_us = with_redis(|redis| redis.elapsed_us());
        let wall_us = (EPOCH_US + elapsed_us).saturating_add_signed(plan.wall_offset * 1_000);
        memory.set_epoch(wall_us - clock::monotonic_micros());
        let condition = WireCondition {
            latency: plan.latency,
            floor: 0,
            outage: None,
            losses: LossRates::default(),
        };
        let view = FleetView {
            share: share.get(),
            silent: Vec::new(),
        };
        let wires = Arc::new(NodeWires {
            condition: Mutex::new(condition),
            view: Mutex::new(view),
            is_dead: AtomicBool::new(false),
        });
        let state = Arc::new(Node::new(memory, Arc::new(Breaker::new()), share));
        let stores: Vec<Arc<dyn Store>> = (0..plan.workers)
            .map(|worker: usize| {
                let random = fastrand::Rng::with_seed(
                    seed ^ ((number * 8 + worker + 1) as u64).wrapping_mul(0x9e37_79b9),
                );
                Arc::new(WireStore {
                    node: wires.clone(),
                    random: Mutex::new(random),
                }) as Arc<dyn Store>
            })
            .collect();
        let workers = stores
            .iter()
            .map(|store| Limiter::for_node(state.clone(), store.clone()))
            .collect();
        let mut background = JoinSet::new();
        background.spawn(run_control(state.clone(), stores));
        background.spawn(announce(number as u64, wires.clone(), state.clone()));
        background.spawn(sweep(state.clone()));
        Self {
            number,
            state,
            workers,
            wires,
            requests: JoinSet::new(),
            background,
        }
    }

    /// The process ends without notice, with all that it had under way.
    pub fn crash(mut self) {
        self.wires.is_dead.store(true, Ordering::Relaxed);
        self.requests.abort_all();
        self.background.abort_all();
    }

    /// The process ends in order, once its requests have.
    pub async fn leave(mut self) {
        while self.requests.join_next().await.is_some() {}
        for worker in &self.workers {
            worker.settled().await;
            let _ = timeout(LAST_CLAIMS, worker.leave_permits()).await;
        }
        self.background.abort_all();
        exchange(self.number as u64, &self.wires, true, &Fleet::new()).await;
        self.wires.is_dead.store(true, Ordering::Relaxed);
    }
}

async fn sweep(node: Arc<Node>) {
    loop {
        sleep(SWEEP).await;
        let now_us = clock::monotonic_micros();
        node.memory.sweep(now_us);
        node.sweep(now_us);
    }
}

/// Announces a node like the heartbeat in Redis, and learns its share from the answers.
async fn announce(number: u64, wires: Arc<NodeWires>, node: Arc<Node>) {
    let mut known = Fleet::new();
    let mut answered_at = clock::now();
    let mut unsettled_until = answered_at + BELIEF;
    loop {
        let begun_at = clock::now();
        let answer = exchange(number, &wires, false, &Fleet::new()).await;
        let answer = match answer {
            Some((false, _)) if !known.is_empty() => {
                let restored = exchange(number, &wires, false, &known).await;
                restored.map(|(_, fleet)| (false, fleet))
            }
            answer => answer,
        };
        match answer {
            Some((was_known, fleet)) => {
                let was_away = begun_at - answered_at >= SILENCE;
                answered_at = clock::now();
                if was_away || !was_known {
                    unsettled_until = answered_at + BELIEF;
                }
                let before = std::mem::replace(&mut known, fleet.clone());
                let mut share = Share::unplaced(node.share.get().nodes());
                if answered_at >= unsettled_until {
                    share = Share::WHOLE;
                } else {
                    for (other, heard_us) in before {
                        known.entry(other).or_insert(heard_us);
                    }
                }
                let nodes = u32::try_from(known.len()).unwrap();
                if nodes >= share.nodes() {
                    share = Share::new(nodes, rank(&known, number));
                }
                let mut silent = silent_nodes(&known, &fleet, number);
                if was_away {
                    silent.clear();
                }
                set(&wires, &node, share, silent);
            }
            None if answered_at.elapsed() >= AUTONOMY => {
                let share = node.share.get();
                set(&wires, &node, share, Vec::new());
            }
            None => {}
        }
        sleep(BEAT).await;
    }
}

fn rank(fleet: &Fleet, node: u64) -> u32 {
    u32::try_from(fleet.range(..node).count()).unwrap()
}

/// The nodes of `fleet` that are silent, with their ranks among the `known`.
fn silent_nodes(known: &Fleet, fleet: &Fleet, own: u64) -> Vec<SilentNode> {
    let elapsed_us = with_redis(|redis| redis.elapsed_us());
    let now_us = clock::monotonic_micros();
    let mut silent = Vec::new();
    for (node, heard_us) in fleet {
        let age = Duration::from_micros(elapsed_us - heard_us);
        if age >= SILENCE && *node != own {
            let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap();
            silent.push(SilentNode {
                rank: rank(known, *node),
                heard_us: now_us.saturating_sub(micros(age)),
                gone_us: now_us + micros(AUTONOMY.saturating_sub(age)),
            });
        }
    }
    silent
}

fn set(wires: &NodeWires, node: &Node, share: Share, silent: Vec<SilentNode>) {
    *wires.view.lock() = FleetView {
        share,
        silent: silent.clone(),
    };
    node.share.set(share, silent);
}

/// A beat, if the server answers.
async fn exchange(
    number: u64,
    wires: &NodeWires,
    leaves: bool,
    lost: &Fleet,
) -> Option<(bool, Fleet)> {
    let is_out = || wires.condition.lock().outage;
    let latency = wires.condition.lock().latency.0;
    if is_out() == Some(Outage::Refused) {
        return None;
    }
    sleep(Duration::from_millis(latency)).await;
    if is_out().is_some()
        || with_redis(|redis| redis.stalled_until.get()).is_some_and(|until| until > clock::now())
    {
        sleep(Duration::from_millis(500)).await;
        return None;
    }
    let told = with_redis(|redis| redis.beat(number, leaves, lost));
    sleep(Duration::from_millis(latency)).await;
    is_out().is_none().then_some(told)
}

//! A run of a schedule: requests and faults at their times, then a fleet that heals and rests.
//!
//! Guarantees that time is paused, and that a run begins at a time which every window of a schedule
//! divides, so that a seed repeats its run. The seeds of hash tables are the machine's: they decide
//! which keys the upkeep of permits visits first, and nothing else.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{advance, sleep, sleep_until};
use tollgate_limiter::algorithm::concurrency::{ConcurrencyLimit, PermitRequest, Scope};
use tollgate_limiter::clock::{self, Instant};
use tollgate_limiter::decide::check::{CheckPolicy, Checks, PermitCheck, TokenChecks};
use tollgate_limiter::decide::decision::DecidedBy;
use tollgate_limiter::limit::definition::OnOutage;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::node::permits::PermitNeed;
use tollgate_limiter::store::{BucketCharge, PermitClaim};

use super::fleet::SimulatedNode;
use super::schedule::{Fault, LimitNumbers, LossRates, MS, Outage, PlannedRequest, Schedule};
use super::server::with_redis;
use super::wire::TIMEOUT;

/// Runs begin at a multiple of this on the monotonic clock.
const ALIGNMENT: Duration = Duration::from_secs(1_000);

/// Debts are charged by so long after the last fault.
const SETTLING: Duration = Duration::from_secs(15);

/// All is as if nothing had happened by so long after that.
const REST: Duration = Duration::from_secs(60);

/// A decision, and when it was asked for and made, in microseconds since the run began.
#[derive(Clone, Debug)]
pub struct ObservedDecision {
    pub request: PlannedRequest,
    /// The node that decided: another than was planned, if that was not there.
    pub node: usize,
    pub sent_us: u64,
    pub answered_us: u64,
    pub granted: bool,
    pub decided_by: DecidedBy,
}

/// Permits that a request had.
#[derive(Clone, Copy, Debug)]
pub struct HeldPermit {
    pub demand: usize,
    pub from_us: u64,
    pub to_us: u64,
}

/// A key after all has settled.
#[derive(Clone, Copy, Debug)]
pub struct SettledKey {
    /// Tokens that the server has counted, of a limit that gives none back.
    pub counted: u64,
    /// Tokens of it that no node may know of.
    pub unheard: u64,
}

/// All that a run has shown.
#[derive(Default)]
pub struct Observed {
    pub decisions: Vec<ObservedDecision>,
    pub held: Vec<HeldPermit>,
    pub settled: BTreeMap<usize, SettledKey>,
    /// For each key, whether a request for all of its tokens was granted at the end, and by whom.
    pub last: BTreeMap<usize, (bool, DecidedBy)>,
    /// For each demand with permits: those in use on nodes at the end, and those that one more node
    /// can claim.
    pub permits_left: BTreeMap<usize, (u64, u64)>,
}

/// A run under way.
struct Run<'a> {
    schedule: &'a Schedule,
    started: Instant,
    nodes: Vec<SimulatedNode>,
    observed: Arc<Mutex<Observed>>,
}

/// Something planned.
enum Step<'a> {
    Request(&'a PlannedRequest),
    Begins(&'a Fault),
    Ends(&'a Fault),
    Joins(usize),
}

/// Notes when a request's permits end, however it ends.
struct HeldUntilDropped {
    observed: Arc<Mutex<Observed>>,
    started: Instant,
    demand: usize,
    from_us: u64,
}

impl Drop for HeldUntilDropped {
    fn drop(&mut self) {
        let Self {
            demand, from_us, ..
        } = *self;
        let to_us = since(self.started);
        self.observed.lock().held.push(HeldPermit {
            demand,
            from_us,
            to_us,
        });
    }
}

impl fmt::Display for ObservedDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            request,
            node,
            sent_us,
            answered_us,
            granted,
            decided_by,
        } = self;
        let demand = request.demand;
        let cost = request.cost;
        write!(
            f,
            "{sent_us:>8} {answered_us:>8} d{demand} n{node} cost {cost} {granted} {decided_by:?}"
        )
    }
}

fn since(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_micros()).unwrap()
}

pub fn key_name(key: usize) -> String {
    format!("k{key}")
}

/// Runs a schedule on a runtime of its own.
pub fn run(schedule: &Schedule) -> Observed {
    fastrand::seed(schedule.seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let alignment_us = u64::try_from(ALIGNMENT.as_micros()).unwrap();
        // Whole milliseconds: timers have no finer ones.
        advance(Duration::from_millis(
            (alignment_us - clock::monotonic_micros() % alignment_us) / MS,
        ))
        .await;
        with_redis(|redis| redis.start());
        let started = clock::now();
        let observed = Arc::new(Mutex::new(Observed::default()));
        let mut run = Run {
            schedule,
            started,
            nodes: Vec::new(),
            observed: observed.clone(),
        };
        run.drive().await;
        run.rest().await;
        drop(run);
        std::mem::take(&mut *observed.lock())
    })
}

impl Run<'_> {
    async fn drive(&mut self) {
        let schedule = self.schedule;
        let mut steps: Vec<(u64, Step<'_>)> = Vec::new();
        steps.extend(
            schedule
                .nodes
                .iter()
                .enumerate()
                .map(|(number, node)| (node.joins, Step::Joins(number))),
        );
        for fault in &schedule.faults {
            let (from, to) = fault.span();
            steps.push((from, Step::Begins(fault)));
            steps.push((to, Step::Ends(fault)));
        }
        steps.extend(
            schedule
                .requests
                .iter()
                .map(|request| (request.at, Step::Request(request))),
        );
        steps.sort_by_key(|(at, _)| *at);
        for (at, step) in steps {
            sleep_until(self.started + Duration::from_millis(at)).await;
            match step {
                Step::Request(request) => self.send(request),
                Step::Begins(fault) => self.begin(fault),
                Step::Ends(fault) => self.end(fault),
                Step::Joins(number) => self.join(number),
            }
        }
    }

    fn join(&mut self, number: usize) {
        let schedule = self.schedule;
        let node = SimulatedNode::start(
            number,
            &schedule.nodes[number],
            schedule.nodes.len(),
            schedule.seed,
        );
        self.nodes.push(node);
    }

    fn begin(&mut self, fault: &Fault) {
        match fault {
            Fault::Outage { nodes, how, .. } => self.set_outage(nodes, Some(*how)),
            Fault::Losses { nodes, rates, .. } => self.set_losses(nodes, *rates),
            Fault::Stall { to, .. } => {
                let until = self.started + Duration::from_millis(*to);
                with_redis(|redis| redis.stalled_until.set(Some(until)));
            }
            Fault::Slow { percent, .. } => {
                let floor = u64::try_from(TIMEOUT.as_millis()).unwrap() * percent / 100;
                self.nodes
                    .iter()
                    .for_each(|node| node.wires.condition.lock().floor = floor);
            }
            Fault::Foreign { key, .. } => with_redis(|redis| redis.write_foreign(&key_name(*key))),
            Fault::Emptied { .. } => with_redis(|redis| redis.empty()),
            Fault::ClockStep { by, .. } => with_redis(|redis| redis.step_clock(by * 1_000)),
            Fault::Crash { node, .. } => self
                .take_out(*node)
                .into_iter()
                .for_each(SimulatedNode::crash),
            Fault::Leave { node, .. } => {
                self.take_out(*node)
                    .into_iter()
                    .for_each(|node| drop(tokio::spawn(node.leave())));
            }
        }
    }

    fn end(&mut self, fault: &Fault) {
        match fault {
            Fault::Outage { nodes, .. } => self.set_outage(nodes, None),
            Fault::Losses { nodes, .. } => self.set_losses(nodes, LossRates::default()),
            Fault::Slow { .. } => self
                .nodes
                .iter()
                .for_each(|node| node.wires.condition.lock().floor = 0),
            _ => {}
        }
    }

    fn set_outage(&self, nodes: &[usize], outage: Option<Outage>) {
        let among = self
            .nodes
            .iter()
            .filter(|node| nodes.contains(&node.number));
        among.for_each(|node| node.wires.condition.lock().outage = outage);
    }

    fn set_losses(&self, nodes: &[usize], losses: LossRates) {
        let among = self
            .nodes
            .iter()
            .filter(|node| nodes.contains(&node.number));
        among.for_each(|node| node.wires.condition.lock().losses = losses);
    }

    fn take_out(&mut self, number: usize) -> Option<SimulatedNode> {
        let place = self.nodes.iter().position(|node| node.number == number)?;
        Some(self.nodes.remove(place))
    }

    fn send(&mut self, request: &PlannedRequest) {
        let planned = self
            .nodes
            .iter()
            .position(|node| node.number == request.node);
        if self.nodes.is_empty() {
            return;
        }
        let place = planned.unwrap_or(request.node % self.nodes.len());
        let checks = self.checks(request);
        let node = &mut self.nodes[place];
        let limiter = node.workers[request.worker % node.workers.len()].clone();
        let (observed, started, request, number) =
            (self.observed.clone(), self.started, *request, node.number);
        node.requests.spawn(async move {
            let sent_us = since(started);
            let decision = limiter.decide(&checks).wait().await;
            let answered_us = since(started);
            let granted = decision.granted;
            let decided_by = decision.decided_by;
            let made = ObservedDecision {
                request,
                node: number,
                sent_us,
                answered_us,
                granted,
                decided_by,
            };
            observed.lock().decisions.push(made);
            if granted && !checks.permits.is_empty() {
                let demand = request.demand;
                let _held = HeldUntilDropped {
                    observed,
                    started,
                    demand,
                    from_us: answered_us,
                };
                sleep(Duration::from_millis(request.lasts)).await;
            }
        });
    }

    fn checks(&self, request: &PlannedRequest) -> Checks {
        let demand = &self.schedule.demands[request.demand];
        let mut tokens = TokenChecks::default();
        for key in &demand.keys {
            tokens.push(
                self.charge(*key, request.at, request.cost),
                CheckPolicy::default(),
            );
        }
        Checks {
            tokens,
            permits: demand
                .permits
                .map(|(most, _): (u64, _)| PermitCheck {
                    need: PermitNeed {
                        key: permit_key(request.demand),
                        limit: ConcurrencyLimit::new(most, Scope::Fleet),
                        cost: 1,
                    },
                    largest_cost: 1,
                    on_outage: OnOutage::Local,
                })
                .into_iter()
                .collect(),
        }
    }

    fn charge(&self, key: usize, at: u64, cost: u64) -> BucketCharge {
        let plan = &self.schedule.keys[key];
        let quota = plan.at(at).quota(plan.largest_cost);
        BucketCharge {
            key: Key::from(key_name(key).as_str()),
            quota,
            cost,
            largest_cost: plan.largest_cost,
            local_us: u64::MAX,
        }
    }

    /// All faults end, and the fleet rests.
    async fn rest(&mut self) {
        let end = self.schedule.end();
        sleep_until(self.started + Duration::from_millis(end)).await;
        for node in &self.nodes {
            let mut condition = node.wires.condition.lock();
            (condition.outage, condition.losses, condition.floor) = (None, LossRates::default(), 0);
        }
        sleep(SETTLING).await;
        let is_kept = |key: usize| {
            self.schedule.keys[key].limit.is_ledger() && !self.schedule.is_foreign(key)
        };
        for (key, plan) in self
            .schedule
            .keys
            .iter()
            .enumerate()
            .filter(|(key, _)| is_kept(*key))
        {
            let charge = self.charge(key, end, 1);
            let (stored, unheard) =
                with_redis(|redis| (redis.stored(&charge), redis.unheard(&key_name(key))));
            let counted = match plan.limit {
                LimitNumbers::LedgerWindow { .. } => stored,
                _ => stored.div_ceil(charge.quota.charge(1)),
            };
            self.observed
                .lock()
                .settled
                .insert(key, SettledKey { counted, unheard });
        }
        sleep(REST).await;
        if self.nodes.is_empty() {
            self.join(0);
            sleep(Duration::from_secs(5)).await;
        }
        self.ask_for_all(end).await;
        self.count_permits();
    }

    async fn ask_for_all(&self, end: u64) {
        for (key, plan) in self
            .schedule
            .keys
            .iter()
            .enumerate()
            .filter(|(_, plan)| !plan.limit.is_ledger())
        {
            let node = &self.nodes[key % self.nodes.len()];
            let quota = plan.at(end).quota(plan.largest_cost);
            let all = quota
                .token_bucket()
                .map_or(quota.burst(), |bucket| bucket.tokens_left(0));
            let checks = Checks::from(self.charge(key, end, all));
            let decision = node.workers[0].decide(&checks).wait().await;
            self.observed
                .lock()
                .last
                .insert(key, (decision.granted, decision.decided_by));
        }
    }

    fn count_permits(&self) {
        for (demand, plan) in self.schedule.demands.iter().enumerate() {
            let Some((most, _)) = plan.permits else {
                continue;
            };
            let key = permit_key(demand);
            let in_use = self
                .nodes
                .iter()
                .map(|node| node.state.permits.in_use(&key))
                .sum();
            let claim = PermitRequest {
                wanted: most,
                demand: most,
                kept: 0,
                needed: 0,
                largest_cost: 1,
                turn: 1,
            };
            let claims = [PermitClaim {
                key,
                most,
                node: 7,
                claim,
            }];
            let own = with_redis(|redis| redis.claim(&claims, u64::MAX)).unwrap()[0].own;
            self.observed
                .lock()
                .permits_left
                .insert(demand, (in_use, own));
        }
    }
}

fn permit_key(demand: usize) -> Key {
    Key::from(format!("p{demand}").as_str())
}

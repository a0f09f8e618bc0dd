//! The nodes of a run, and the faults that its scenario inflicts on them over time.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use tollgate_limiter::clock;

use crate::drive::load::OfferedLoad;
use crate::drive::node::{Backing, DrivenNode};
use crate::error::Error;
use crate::faults::cluster::PausedMaster;
use crate::faults::interruption::{Interrupting, Interruption};
use crate::faults::proxy::{Fault, FaultyProxy};
use crate::faults::redis_url;
use crate::judge::Concession;
use crate::limit::TestedLimit;
use crate::plan::RunPlan;
use crate::report::observations::Observations;
use crate::scenario::Scenario;

/// Pause between two crashes.
const EVERY_US: u64 = 2_000_000;

/// Between two changes of the limit, and between the nodes that take it over.
const RELOAD_US: u64 = 1_000_000;
const STAGGER_US: u64 = 50_000;

/// The longest that a call is delayed: below the store's usual time limit, or it would be an
/// outage.
const LONGEST_DELAY: Duration = Duration::from_millis(8);

/// The distance to Redis of [`Scenario::Queue`].
const FEW_MILLIS: Duration = Duration::from_millis(3);

/// The part of the store's time limit that calls of [`Scenario::SlowStore`] take.
const SLOW: f64 = 0.85;

/// The longest until all nodes of a fleet have heard of each other.
const FIRST_BEATS: Duration = Duration::from_secs(30);

/// The nodes of a run with the proxies between them and Redis.
pub struct FaultyFleet<'a> {
    plan: &'a RunPlan,
    scenario: Scenario,
    load: Arc<OfferedLoad>,
    /// A slot for each node.
    slots: Vec<FleetSlot>,
    rng: Rng,
    next_us: u64,
    /// Observations of the nodes that crashed.
    crashed: Vec<Observations>,
    /// When the last one had crashed, in microseconds.
    crashed_us: Option<u64>,
    calls: (u64, u64),
    interrupting: Option<Interrupting>,
    paused: Option<PausedMaster>,
    /// Changes of the limit so far.
    reloads: u64,
    /// Nodes that have taken over the last one.
    reloaded: usize,
}

/// The place of a node in the fleet, with its way to the store. A node that crashes is replaced in
/// its place.
struct FleetSlot {
    node: Option<DrivenNode>,
    backing: Backing,
    proxy: Option<FaultyProxy>,
}

/// The result of a run.
pub struct FleetResult {
    pub observations: Observations,
    /// To the store: all, and those without an answer.
    pub calls: (u64, u64),
    pub concessions: Vec<Concession>,
    /// Interruptions so far, and the most often that a node's breaker opened.
    pub openings: (usize, u64),
    /// When the last node had crashed, in microseconds.
    pub crashed_us: Option<u64>,
}

impl<'a> FaultyFleet<'a> {
    /// Starts the nodes and waits until all of them are ready.
    pub fn start(
        plan: &'a RunPlan,
        scenario: Scenario,
        backing: &Backing,
        load: &Arc<OfferedLoad>,
    ) -> Result<Self, Error> {
        let mut fleet = Self {
            plan,
            scenario,
            load: load.clone(),
            slots: Vec::new(),
            rng: Rng::with_seed(plan.seed),
            next_us: 0,
            crashed: Vec::new(),
            crashed_us: None,
            calls: (0, 0),
            interrupting: Interruption::new(scenario, plan, backing).map(Interrupting::new),
            paused: None,
            reloads: 0,
            reloaded: 0,
        };
        for index in 0..plan.nodes.get() {
            let seed = fleet.rng.u64(..);
            let slot = FleetSlot::start(&fleet, backing, index, seed)?;
            fleet.slots.push(slot);
        }
        if let Backing::Redis(_) = backing {
            fleet.wait_until_all_are_known()?;
        }
        Ok(fleet)
    }

    /// Waits until the nodes have heard of each other: nobody holds anything back for a node that
    /// is cut off before.
    fn wait_until_all_are_known(&self) -> Result<(), Error> {
        let ends = clock::now() + FIRST_BEATS;
        let nodes = self.plan.nodes.get();
        while !self.nodes().all(|node| node.is_among(nodes)) {
            if clock::now() > ends {
                return Err(Error::NoRedis);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Pauses this master when the scenario interrupts.
    #[must_use]
    pub fn pausing(self, paused: Option<PausedMaster>) -> Self {
        Self { paused, ..self }
    }

    /// Lets the clients begin.
    pub fn go(&mut self, now_us: u64) {
        self.next_us = now_us
            + if self.scenario == Scenario::Reload {
                RELOAD_US
            } else {
                EVERY_US / 2
            };
        if let Some(interrupting) = &mut self.interrupting {
            interrupting.begin(now_us);
        }
        self.nodes().for_each(DrivenNode::go);
    }

    /// Inflicts the faults that are planned by `now_us`.
    pub fn step(&mut self, now_us: u64) -> Result<(), Error> {
        if let Some(interrupting) = &mut self.interrupting
            && let Some(fault) = interrupting.step(now_us)
        {
            interrupt(&self.slots, interrupting.nodes(), fault);
            if let Some(paused) = self.paused.as_mut().filter(|_| fault != Fault::None) {
                paused.pause(interrupting.lasts().0)?;
            }
        }
        match self.scenario {
            Scenario::Reload => self.reload(now_us),
            Scenario::Crash if now_us >= self.next_us => {
                self.next_us += EVERY_US;
                self.crash()
            }
            _ => Ok(()),
        }
    }

    /// Calls to the store so far: all, and those without an answer.
    pub fn calls(&self) -> (u64, u64) {
        self.nodes().fold(self.calls, |(all, failed), node| {
            (all + node.calls.all(), failed + node.calls.failed())
        })
    }

    /// Ends all nodes in order.
    pub fn stop(mut self, now_us: u64) -> Result<FleetResult, Error> {
        interrupt(&self.slots, u32::MAX, Fault::None);
        let interruptions = self
            .interrupting
            .as_ref()
            .map_or(0, |interrupting| interrupting.lasts().1);
        let openings = (
            interruptions,
            self.nodes()
                .map(|node| node.calls.opened())
                .max()
                .unwrap_or_default(),
        );
        let concessions = self
            .interrupting
            .take()
            .map_or_else(Vec::new, |interrupting| interrupting.end(now_us));
        let mut observations = Observations::default();
        let nodes: Vec<DrivenNode> = self
            .slots
            .iter_mut()
            .filter_map(|slot| slot.node.take())
            .collect();
        for node in &nodes {
            node.settings
                .stop
                .store(true, std::sync::atomic::Ordering::Relaxed);
        }
        for node in nodes {
            let calls = node.calls.clone();
            observations.absorb(node.stop()?);
            self.calls = (self.calls.0 + calls.all(), self.calls.1 + calls.failed());
        }
        self.crashed
            .into_iter()
            .for_each(|crashed| observations.absorb(crashed));
        Ok(FleetResult {
            observations,
            calls: self.calls,
            concessions,
            openings,
            crashed_us: self.crashed_us,
        })
    }

    fn nodes(&self) -> impl Iterator<Item = &DrivenNode> {
        self.slots.iter().filter_map(|slot| slot.node.as_ref())
    }

    /// Crashes a random node in the middle of its calls, and starts one with no memory in its
    /// place, unless it is the only one to crash.
    fn crash(&mut self) -> Result<(), Error> {
        let index = self.rng.usize(0..self.slots.len());
        let seed = self.rng.u64(..);
        let slot = &mut self.slots[index];
        if let Some(node) = slot.node.take() {
            let calls = node.calls.clone();
            self.crashed.push(node.crash()?);
            self.calls = (self.calls.0 + calls.all(), self.calls.1 + calls.failed());
        }
        self.crashed_us = Some(clock::monotonic_micros());
        if self.plan.has_fresh_keys() {
            self.next_us = u64::MAX;
            return Ok(());
        }
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let node = DrivenNode::start(self.plan, &slot.backing, &self.load, index, seed)?;
        node.go();
        slot.node = Some(node);
        Ok(())
    }

    /// Halves the limit on one node after the other, then restores it in the same way.
    fn reload(&mut self, now_us: u64) -> Result<(), Error> {
        if now_us < self.next_us {
            return Ok(());
        }
        let half = halved(&self.plan.limit, self.plan.cost.get());
        let limit = if self.reloads.is_multiple_of(2) {
            half
        } else {
            self.plan.limit
        };
        if let Some(node) = self
            .slots
            .get(self.reloaded)
            .and_then(|slot| slot.node.as_ref())
        {
            node.settings
                .limit
                .store(Arc::new(self.plan.quota(&limit)?));
        }
        self.reloaded += 1;
        if self.reloaded < self.slots.len() {
            self.next_us += STAGGER_US;
        } else {
            self.reloads += 1;
            self.reloaded = 0;
            self.next_us += RELOAD_US;
        }
        Ok(())
    }
}

/// Puts `fault` between Redis and the first `nodes`.
fn interrupt(slots: &[FleetSlot], nodes: u32, fault: Fault) {
    let proxies = slots
        .iter()
        .take(nodes as usize)
        .filter_map(|slot| slot.proxy.as_ref());
    proxies.for_each(|proxy| proxy.set(fault));
}

/// Half of rate and burst, but with room for a request.
fn halved(limit: &TestedLimit, cost: u64) -> TestedLimit {
    let half = limit.divided_by(std::num::NonZeroU64::MIN.saturating_add(1));
    let burst = std::num::NonZeroU64::new(cost).map_or(half.burst, |cost| half.burst.max(cost));
    TestedLimit { burst, ..half }
}

impl FleetSlot {
    fn start(
        fleet: &FaultyFleet<'_>,
        backing: &Backing,
        index: u32,
        seed: u64,
    ) -> Result<Self, Error> {
        let FaultyFleet {
            plan,
            scenario,
            load,
            ..
        } = fleet;
        let timeout = if let Backing::Redis(spec) = backing {
            spec.timeout
        } else {
            Duration::ZERO
        };
        let fault = match scenario {
            Scenario::Skew => Fault::Distance(LONGEST_DELAY * index / plan.nodes.get()),
            Scenario::Reorder => Fault::Delay(LONGEST_DELAY),
            Scenario::Queue => Fault::Distance(FEW_MILLIS),
            Scenario::SlowStore => Fault::Distance(timeout.mul_f64(SLOW)),
            // From the beginning, the nodes would not start.
            _ => Fault::None,
        };
        let (backing, proxy) = match backing {
            Backing::Redis(spec) if scenario.needs_proxy() => {
                let (proxy, spec) = redis_url::through_proxy(spec, fault, seed)?;
                (Backing::Redis(spec), Some(proxy))
            }
            other => (other.clone(), None),
        };
        let node = DrivenNode::start(plan, &backing, load, index, seed)?;
        Ok(Self {
            node: Some(node),
            backing,
            proxy,
        })
    }
}

//! What befalls the nodes of a run, and when.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use crate::Error;
use crate::drive::Demand;
use crate::judge::Concession;
use crate::link::{Fault, Link};
use crate::node::{Backing, Node};
use crate::plan::{Limit, Plan, Scenario};
use crate::tally::Tally;

/// Pause between two faults.
const EVERY_US: u64 = 2_000_000;

/// How long Redis is out of reach, each time.
const AWAY_US: u64 = 700_000;

/// Until a node knows that Redis is back: a round of probes, a connection, and its answer.
const RECOVERY_US: u64 = 1_000_000;

/// Between two changes of the limit, and between the nodes that take it over.
const RELOAD_US: u64 = 1_000_000;
const STAGGER_US: u64 = 50_000;

/// Extra tokens of an outage, in bursts: Redis refills while the nodes admit their shares, and does not learn of those.
const BURSTS_PER_OUTAGE: u64 = 1;

/// The longest that a call is delayed: below the store's usual time limit, or it would be an outage.
const LONGEST_DELAY: Duration = Duration::from_millis(8);

/// The nodes of a run and what is between them and Redis.
pub struct Stage<'a> {
    plan: &'a Plan,
    scenario: Scenario,
    demand: Arc<Demand>,
    /// One per node, with its way to the store.
    sites: Vec<Site>,
    rng: Rng,
    next_us: u64,
    /// What crashed nodes had seen.
    lost: Vec<Tally>,
    calls: (u64, u64),
    away_since: Option<u64>,
    concessions: Vec<Concession>,
    /// Changes of the limit so far.
    reloads: u64,
    /// Nodes that have taken over the last one.
    reloaded: usize,
}

struct Site {
    node: Option<Node>,
    backing: Backing,
    link: Option<Link>,
}

/// What is left of a stage.
pub struct Curtain {
    pub tally: Tally,
    /// To the store: all, and those without an answer.
    pub calls: (u64, u64),
    pub concessions: Vec<Concession>,
}

impl<'a> Stage<'a> {
    /// Starts the nodes and waits until all of them are ready.
    pub fn set(plan: &'a Plan, scenario: Scenario, backing: &Backing, demand: &Arc<Demand>) -> Result<Self, Error> {
        let mut rng = Rng::with_seed(plan.seed);
        let mut sites = Vec::new();
        for index in 0..plan.nodes.get() {
            let site = Site::build(plan, scenario, backing, demand, index, rng.u64(..))?;
            sites.push(site);
        }
        Ok(Self {
            plan,
            scenario,
            demand: demand.clone(),
            sites,
            rng,
            next_us: 0,
            lost: Vec::new(),
            calls: (0, 0),
            away_since: None,
            concessions: Vec::new(),
            reloads: 0,
            reloaded: 0,
        })
    }

    /// Lets the clients begin.
    pub fn open(&mut self, now_us: u64) {
        self.next_us = now_us + if self.scenario == Scenario::Reload { RELOAD_US } else { EVERY_US / 2 };
        self.nodes().for_each(Node::go);
    }

    /// Does what is due by `now_us`.
    pub fn step(&mut self, now_us: u64) -> Result<(), Error> {
        if let Some(since) = self.away_since.filter(|since| now_us >= since + AWAY_US) {
            self.come_back(since, now_us);
        }
        if self.scenario == Scenario::Reload {
            self.reload(now_us)?;
        }
        if now_us < self.next_us {
            return Ok(());
        }
        self.next_us += EVERY_US;
        match self.scenario {
            Scenario::Crash => self.crash(),
            Scenario::Flap => {
                self.go_away(now_us);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Store calls so far.
    pub fn calls(&self) -> (u64, u64) {
        self.nodes().fold(self.calls, |(all, failed), node| (all + node.calls.all(), failed + node.calls.failed()))
    }

    /// Ends all nodes in order.
    pub fn close(mut self, now_us: u64) -> Result<Curtain, Error> {
        if let Some(since) = self.away_since {
            self.come_back(since, now_us);
        }
        let mut tally = Tally::default();
        let nodes: Vec<Node> = self.sites.iter_mut().filter_map(|site| site.node.take()).collect();
        for node in &nodes {
            node.orders.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        for node in nodes {
            let calls = node.calls.clone();
            tally.absorb(node.stop()?);
            self.calls = (self.calls.0 + calls.all(), self.calls.1 + calls.failed());
        }
        self.lost.into_iter().for_each(|lost| tally.absorb(lost));
        Ok(Curtain { tally, calls: self.calls, concessions: self.concessions })
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.sites.iter().filter_map(|site| site.node.as_ref())
    }

    /// Any node ends in the middle of its calls, and one with no memory takes its place.
    fn crash(&mut self) -> Result<(), Error> {
        let index = self.rng.usize(0..self.sites.len());
        let seed = self.rng.u64(..);
        let site = &mut self.sites[index];
        if let Some(node) = site.node.take() {
            let calls = node.calls.clone();
            self.lost.push(node.crash()?);
            self.calls = (self.calls.0 + calls.all(), self.calls.1 + calls.failed());
        }
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let node = Node::start(self.plan, &site.backing, &self.demand, index, seed)?;
        node.go();
        site.node = Some(node);
        Ok(())
    }

    /// In turns by closing connections and by silence.
    fn go_away(&mut self, now_us: u64) {
        let fault = if self.concessions.len().is_multiple_of(2) { Fault::Cut } else { Fault::Silence };
        self.sites.iter().filter_map(|site| site.link.as_ref()).for_each(|link| link.set(fault));
        self.away_since = Some(now_us);
    }

    fn come_back(&mut self, since: u64, now_us: u64) {
        self.sites.iter().filter_map(|site| site.link.as_ref()).for_each(|link| link.set(Fault::None));
        self.away_since = None;
        self.concessions.push(Concession {
            from_us: since,
            to_us: now_us + RECOVERY_US,
            tokens: self.plan.limit.burst.get() * BURSTS_PER_OUTAGE,
        });
    }

    /// One node after the other takes over the half of the limit, then the whole of it again.
    fn reload(&mut self, now_us: u64) -> Result<(), Error> {
        if now_us < self.next_us {
            return Ok(());
        }
        let half = halved(&self.plan.limit, self.plan.cost.get());
        let limit = if self.reloads.is_multiple_of(2) { half } else { self.plan.limit };
        if let Some(node) = self.sites.get(self.reloaded).and_then(|site| site.node.as_ref()) {
            node.orders.shape.store(Arc::new(self.plan.shape(&limit)?));
        }
        self.reloaded += 1;
        if self.reloaded < self.sites.len() {
            self.next_us += STAGGER_US;
        } else {
            self.reloads += 1;
            self.reloaded = 0;
            self.next_us += RELOAD_US;
        }
        Ok(())
    }
}

/// Half of rate and burst; but a request still fits.
fn halved(limit: &Limit, cost: u64) -> Limit {
    let half = limit.divided_by(std::num::NonZeroU64::MIN.saturating_add(1));
    let burst = std::num::NonZeroU64::new(cost).map_or(half.burst, |cost| half.burst.max(cost));
    Limit { burst, ..half }
}

impl Site {
    fn build(
        plan: &Plan,
        scenario: Scenario,
        backing: &Backing,
        demand: &Arc<Demand>,
        index: u32,
        seed: u64,
    ) -> Result<Self, Error> {
        let fault = match scenario {
            Scenario::Skew => Fault::Distance(LONGEST_DELAY * index / plan.nodes.get()),
            Scenario::Reorder => Fault::Delay(LONGEST_DELAY),
            _ => Fault::None,
        };
        let (backing, link) = match backing {
            Backing::Redis(spec) if scenario.needs_link() => {
                let (link, spec) = crate::address::through_link(spec, fault, seed)?;
                (Backing::Redis(spec), Some(link))
            }
            other => (other.clone(), None),
        };
        let node = Node::start(plan, &backing, demand, index, seed)?;
        Ok(Self { node: Some(node), backing, link })
    }
}

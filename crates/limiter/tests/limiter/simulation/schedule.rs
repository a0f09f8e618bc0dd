//! The events of a run: nodes, limits, demand and faults.
//!
//! Guarantees that parts of a schedule can be left out, to see what a failure needs.

use std::fmt;

use tollgate_limiter::algorithm::calendar::Period;
use tollgate_limiter::algorithm::quota::Quota;
use tollgate_limiter::algorithm::window::Window;
use tollgate_testing::{HOUR, shape};

/// Microseconds in a millisecond: everything in a schedule is in milliseconds.
pub const MS: u64 = 1_000;

/// A run, in full.
#[derive(Clone)]
pub struct Schedule {
    pub seed: u64,
    pub length: u64,
    pub nodes: Vec<NodePlan>,
    /// A key each.
    pub keys: Vec<KeyPlan>,
    pub demands: Vec<Demand>,
    pub faults: Vec<Fault>,
    pub requests: Vec<PlannedRequest>,
}

/// A node of the fleet.
#[derive(Clone, Debug)]
pub struct NodePlan {
    pub workers: usize,
    /// Of one way.
    pub latency: (u64, u64),
    /// When the node joins; 0: it is there from the start.
    pub joins: u64,
    /// How far its wall clock is off.
    pub wall_offset: i64,
}

/// A limit, and its only key.
#[derive(Clone, Debug)]
pub struct KeyPlan {
    pub limit: LimitNumbers,
    /// From a time on, the limit has other numbers.
    pub changed: Option<(u64, LimitNumbers)>,
    pub largest_cost: u64,
}

/// A limit's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitNumbers {
    Bucket {
        tokens: u64,
        period: u64,
        burst: u64,
        leased: bool,
    },
    Fixed {
        quota: u64,
        width: u64,
    },
    Sliding {
        quota: u64,
        width: u64,
    },
    /// A bucket that does not fill during a run: all that is charged to it stays visible.
    Ledger {
        tokens: u64,
    },
    LedgerWindow {
        tokens: u64,
    },
}

/// Requests of one kind.
#[derive(Clone, Debug)]
pub struct Demand {
    pub keys: Vec<usize>,
    /// Requests in flight at most, and how long each lasts.
    pub permits: Option<(u64, (u64, u64))>,
    pub pattern: Pattern,
    pub from: u64,
    pub to: u64,
    /// All requests go there. `None`: anywhere.
    pub node: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
pub enum Pattern {
    /// A request each so many milliseconds.
    Steady { every: u64 },
    /// This many at once.
    Bursts { every: u64, size: u64 },
}

/// The way in which a node's connections are out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    Refused,
    Silent,
}

/// Calls among a hundred that are lost on their way, and replies that are lost on their way back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossRates {
    pub requests: u32,
    pub replies: u32,
}

#[derive(Clone, Debug)]
pub enum Fault {
    Outage {
        nodes: Vec<usize>,
        how: Outage,
        from: u64,
        to: u64,
    },
    Losses {
        nodes: Vec<usize>,
        rates: LossRates,
        from: u64,
        to: u64,
    },
    /// The server carries out nothing.
    Stall {
        from: u64,
        to: u64,
    },
    /// Calls take this part of the time limit, in percent.
    Slow {
        percent: u64,
        from: u64,
        to: u64,
    },
    /// Another program takes a key.
    Foreign {
        key: usize,
        at: u64,
    },
    Emptied {
        at: u64,
    },
    ClockStep {
        at: u64,
        by: i64,
    },
    Crash {
        node: usize,
        at: u64,
    },
    Leave {
        node: usize,
        at: u64,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct PlannedRequest {
    pub at: u64,
    pub demand: usize,
    pub node: usize,
    pub worker: usize,
    pub cost: u64,
    /// How long it lasts once it is admitted.
    pub lasts: u64,
}

impl LimitNumbers {
    pub fn quota(self, largest_cost: u64) -> Quota {
        match self {
            Self::Bucket {
                tokens,
                period,
                burst,
                leased: false,
            } => shape(tokens, period * MS, burst).into(),
            Self::Bucket {
                tokens,
                period,
                burst,
                leased: true,
            } => shape(tokens, period * MS, burst)
                .leased(largest_cost)
                .into(),
            Self::Fixed { quota, width } => Window::fixed(quota, Period::every(width * MS))
                .unwrap()
                .into(),
            Self::Sliding { quota, width } => Window::sliding(quota, width * MS).unwrap().into(),
            Self::Ledger { tokens } => shape(tokens, 2_000 * HOUR, tokens).into(),
            Self::LedgerWindow { tokens } => {
                Window::fixed(tokens, Period::every(HOUR)).unwrap().into()
            }
        }
    }

    pub fn is_ledger(self) -> bool {
        matches!(self, Self::Ledger { .. } | Self::LedgerWindow { .. })
    }

    /// Tokens per period, in milliseconds, and burst.
    pub fn rate(self) -> (u64, u64, u64) {
        match self {
            Self::Bucket {
                tokens,
                period,
                burst,
                ..
            } => (tokens, period, burst),
            Self::Fixed { quota, width } | Self::Sliding { quota, width } => (quota, width, quota),
            Self::Ledger { tokens } => (tokens, 2_000 * HOUR / MS, tokens),
            Self::LedgerWindow { tokens } => (tokens, HOUR / MS, tokens),
        }
    }
}

impl KeyPlan {
    /// The numbers of the limit at a time.
    pub fn at(&self, at: u64) -> LimitNumbers {
        self.changed
            .filter(|(from, _)| at >= *from)
            .map_or(self.limit, |(_, limit)| limit)
    }

    /// All numbers that the limit has.
    pub fn versions(&self) -> impl Iterator<Item = LimitNumbers> {
        [Some(self.limit), self.changed.map(|(_, limit)| limit)]
            .into_iter()
            .flatten()
    }
}

impl Fault {
    /// When it begins and ends.
    pub fn span(&self) -> (u64, u64) {
        match *self {
            Self::Outage { from, to, .. }
            | Self::Losses { from, to, .. }
            | Self::Stall { from, to }
            | Self::Slow { from, to, .. } => (from, to),
            Self::Foreign { at, .. }
            | Self::Emptied { at }
            | Self::ClockStep { at, .. }
            | Self::Crash { at, .. }
            | Self::Leave { at, .. } => (at, at),
        }
    }
}

impl Schedule {
    /// This schedule without the parts that `names` lists: `f0` is its first fault, `d1` its second
    /// demand, `c2` the change of its third key.
    pub fn without(mut self, names: &str) -> Self {
        let is_out = |letter: char, number: usize| {
            names
                .split(',')
                .any(|name| name.trim() == format!("{letter}{number}"))
        };
        let mut number = 0..;
        self.faults
            .retain(|_| !is_out('f', number.next().unwrap_or_default()));
        self.requests.retain(|request| !is_out('d', request.demand));
        self.keys
            .iter_mut()
            .enumerate()
            .filter(|(key, _)| is_out('c', *key))
            .for_each(|(_, key)| key.changed = None);
        self
    }

    /// Whether another program takes the key.
    pub fn is_foreign(&self, of: usize) -> bool {
        self.faults
            .iter()
            .any(|fault| matches!(fault, Fault::Foreign { key, .. } if *key == of))
    }

    /// The last planned time.
    pub fn end(&self) -> u64 {
        self.faults
            .iter()
            .map(|fault| fault.span().1)
            .chain([self.length])
            .max()
            .unwrap_or_default()
    }
}

/// Without the single requests.
impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}, {} ms, {} requests",
            self.seed,
            self.length,
            self.requests.len()
        )?;
        self.nodes
            .iter()
            .enumerate()
            .try_for_each(|(number, node)| writeln!(f, "  n{number} {node:?}"))?;
        self.keys
            .iter()
            .enumerate()
            .try_for_each(|(number, key)| writeln!(f, "  k{number} {key:?}"))?;
        self.demands
            .iter()
            .enumerate()
            .try_for_each(|(number, demand)| writeln!(f, "  d{number} {demand:?}"))?;
        self.faults
            .iter()
            .enumerate()
            .try_for_each(|(number, fault)| writeln!(f, "  f{number} {fault:?}"))
    }
}

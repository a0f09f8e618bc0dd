//! What a run does: the limit, the demand, the faults.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use crate::rate_limit::algorithm::Rate;
use crate::rate_limit::bucket::{Shape, ShapeError};

/// Keys of [`Scenario::ManyKeys`], unless the plan has more than one.
const MANY_KEYS: u32 = 100_000;

/// The limit under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub rate: Rate,
    pub burst: NonZeroU64,
}

/// One run, whatever the scenario.
#[derive(Clone, Debug)]
pub struct Plan {
    pub limit: Limit,
    /// Tokens per request.
    pub cost: NonZeroU64,
    pub keys: NonZeroU32,
    /// Requests offered, as a multiple of what the limit lets through.
    pub demand: f64,
    pub duration: Duration,
    /// Nodes, each with memory, breaker, heartbeat and connections of its own.
    pub nodes: NonZeroU32,
    /// Threads of each node.
    pub workers: NonZeroU32,
    /// Requests in flight on each of them.
    pub clients: NonZeroU32,
    pub seed: u64,
}

/// What happens meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scenario {
    /// Nothing but the demand.
    Steady,
    /// One key, as fast as it goes.
    HotKey,
    /// 100 000 keys, some of them much in demand, with a thousandth of the limit each.
    ManyKeys,
    /// Each node is further from Redis than the one before, one way only.
    Skew,
    /// Every call to Redis takes its own time, so that calls overtake each other.
    Reorder,
    /// Nodes end in the middle of what they do, and start anew.
    Crash,
    /// Redis is out of reach again and again.
    Flap,
    /// The limit is halved and doubled, on one node after the other.
    Reload,
}

impl Limit {
    /// `tokens` per second.
    #[cfg(test)]
    pub fn per_second(tokens: u64, burst: u64) -> Self {
        let nonzero = |number| NonZeroU64::new(number).unwrap();
        Self { rate: Rate { tokens: nonzero(tokens), period_us: nonzero(1_000_000) }, burst: nonzero(burst) }
    }

    /// Tokens per period.
    pub fn tokens(&self) -> u128 {
        self.rate.tokens.get().into()
    }

    /// The period in microseconds.
    pub fn period(&self) -> u128 {
        self.rate.period_us.get().into()
    }

    /// Whole tokens that a window of `length_us` may admit.
    pub fn bound(&self, length_us: u64) -> u64 {
        let refilled = u128::from(length_us) * self.tokens() / self.period();
        u64::try_from(refilled).unwrap_or(u64::MAX).saturating_add(self.burst.get())
    }

    pub fn per_second_f64(&self) -> f64 {
        self.rate.tokens.get() as f64 * 1e6 / self.rate.period_us.get() as f64
    }

    /// As the limiter takes it.
    ///
    /// # Errors
    /// When it is out of the limiter's bounds.
    pub fn shape(&self) -> Result<Shape, ShapeError> {
        Shape::new(self.rate.tokens, self.rate.period_us, self.burst)
    }

    /// A part of rate and burst, at least one token each.
    pub fn divided_by(&self, parts: NonZeroU64) -> Self {
        let part = |number: NonZeroU64| NonZeroU64::new(number.get() / parts).unwrap_or(NonZeroU64::MIN);
        Self { rate: Rate { tokens: part(self.rate.tokens), ..self.rate }, burst: part(self.burst) }
    }
}

impl Scenario {
    pub const ALL: [Self; 8] =
        [Self::Steady, Self::HotKey, Self::ManyKeys, Self::Skew, Self::Reorder, Self::Crash, Self::Flap, Self::Reload];

    pub fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::HotKey => "hot-key",
            Self::ManyKeys => "many-keys",
            Self::Skew => "skew",
            Self::Reorder => "reorder",
            Self::Crash => "crash",
            Self::Flap => "flap",
            Self::Reload => "reload",
        }
    }

    /// It is about how Redis is reached, or about buckets that outlive a node.
    pub fn needs_redis(self) -> bool {
        matches!(self, Self::Skew | Self::Reorder | Self::Crash | Self::Flap)
    }

    /// A limiter that is whole must also let through what is due. Not so when tokens die with a node, shares of an outage are
    /// smaller than the demand on them, or the limit changes.
    pub fn owes(self) -> bool {
        !matches!(self, Self::Crash | Self::Flap | Self::Reload)
    }

    /// `plan` as this scenario runs it.
    pub fn adapt(self, plan: &Plan) -> Plan {
        let plan = plan.clone();
        match self {
            Self::HotKey => Plan { keys: NonZeroU32::MIN, demand: f64::INFINITY, ..plan },
            Self::ManyKeys => {
                let many = NonZeroU32::new(MANY_KEYS).unwrap_or(NonZeroU32::MIN);
                let keys = if plan.keys.get() > 1 { plan.keys } else { many };
                let thousand = NonZeroU64::new(1_000).unwrap_or(NonZeroU64::MIN);
                let small = plan.limit.divided_by(thousand);
                // A request must fit what one key may have.
                let burst = small.burst.max(plan.cost);
                Plan { keys, demand: f64::INFINITY, limit: Limit { burst, ..small }, ..plan }
            }
            _ => plan,
        }
    }
}

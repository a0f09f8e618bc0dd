//! What a run does: the limit, the demand, the faults.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use tollgate_limiter::algorithm::token_bucket::{TokenBucket, TokenBucketError};
use tollgate_limiter::limit::algorithm::Rate;
use tollgate_limiter::limit::definition::Consistency;

/// The longest that a token taken ahead may live, and the part of the burst that leases may cost at most: as documented, and
/// not as the limiter computes it.
const LEASE_US: u64 = 50_000;
const LEASE_PRICE: u64 = 4;

/// Requests that a burst must hold for its limit to know leases, as documented.
const LEASABLE: u64 = 40;

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
    pub consistency: Consistency,
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
    /// Each node is further from Redis than the one before, one way only. For redis://host:port.
    Skew,
    /// Every call to Redis takes its own time, so that calls overtake each other. For redis://host:port.
    Reorder,
    /// Nodes end in the middle of what they do, and start anew.
    Crash,
    /// Redis is out of reach again and again. For redis://host:port.
    Flap,
    /// The limit is halved and doubled, on one node after the other.
    Reload,
}

impl Plan {
    /// `limit`, one of this plan's, as the limiter takes it.
    ///
    /// # Errors
    /// When it is out of the limiter's bounds.
    pub fn shape(&self, limit: &Limit) -> Result<TokenBucket, TokenBucketError> {
        let shape = TokenBucket::new(limit.rate.tokens, limit.rate.period_us, limit.burst)?;
        Ok(match self.consistency {
            Consistency::Exact => shape,
            Consistency::Leased => shape.leased(self.cost.get()),
        })
    }

    /// As it is configured.
    pub fn consistency_word(&self) -> &'static str {
        match self.consistency {
            Consistency::Exact => "exact",
            Consistency::Leased => "leased",
        }
    }

    /// What a limiter owes: the limit itself or, where tokens are leased, one with a burst that is smaller by what flows in
    /// while a leased token lives. What is never over is judged by the limit itself.
    pub fn owed(&self) -> Limit {
        let flowing = Limit { burst: NonZeroU64::MIN, ..self.limit }.bound(LEASE_US);
        let leasable = self.limit.burst.get() >= self.cost.get().saturating_mul(LEASABLE);
        let price = match self.consistency {
            Consistency::Leased if leasable => flowing.min(self.limit.burst.get() / LEASE_PRICE),
            _ => 0,
        };
        let burst = NonZeroU64::new(self.limit.burst.get() - price).unwrap_or(NonZeroU64::MIN);
        Limit { burst, ..self.limit }
    }
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

    /// A part of rate and burst, at least one token each.
    pub fn divided_by(&self, parts: NonZeroU64) -> Self {
        let part = |number: NonZeroU64| NonZeroU64::new(number.get() / parts).unwrap_or(NonZeroU64::MIN);
        Self { rate: Rate { tokens: part(self.rate.tokens), ..self.rate }, burst: part(self.burst) }
    }
}

/// As a rate and a burst are written.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tokens, seconds) = (self.rate.tokens, self.rate.period_us.get() as f64 / 1e6);
        match self.rate.period_us.get() {
            1_000_000 => write!(f, "{tokens}/s, burst {}", self.burst),
            _ => write!(f, "{tokens}/{seconds}s, burst {}", self.burst),
        }
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

    /// It stands between the nodes and Redis.
    pub fn needs_link(self) -> bool {
        matches!(self, Self::Skew | Self::Reorder | Self::Flap)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(limit: Limit, consistency: Consistency) -> Plan {
        let few = NonZeroU32::MIN;
        Plan {
            limit,
            consistency,
            cost: NonZeroU64::MIN,
            keys: few,
            demand: 3.0,
            duration: Duration::from_secs(1),
            nodes: few,
            workers: few,
            clients: few,
            seed: 1,
        }
    }

    #[test]
    fn no_more_is_owed_than_the_limiter_has_at_once() {
        for (rate, burst) in [(1_000, 200), (1_000, 1_000), (100, 40), (7, 100), (3, 10_000), (50_000, 1_000)] {
            let plan = plan(Limit::per_second(rate, burst), Consistency::Leased);
            let shape = plan.shape(&plan.limit).unwrap();
            let at_once = shape.usable() / shape.emission();
            let owed = plan.owed().burst.get();
            assert!(owed <= at_once && owed + 2 >= at_once, "{rate}/s, burst {burst}: {owed} of {at_once}");
        }
    }

    #[test]
    fn all_of_it_is_owed_where_no_token_is_leased() {
        let limit = Limit::per_second(1_000, 200);
        assert_eq!(plan(limit, Consistency::Exact).owed(), limit);
        let small = Limit::per_second(1_000, 39);
        assert_eq!(plan(small, Consistency::Leased).owed(), small);
    }
}

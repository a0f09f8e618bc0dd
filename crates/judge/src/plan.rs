//! The plan of a run: the limit, the load and the nodes.

use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::time::Duration;

use tollgate_limiter::algorithm::calendar::Period;
use tollgate_limiter::algorithm::quota::Quota;
use tollgate_limiter::algorithm::token_bucket::{TokenBucket, TokenBucketError};
use tollgate_limiter::algorithm::window::Window;
use tollgate_limiter::limit::algorithm::{QuotaError, Rate};
use tollgate_limiter::limit::definition::{Consistency, LimitUse};
use tollgate_limiter::request::compiled_limit::LargestCosts;
use tollgate_limiter::request::rule::LimitStates;
use tollgate_limiter::request::rule_set::RuleSet;
use tollgate_limiter::{Limit, extension};

use crate::judge::bound::AdmissionBound;
use crate::judge::server_clock::ServerClock;
use crate::limit::TestedLimit;

/// The longest that a leased token lives, and the share of the burst (one part of so many) that
/// leases withhold at most: as documented, and not as the limiter computes it.
const LEASE_US: u64 = 50_000;
const LARGEST_WITHHELD: u64 = 4;

/// The name of the limit.
const LIMIT: &str = "torture";

/// Requests that a burst must hold for its limit to be leased, as documented.
const LEASABLE: u64 = 40;

/// How the limit of a run counts. A window has the tokens of the rate, as long as its period, and
/// no burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counting {
    #[default]
    TokenBucket,
    FixedWindow,
    SlidingWindow,
    /// Requests in flight, as many as the burst.
    InFlight,
}

/// Requests for each key, on average, where clients come with fresh ones.
pub const REQUESTS_PER_KEY: u64 = 4;

/// How clients ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadPattern {
    /// Each at its pace, or as fast as it goes.
    #[default]
    Paced,
    /// Like that; requests over the limit wait in a queue for `max_wait` at most. Each is in flight
    /// for `hold`.
    Queued { max_wait: Duration, hold: Duration },
    /// Many at once, again and again: below, at and above the limit in turns. `cold`: each time for
    /// a new key.
    Bursts { cold: bool },
    /// Each at this pace: one request of [`REQUESTS_PER_KEY`] for a key that nobody has asked for,
    /// the others for keys that were fresh just before. A node that crashes is the only one, and
    /// none takes its place.
    FreshKeys { interval: Duration },
}

/// A run, without its scenario.
#[derive(Clone, Debug)]
pub struct RunPlan {
    pub limit: TestedLimit,
    pub counting: Counting,
    pub pattern: LoadPattern,
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

impl RunPlan {
    /// `limit` as the limiter takes it.
    ///
    /// # Errors
    /// When it is out of the limiter's bounds.
    pub fn quota(&self, limit: &TestedLimit) -> Result<Quota, QuotaError> {
        let tokens = limit.rate.tokens.get();
        let width_us = limit.rate.period_us.get();
        Ok(match self.counting {
            // Nobody asks for the tokens of a limit of requests in flight.
            Counting::TokenBucket | Counting::InFlight => self.token_bucket(limit)?.into(),
            Counting::FixedWindow => Window::fixed(tokens, Period::every(width_us))?.into(),
            Counting::SlidingWindow => Window::sliding(tokens, width_us)?.into(),
        })
    }

    /// The bound that the limit promises, by a store with such a clock.
    pub fn bound(&self, clock: ServerClock) -> AdmissionBound {
        let period_us = self.limit.rate.period_us.get();
        let gained = self.limit.tokens_in(clock.gained_us());
        let quota = self.limit.rate.tokens;
        match self.counting {
            Counting::TokenBucket => AdmissionBound::TokenBucket(TestedLimit {
                burst: self.limit.burst.saturating_add(gained),
                ..self.limit
            }),
            Counting::FixedWindow => AdmissionBound::FixedWindow {
                quota: quota.get(),
                period_us,
                clock,
            },
            Counting::SlidingWindow => AdmissionBound::SlidingWindow {
                quota: quota.saturating_add(gained).get(),
                width_us: period_us,
            },
            Counting::InFlight => AdmissionBound::InFlight { most: self.burst() },
        }
    }

    /// Requests in flight on all nodes, at most.
    pub fn clients_in_all(&self) -> u32 {
        self.nodes
            .get()
            .saturating_mul(self.workers.get())
            .saturating_mul(self.clients.get())
    }

    /// Whether clients ask for new keys all the time.
    pub fn has_fresh_keys(&self) -> bool {
        matches!(self.pattern, LoadPattern::FreshKeys { .. })
    }

    /// The tokens that may be taken at once.
    pub fn burst(&self) -> u64 {
        match self.counting {
            Counting::TokenBucket | Counting::InFlight => self.limit.burst.get(),
            Counting::FixedWindow | Counting::SlidingWindow => self.limit.rate.tokens.get(),
        }
    }

    /// # Errors
    /// When it is out of the limiter's bounds.
    fn token_bucket(&self, limit: &TestedLimit) -> Result<TokenBucket, TokenBucketError> {
        let shape = TokenBucket::new(limit.rate.tokens, limit.rate.period_us, limit.burst)?;
        Ok(match self.consistency {
            Consistency::Exact => shape,
            Consistency::Leased => shape.leased(self.cost.get()),
        })
    }

    /// The word for it in a configuration.
    pub fn consistency_word(&self) -> &'static str {
        match self.consistency {
            Consistency::Exact => "exact",
            Consistency::Leased => "leased",
        }
    }

    /// The limit as a route of a gateway has it.
    ///
    /// # Errors
    /// When it is out of the limiter's bounds.
    pub fn rules(&self) -> Result<RuleSet, QuotaError> {
        let Rate { tokens, period_us } = self.limit.rate;
        let limit = match self.counting {
            Counting::InFlight => Limit::in_flight(LIMIT, self.burst()),
            Counting::TokenBucket | Counting::FixedWindow | Counting::SlidingWindow => {
                Limit::every(LIMIT, tokens.get(), Duration::from_micros(period_us.get()))
                    .burst(self.burst())
            }
        };
        let limit = match self.pattern {
            LoadPattern::Queued { max_wait, .. } => limit.queue(max_wait, NonZeroUsize::MAX),
            LoadPattern::Paced | LoadPattern::Bursts { .. } | LoadPattern::FreshKeys { .. } => {
                limit
            }
        };
        let limit = if self.consistency == Consistency::Leased {
            limit.leased()
        } else {
            limit
        };
        let uses: Vec<LimitUse> = limit
            .key(extension("key", |key: &u32| key.to_string()))
            .build()
            .into_iter()
            .collect();
        RuleSet::new(
            uses.iter(),
            &LargestCosts::over(uses.iter()),
            &LimitStates::default(),
            false,
        )
    }

    /// The least that a correct limiter admits: the limit itself or, where tokens are leased, one
    /// with a burst that is smaller by the tokens that flow in while a lease lives. The most that
    /// it admits is judged by the limit itself.
    pub fn expected_limit(&self) -> TestedLimit {
        let flowing = TestedLimit {
            burst: NonZeroU64::MIN,
            ..self.limit
        }
        .bound(LEASE_US);
        let leasable = self.limit.burst.get() >= self.cost.get().saturating_mul(LEASABLE);
        let withheld = match self.consistency {
            Consistency::Leased if leasable => {
                flowing.min(self.limit.burst.get() / LARGEST_WITHHELD)
            }
            _ => 0,
        };
        // A request that may wait is as good as one that came later.
        let waiting = match self.pattern {
            LoadPattern::Queued { max_wait, .. } => {
                let max_wait_us = u64::try_from(max_wait.as_micros()).unwrap_or(u64::MAX);
                TestedLimit {
                    burst: NonZeroU64::MIN,
                    ..self.limit
                }
                .bound(max_wait_us)
            }
            LoadPattern::Paced | LoadPattern::Bursts { .. } | LoadPattern::FreshKeys { .. } => 0,
        };
        let burst =
            NonZeroU64::new(self.limit.burst.get() - withheld + waiting).unwrap_or(NonZeroU64::MIN);
        TestedLimit {
            burst,
            ..self.limit
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(limit: TestedLimit, consistency: Consistency) -> RunPlan {
        let few = NonZeroU32::MIN;
        RunPlan {
            limit,
            counting: Counting::TokenBucket,
            pattern: LoadPattern::Paced,
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
    fn what_the_stores_clock_gains_is_within_the_bound() {
        let limit = TestedLimit::per_second(500, 50);
        let clock = ServerClock {
            least_us: 0,
            most_us: 50_100,
        };
        let slewed = plan(limit, Consistency::Exact).bound(clock);
        assert_eq!(slewed, TestedLimit::per_second(500, 76).into());
        let steady = plan(limit, Consistency::Exact).bound(ServerClock::default());
        assert_eq!(steady, limit.into());
    }

    #[test]
    fn a_leased_limit_expects_what_the_limiter_has_at_once() {
        for (rate, burst) in [
            (1_000, 200),
            (1_000, 1_000),
            (100, 40),
            (7, 100),
            (3, 10_000),
            (50_000, 1_000),
        ] {
            let plan = plan(TestedLimit::per_second(rate, burst), Consistency::Leased);
            let shape = plan.token_bucket(&plan.limit).unwrap();
            let at_once = shape.usable() / shape.emission();
            let expected = plan.expected_limit().burst.get();
            assert!(
                expected <= at_once && expected + 2 >= at_once,
                "{rate}/s, burst {burst}: {expected} of {at_once}"
            );
        }
    }

    #[test]
    fn the_whole_limit_is_expected_where_no_token_is_leased() {
        let limit = TestedLimit::per_second(1_000, 200);
        assert_eq!(plan(limit, Consistency::Exact).expected_limit(), limit);
        let small = TestedLimit::per_second(1_000, 39);
        assert_eq!(plan(small, Consistency::Leased).expected_limit(), small);
    }
}

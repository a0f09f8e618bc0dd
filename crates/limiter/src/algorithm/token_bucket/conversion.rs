//! Conversion of a bucket that is stored by one limit and asked for by another: while nodes reload
//! one after the other, or because clients have plans.
//!
//! Guarantees that admitted in any time t is at most the largest burst + the largest rate · t of
//! the limits in use: consumption counts in tokens, which flow off at the rate of one of these
//! limits and are lowered by nothing else; a grant needs room for them and its cost in the burst of
//! its own limit. So after a grant they are at most the largest burst, however often the limits
//! take turns. Conversions round up.
//!
//! Guarantees that nobody is locked out: a bucket is stored by the limit that granted last, or else
//! by the fastest that asked since. So consumption flows off in the time that the old limit would
//! have taken, or that the new rate takes for it, whichever is shorter. It may be more than the new
//! burst: forgetting that would refill the larger bucket of nodes with the old limit as often as
//! both ask. A faster limit that cannot count so many tokens leaves them to the slower one.
//! `lua/token_bucket.lua` does the same.

use crate::algorithm::token_bucket;
use crate::algorithm::token_bucket::{ChargeOutcome, MAX_TICKS, TickRate, TokenBucket};

/// The ticks that a bucket lacks, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    pub ticks: u64,
    /// The worth of those ticks.
    pub tick_rate: TickRate,
}

/// A stored backlog as a limit reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvertedBacklog {
    /// In ticks of that limit. May be more than its capacity.
    pub ticks: u64,
    /// The backlog to store when nothing is granted.
    pub stored: Backlog,
    /// Whether that differs from what is stored.
    pub changed: bool,
    own_rate: TickRate,
}

impl Backlog {
    /// `ticks` of `bucket`, at most [`MAX_TICKS`].
    #[inline]
    pub fn new(bucket: TokenBucket, ticks: u64) -> Self {
        Self {
            ticks: ticks.min(MAX_TICKS),
            tick_rate: bucket.tick_rate(),
        }
    }

    /// This backlog as `bucket` reads it.
    #[inline]
    pub fn convert_to(self, bucket: TokenBucket) -> ConvertedBacklog {
        let own_rate = bucket.tick_rate();
        let ticks = token_bucket::convert(self.ticks, self.tick_rate, own_rate);
        let changed =
            own_rate.is_faster_than(self.tick_rate) && self.ticks > 0 && ticks < MAX_TICKS;
        let stored = if changed || self.ticks == 0 {
            Self {
                ticks,
                tick_rate: own_rate,
            }
        } else {
            self
        };
        ConvertedBacklog {
            ticks,
            stored,
            changed,
            own_rate,
        }
    }
}

impl ConvertedBacklog {
    /// Whether it is stored by the limit that reads it.
    #[inline]
    pub fn is_own(&self) -> bool {
        !self.changed && self.stored.tick_rate == self.own_rate
    }

    /// Charges `granted` of the `units` asked for to `part`: the limit, or a node's share of it.
    #[inline]
    pub fn charge(&self, part: TokenBucket, cost: u64, granted: u32, units: u32) -> ChargeOutcome {
        let outcome = token_bucket::charge(part, self.ticks, cost, granted, units);
        let Backlog { ticks, tick_rate } = self.stored;
        if granted > 0 || tick_rate == self.own_rate {
            return outcome;
        }
        let room = part.usable().saturating_sub(part.charge(cost));
        let missing =
            ticks.saturating_sub(token_bucket::convert_room(room, self.own_rate, tick_rate));
        let retry_after_us = if units > 0 {
            tick_rate.micros(missing)
        } else {
            0
        };
        ChargeOutcome {
            retry_after_us,
            reset_after_us: tick_rate.micros(ticks),
            ..outcome
        }
    }

    /// The backlog to store after an outcome of [`Self::charge`].
    #[inline]
    pub fn after(&self, outcome: &ChargeOutcome) -> Backlog {
        if outcome.granted > 0 {
            Backlog {
                ticks: outcome.backlog,
                tick_rate: self.own_rate,
            }
        } else {
            self.stored
        }
    }

    /// The backlog to store when `ticks` of the reading limit are owed besides, since `age_us`
    /// microseconds.
    #[inline]
    pub fn charge_debt(&self, ticks: u64, age_us: u64) -> Backlog {
        let Backlog {
            ticks: backlog,
            tick_rate,
        } = self.stored;
        Backlog {
            ticks: token_bucket::charge_debt(backlog, self.as_stored(ticks), tick_rate, age_us),
            tick_rate,
        }
    }

    /// Ticks of the reading limit, in those that the backlog is stored by.
    #[inline]
    pub fn as_stored(&self, ticks: u64) -> u64 {
        token_bucket::convert(ticks, self.own_rate, self.stored.tick_rate)
    }

    /// This backlog with at most `ticks` missing, of those that it is stored by.
    #[inline]
    pub fn lowered(self, ticks: u64) -> Self {
        let stored = Backlog {
            ticks: self.stored.ticks.min(ticks),
            ..self.stored
        };
        Self {
            ticks: token_bucket::convert(stored.ticks, stored.tick_rate, self.own_rate),
            stored,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    const SECOND: u64 = 1_000_000;

    fn bucket(tokens: u64, period_us: u64, burst: u64) -> TokenBucket {
        fn nonzero(number: u64) -> NonZeroU64 {
            NonZeroU64::new(number).unwrap()
        }
        TokenBucket::new(nonzero(tokens), nonzero(period_us), nonzero(burst)).unwrap()
    }

    fn consumed(tokens: u64, by: TokenBucket) -> Backlog {
        Backlog {
            ticks: by.charge(tokens),
            tick_rate: by.tick_rate(),
        }
    }

    #[test]
    fn a_backlog_of_a_faster_limit_flows_off_at_its_rate() {
        let old = bucket(1_000, SECOND, 1_000);
        let new = bucket(10, 3_600 * SECOND, 10);
        let converted = consumed(1_000, old).convert_to(new);
        assert_eq!(
            (converted.stored, converted.changed, converted.is_own()),
            (consumed(1_000, old), false, false)
        );
        let denied = converted.charge(new, 1, 0, 1);
        assert_eq!(
            (
                denied.remaining,
                denied.retry_after_us,
                denied.reset_after_us
            ),
            (0, 991_000, SECOND)
        );
        assert_eq!(converted.after(&denied), consumed(1_000, old));
    }

    #[test]
    fn a_faster_limit_stores_the_backlog_at_its_own_rate() {
        let old = bucket(10, 3_600 * SECOND, 100);
        let new = bucket(20, SECOND, 10);
        let converted = consumed(100, old).convert_to(new);
        assert_eq!(
            (converted.stored, converted.changed, converted.is_own()),
            (consumed(100, new), true, false)
        );
        assert_eq!(
            converted.charge(new, 1, 0, 1).retry_after_us,
            91 * SECOND / 20
        );
    }

    #[test]
    fn a_grant_stores_the_bucket_by_its_own_limit() {
        let old = bucket(1_000, SECOND, 1_000);
        let new = bucket(10, 3_600 * SECOND, 10);
        let converted = consumed(4, old).convert_to(new);
        let granted = converted.charge(new, 2, 2, 5);
        assert_eq!((granted.backlog, granted.remaining), (new.charge(8), 2));
        assert_eq!(converted.after(&granted), consumed(8, new));
    }

    #[test]
    fn a_debt_is_stored_by_the_faster_limit_and_counts_whole() {
        let fast = bucket(1_000, SECOND, 1_000);
        let slow = bucket(10, 3_600 * SECOND, 10);
        fn charged(stored: Backlog, by: TokenBucket, tokens: u64) -> Backlog {
            stored.convert_to(by).charge_debt(by.charge(tokens), 0)
        }
        assert_eq!(charged(consumed(900, fast), slow, 3), consumed(903, fast));
        assert_eq!(charged(consumed(5, slow), fast, 3), consumed(8, fast));
        assert_eq!(
            charged(consumed(5, slow), slow, 30),
            consumed(35, slow),
            "beyond the burst"
        );
    }

    #[test]
    fn a_backlog_that_a_faster_limit_cannot_count_stays_with_the_slower_one() {
        let old = bucket(1, 86_400 * SECOND, 366);
        let new = bucket(997, 997 * 80_000 * SECOND + 1, 1);
        assert!(new.tick_rate().is_faster_than(old.tick_rate()));
        let converted = consumed(366, old).convert_to(new);
        assert_eq!(
            (converted.stored, converted.changed),
            (consumed(366, old), false)
        );
        assert_eq!(
            converted.charge(new, 1, 0, 1).retry_after_us,
            366 * 86_400 * SECOND
        );
    }
}

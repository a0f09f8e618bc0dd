//! A bucket that is stored by one limit and asked for by another: by nodes that have heard of a change, and by those that
//! have not; or by a client's plans.
//!
//! Guarantees that admitted in any time t is at most the largest burst + the largest rate · t of the limits that are in use:
//! what is consumed counts in tokens, which flow off at the rate of one of these limits and are lowered by nothing else; a
//! grant is given only where they and its cost fit the burst of its own limit; so after a grant they are at most the
//! largest burst, however often the limits take turns. Conversions round up.
//!
//! Guarantees that nobody is locked out: a bucket is stored by the limit that granted last, or else by the fastest that asked
//! since. So what is consumed flows off in the time that the old limit would have taken, or that the new rate takes
//! for it, whichever is shorter. (It may be more than the new burst. To forget that would refill the larger bucket of
//! whoever still has the old limit, as often as both ask.) A faster limit that cannot count so many tokens, months of
//! them, leaves them to the slower one.
//! `lua/carry.lua` is the same. Refuses to know clocks and stores.

use crate::algorithm::token_bucket as bucket;
use crate::algorithm::token_bucket::{ChargeOutcome, MAX_TICKS, TickRate, TokenBucket};

/// What a bucket lacks, in the ticks that it is stored by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    pub ticks: u64,
    pub tick_rate: TickRate,
}

/// The same as a limit sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvertedBacklog {
    /// In ticks of that limit. May be more than its capacity.
    pub backlog: u64,
    /// What to keep when nothing is granted.
    pub kept: Backlog,
    /// What is stored is something else.
    pub moved: bool,
    own: TickRate,
}

impl Backlog {
    /// Whole tokens that are missing, rounded up.
    pub fn tokens(self) -> u64 {
        self.tick_rate.tokens(self.ticks)
    }

    /// As `shape` sees it.
    pub fn carried(self, shape: TokenBucket) -> ConvertedBacklog {
        let own = shape.tick_rate();
        let backlog = bucket::convert(self.ticks, self.tick_rate, own);
        let moved = own.is_faster_than(self.tick_rate) && self.ticks > 0 && backlog < MAX_TICKS;
        let kept = if moved || self.ticks == 0 { Self { ticks: backlog, tick_rate: own } } else { self };
        ConvertedBacklog { backlog, kept, moved, own }
    }
}

impl ConvertedBacklog {
    /// Stored by the limit that sees it.
    pub fn is_own(&self) -> bool {
        !self.moved && self.kept.tick_rate == self.own
    }

    /// Charges `granted` of the `units` asked for, of `part`: the limit, or a node's share of it.
    pub fn settle(&self, part: TokenBucket, cost: u64, granted: u32, units: u32) -> ChargeOutcome {
        let taken = bucket::settle(part, self.backlog, cost, granted, units);
        let Backlog { ticks, tick_rate } = self.kept;
        if granted > 0 || tick_rate == self.own {
            return taken;
        }
        let room = part.usable().saturating_sub(part.charge(cost));
        let missing = ticks.saturating_sub(bucket::convert_room(room, self.own, tick_rate));
        let retry_after_us = if units > 0 { tick_rate.micros(missing) } else { 0 };
        ChargeOutcome { retry_after_us, reset_after_us: tick_rate.micros(ticks), ..taken }
    }

    /// What to store for what [`Self::settle`] said.
    pub fn after(&self, taken: &ChargeOutcome) -> Backlog {
        if taken.granted > 0 { Backlog { ticks: taken.backlog, tick_rate: self.own } } else { self.kept }
    }

    /// What to store when `ticks`, of the limit that sees it, are owed besides, which make it owe no more than `most` or
    /// themselves.
    pub fn owe(&self, ticks: u64, most: u64) -> Backlog {
        let ticks = bucket::owe(self.kept.ticks, self.as_kept(ticks), self.as_kept(most));
        Backlog { ticks, ..self.kept }
    }

    /// Ticks of the limit that sees it, in those that it is kept by.
    pub fn as_kept(&self, ticks: u64) -> u64 {
        bucket::convert(ticks, self.own, self.kept.tick_rate)
    }

    /// The same with so much less that only `ticks` are missing, of those that it is kept by.
    pub fn lowered(self, ticks: u64) -> Self {
        let kept = Backlog { ticks: self.kept.ticks.min(ticks), ..self.kept };
        Self { backlog: bucket::convert(kept.ticks, kept.tick_rate, self.own), kept, ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    const SECOND: u64 = 1_000_000;

    fn shape(tokens: u64, period_us: u64, burst: u64) -> TokenBucket {
        let nonzero = |n| NonZeroU64::new(n).unwrap();
        TokenBucket::new(nonzero(tokens), nonzero(period_us), nonzero(burst)).unwrap()
    }

    fn consumed(tokens: u64, by: TokenBucket) -> Backlog {
        Backlog { ticks: by.charge(tokens), tick_rate: by.tick_rate() }
    }

    #[test]
    fn a_slower_limit_waits_for_what_the_faster_one_left_to_flow_off_as_that_would_have() {
        let (old, new) = (shape(1_000, SECOND, 1_000), shape(10, 3_600 * SECOND, 10));
        let carried = consumed(1_000, old).carried(new);
        assert_eq!((carried.kept, carried.moved, carried.is_own()), (consumed(1_000, old), false, false));
        let denied = carried.settle(new, 1, 0, 1);
        assert_eq!((denied.remaining, denied.retry_after_us, denied.reset_after_us), (0, 991_000, SECOND));
        assert_eq!(carried.after(&denied), consumed(1_000, old));
    }

    #[test]
    fn a_faster_limit_takes_over_what_was_consumed_with_its_own_rate() {
        let (old, new) = (shape(10, 3_600 * SECOND, 100), shape(20, SECOND, 10));
        let carried = consumed(100, old).carried(new);
        assert_eq!((carried.kept, carried.moved, carried.is_own()), (consumed(100, new), true, false));
        assert_eq!(carried.settle(new, 1, 0, 1).retry_after_us, 91 * SECOND / 20);
    }

    #[test]
    fn a_grant_stores_the_bucket_by_its_own_limit() {
        let (old, new) = (shape(1_000, SECOND, 1_000), shape(10, 3_600 * SECOND, 10));
        let carried = consumed(4, old).carried(new);
        let granted = carried.settle(new, 2, 2, 5);
        assert_eq!((granted.backlog, granted.remaining), (new.charge(8), 2));
        assert_eq!(carried.after(&granted), consumed(8, new));
    }

    #[test]
    fn a_debt_is_kept_by_the_faster_limit_and_lowers_nothing() {
        let (fast, slow) = (shape(1_000, SECOND, 1_000), shape(10, 3_600 * SECOND, 10));
        assert_eq!(consumed(900, fast).carried(slow).owe(slow.charge(3), slow.capacity()), consumed(900, fast));
        assert_eq!(consumed(5, fast).carried(slow).owe(slow.charge(3), slow.capacity()), consumed(8, fast));
        assert_eq!(consumed(5, slow).carried(fast).owe(fast.charge(3), fast.capacity()), consumed(8, fast));
        assert_eq!(
            consumed(5, slow).carried(slow).owe(slow.charge(30), slow.capacity()),
            consumed(30, slow),
            "a larger limit's"
        );
    }

    #[test]
    fn what_a_faster_limit_cannot_count_stays_with_the_slower_one() {
        let (old, new) = (shape(1, 86_400 * SECOND, 366), shape(997, 997 * 80_000 * SECOND + 1, 1));
        assert!(new.tick_rate().is_faster_than(old.tick_rate()));
        let carried = consumed(366, old).carried(new);
        assert_eq!((carried.kept, carried.moved), (consumed(366, old), false));
        assert_eq!(carried.settle(new, 1, 0, 1).retry_after_us, 366 * 86_400 * SECOND);
    }
}

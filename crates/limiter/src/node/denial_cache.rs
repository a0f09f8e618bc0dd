//! Remembers denials: a request that the store just denied is denied in process until its retry
//! time.
//!
//! Guarantees that no request is denied from memory longer than the store denies, and that no wait
//! it tells is too short: the first counts from before the call was sent, the other from its
//! answer. A denial counts for the same limit and for costs not below the one denied. The cache is
//! bounded; a displaced denial is asked for again. Every denial is asked again after a second: the
//! store may have been emptied or replaced by one that knows less, and other nodes may have
//! refunded reservations. A leased limit is asked again after an eighth of its lease at the
//! earliest, so that there are tokens to take, and after its lease at the latest, because other
//! nodes may have given tokens back. Others may take from the bucket meanwhile: the remaining
//! tokens are those at the denial.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::algorithm::level::Level;
use crate::algorithm::quota::Quota;
use crate::limit::key::Key;
use crate::node::bounded_table::BoundedTable;
use crate::store::BucketCharge;

/// Denials kept per node, about 150 bytes each.
const CAPACITY: usize = 16_384;

/// The longest that a denial counts unasked. It costs a key under attack one call a second.
const MAX_AGE_US: u64 = 1_000_000;

/// A node has one.
pub(crate) struct DenialCache {
    table: BoundedTable<CachedDenial>,
    /// No denial lasts longer than this: while no request is denied, this look spares the table.
    latest_us: AtomicU64,
}

#[derive(Clone, Copy)]
struct CachedDenial {
    quota: Quota,
    cost: u64,
    remaining: u64,
    /// Microseconds of this node's monotonic clock.
    until_us: u64,
    retry_at_us: u64,
    full_at_us: u64,
}

/// When a call was sent and answered, in microseconds of this node's monotonic clock. The store has
/// decided in between.
#[derive(Clone, Copy)]
pub(crate) struct CallTimes {
    pub sent_us: u64,
    pub answered_us: u64,
}

impl DenialCache {
    pub fn new() -> Self {
        Self {
            table: BoundedTable::new(CAPACITY),
            latest_us: AtomicU64::new(0),
        }
    }

    /// Remembers that the store denied `cost` tokens of the bucket of `charge`, in answer to a call
    /// at these times.
    pub fn remember(&self, charge: &BucketCharge, cost: u64, level: &Level, call: CallTimes) {
        let denial = CachedDenial {
            quota: charge.quota,
            cost,
            remaining: level.remaining,
            until_us: call
                .sent_us
                .saturating_add(kept_us(charge.quota, level.retry_after_us)),
            retry_at_us: call.answered_us.saturating_add(level.retry_after_us),
            full_at_us: call.answered_us.saturating_add(level.reset_after_us),
        };
        self.table.upsert(
            &charge.key,
            || denial,
            |known| known.until_us,
            |known_denial| *known_denial = denial,
        );
        self.latest_us.fetch_max(denial.until_us, Ordering::Relaxed);
    }

    /// No request was denied yet: then no clock need be read.
    pub fn is_empty(&self) -> bool {
        self.latest_us.load(Ordering::Relaxed) == 0
    }

    /// The level that denies `cost` tokens of the bucket of `charge` at `now_us`, if a denial is
    /// remembered.
    pub fn find(&self, charge: &BucketCharge, cost: u64, now_us: u64) -> Option<Level> {
        if now_us >= self.latest_us.load(Ordering::Relaxed) {
            return None;
        }
        let denial = self.table.with(&charge.key, |found| found.copied())?;
        (denial.quota == charge.quota)
            .then(|| denial.level(cost, now_us))
            .flatten()
    }

    /// Forgets the denial of `key`: its bucket was reset.
    pub fn forget(&self, key: &Key) {
        self.table.remove(key);
    }
}

impl CachedDenial {
    /// The level for a request of `cost`. A dearer request waits longer, for its additional tokens.
    fn level(&self, cost: u64, now_us: u64) -> Option<Level> {
        let kept_us = self.until_us.checked_sub(now_us).filter(|wait| *wait > 0)?;
        let wait_us = kept_us.max(self.retry_at_us.saturating_sub(now_us));
        let dearer_us = self.quota.dearer_us(cost.checked_sub(self.cost)?);
        Some(Level {
            remaining: self.remaining,
            retry_after_us: wait_us.saturating_add(dearer_us),
            reset_after_us: self.full_at_us.saturating_sub(now_us),
        })
    }
}

/// How long a denial with this wait is remembered.
fn kept_us(quota: Quota, wait_us: u64) -> u64 {
    match quota.lease_us() {
        0 => wait_us.min(MAX_AGE_US),
        lease_us => wait_us.clamp(lease_us / 8, lease_us),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::algorithm::token_bucket::TokenBucket;

    fn charge(key: &str, burst: u64) -> BucketCharge {
        fn nonzero(number: u64) -> NonZeroU64 {
            NonZeroU64::new(number).unwrap()
        }
        let shape = TokenBucket::new(nonzero(10), nonzero(1_000_000), nonzero(burst)).unwrap();
        BucketCharge {
            key: Key::from(key),
            quota: shape.into(),
            cost: 1,
            largest_cost: 1,
            local_us: u64::MAX,
        }
    }

    /// A call that takes no time.
    fn at(us: u64) -> CallTimes {
        CallTimes {
            sent_us: us,
            answered_us: us,
        }
    }

    fn denied(retry_after_us: u64) -> Level {
        Level {
            remaining: 2,
            retry_after_us,
            reset_after_us: 5_000_000,
        }
    }

    #[test]
    fn denies_until_the_wait_is_over_and_counts_it_down() {
        let cache = DenialCache::new();
        assert_eq!(
            (cache.is_empty(), cache.find(&charge("k", 20), 3, 0)),
            (true, None)
        );
        cache.remember(&charge("k", 20), 3, &denied(100_000), at(1_000));
        assert!(!cache.is_empty());
        let level = cache.find(&charge("k", 20), 3, 41_000);
        assert_eq!(
            level,
            Some(Level {
                remaining: 2,
                retry_after_us: 60_000,
                reset_after_us: 4_960_000
            })
        );
        assert!(cache.find(&charge("k", 20), 3, 100_999).is_some());
        assert_eq!(cache.find(&charge("k", 20), 3, 101_000), None);
    }

    #[test]
    fn a_dearer_request_waits_for_its_own_tokens_and_a_cheaper_one_is_not_denied() {
        let cache = DenialCache::new();
        cache.remember(&charge("k", 20), 3, &denied(100_000), at(0));
        assert_eq!(
            cache
                .find(&charge("k", 20), 5, 0)
                .map(|level| level.retry_after_us),
            Some(300_000)
        );
        assert_eq!(cache.find(&charge("k", 20), 2, 0), None);
    }

    #[test]
    fn a_changed_limit_and_a_reset_bucket_are_asked_for_again() {
        let cache = DenialCache::new();
        cache.remember(&charge("k", 20), 3, &denied(100_000), at(0));
        assert_eq!(cache.find(&charge("k", 30), 3, 0), None);
        assert_eq!(cache.find(&charge("other", 20), 3, 0), None);
        cache.forget(&Key::from("k"));
        assert_eq!(cache.find(&charge("k", 20), 3, 0), None);
    }

    #[test]
    fn a_leased_limit_is_asked_again_neither_at_once_nor_late() {
        let cache = DenialCache::new();
        let mut leased = charge("k", 1_000);
        leased.quota = leased.quota.leased(1);
        cache.remember(&leased, 1, &denied(10), at(0));
        assert_eq!(
            cache
                .find(&leased, 1, 6_000)
                .map(|level| level.retry_after_us),
            Some(250)
        );
        assert_eq!(cache.find(&leased, 1, 6_250), None);
        cache.remember(&leased, 1, &denied(100_000), at(0));
        assert_eq!(
            cache
                .find(&leased, 1, 49_999)
                .map(|level| level.retry_after_us),
            Some(50_001)
        );
        assert_eq!(cache.find(&leased, 1, 50_000), None);
    }

    #[test]
    fn a_long_denial_tells_its_whole_wait_and_is_asked_again_after_a_second() {
        let cache = DenialCache::new();
        let denied_charge = charge("k", 20);
        cache.remember(&denied_charge, 3, &denied(4_000_000), at(0));
        assert_eq!(
            cache
                .find(&denied_charge, 3, 999_999)
                .map(|level| level.retry_after_us),
            Some(3_000_001)
        );
        assert_eq!(cache.find(&denied_charge, 3, 1_000_000), None);
        cache.remember(&denied_charge, 3, &denied(100_000), at(0));
        assert_eq!(cache.find(&denied_charge, 3, 100_000), None);
    }

    #[test]
    fn a_wait_counts_from_the_answer_and_the_memory_of_it_from_the_call() {
        let cache = DenialCache::new();
        let call = CallTimes {
            sent_us: 0,
            answered_us: 60_000,
        };
        cache.remember(&charge("k", 20), 3, &denied(100_000), call);
        let level = cache.find(&charge("k", 20), 3, 60_000).unwrap();
        assert_eq!(
            (level.retry_after_us, level.reset_after_us),
            (100_000, 5_000_000)
        );
        assert!(cache.find(&charge("k", 20), 3, 99_999).is_some());
        assert_eq!(cache.find(&charge("k", 20), 3, 100_000), None);
    }

    #[test]
    fn any_number_of_keys_takes_bounded_room() {
        let cache = DenialCache::new();
        for n in 0..100_000 {
            cache.remember(&charge(&n.to_string(), 20), 1, &denied(100_000), at(0));
        }
        let kept = (0..100_000)
            .filter(|n| cache.find(&charge(&n.to_string(), 20), 1, 1).is_some())
            .count();
        assert!(kept > CAPACITY / 2 && kept <= CAPACITY, "{kept}");
    }
}

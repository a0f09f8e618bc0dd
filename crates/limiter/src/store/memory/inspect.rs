//! An operator's view of the buckets of this process: reads them, grants tokens, and lowers what is
//! held against them.

use crate::algorithm::quota::Quota;
use crate::algorithm::share::Share;
use crate::limit::key::Key;
use crate::store::BucketCharge;
use crate::store::inspect::{BeforeAndAfter, BucketState, CacheListener, TokenGrant};
use crate::store::memory::MemoryStore;

impl MemoryStore {
    /// The state of the bucket of `charge` at `now_us`, by this node's share of the limit; nothing
    /// changes. `None`: the limit cannot be divided, and another node has the whole of this key.
    pub fn peek_at(&self, charge: &BucketCharge, now_us: u64, share: Share) -> Option<BucketState> {
        let key = charge.key.as_bytes();
        let parts = share.parts(key, charge.quota, charge.largest_cost)?;
        let hash = self.hash(key);
        let found = self.shards[self.shard_of(hash)]
            .lock()
            .find(hash, key, charge.quota, now_us);
        Some(BucketState {
            parts,
            state: found.state,
        })
    }

    /// Grants tokens at `now_us`, where there is no shared store.
    pub fn grant_at(
        &self,
        charge: &BucketCharge,
        tokens: TokenGrant,
        now_us: u64,
    ) -> BeforeAndAfter {
        let key = charge.key.as_bytes();
        let [before, after] = self.change(key, charge.quota, now_us, |state| tokens.apply(state));
        BeforeAndAfter {
            before: BucketState::whole(before),
            after: BucketState::whole(after),
        }
    }

    /// Like [`CacheListener::lower`], for a bucket that is stored here. Says whether it is.
    pub fn lower_stored(&self, key: &Key, full_in_us: u64, now_us: u64) -> bool {
        let hash = self.hash(key.as_bytes());
        self.shards[self.shard_of(hash)]
            .lock()
            .lower(hash, key.as_bytes(), full_in_us, now_us)
    }
}

impl CacheListener for MemoryStore {
    fn lower(&self, key: &Key, quota: Quota, full_in_us: u64, now_us: u64) {
        if self.lower_stored(key, full_in_us, now_us) {
            return;
        }
        self.change(key.as_bytes(), quota, now_us, |state| {
            state.lower_to(full_in_us)
        });
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::algorithm::token_bucket::TokenBucket;

    fn charge() -> BucketCharge {
        fn nonzero(number: u64) -> NonZeroU64 {
            NonZeroU64::new(number).unwrap()
        }
        let shape = TokenBucket::new(nonzero(10), nonzero(1_000_000), nonzero(20)).unwrap();
        BucketCharge {
            key: Key::from("l:k"),
            quota: shape.into(),
            cost: 1,
            largest_cost: 1,
            local_us: u64::MAX,
        }
    }

    fn spent(tokens: u32) -> MemoryStore {
        let store = MemoryStore::new(10);
        store.take_at(&[charge()], tokens, 0, Share::WHOLE);
        store
    }

    fn left(store: &MemoryStore, share: Share) -> Option<u64> {
        store
            .peek_at(&charge(), 0, share)
            .map(|seen| seen.level(1).remaining)
    }

    #[test]
    fn peeking_takes_nothing_and_keeps_no_bucket() {
        let store = MemoryStore::new(10);
        assert_eq!(left(&store, Share::WHOLE), Some(20));
        assert!(store.is_empty());
        let store = spent(8);
        assert_eq!([(); 3].map(|()| left(&store, Share::WHOLE)), [Some(12); 3]);
    }

    #[test]
    fn peeking_goes_by_the_share_of_the_node() {
        let store = spent(10);
        assert_eq!(left(&store, Share::new(2, 0)), Some(5));
        let single = BucketCharge {
            largest_cost: 11,
            ..charge()
        };
        let here = (0..2)
            .filter(|rank| store.peek_at(&single, 0, Share::new(2, *rank)).is_some())
            .count();
        assert_eq!(
            here, 1,
            "one node has the whole of a limit that cannot be shared"
        );
    }

    #[test]
    fn grants_fill_the_bucket_and_not_more() {
        let store = spent(20);
        let changed = store.grant_at(&charge(), TokenGrant::Tokens(5), 0);
        assert_eq!(
            (
                changed.before.level(1).remaining,
                changed.after.level(1).remaining
            ),
            (0, 5)
        );
        assert_eq!(
            store
                .grant_at(&charge(), TokenGrant::Tokens(50), 0)
                .after
                .level(1)
                .remaining,
            20
        );
        assert_eq!(store.take_at(&[charge()], 50, 0, Share::WHOLE).units, 20);
        assert_eq!(
            store
                .grant_at(&charge(), TokenGrant::All, 0)
                .after
                .level(1)
                .remaining,
            20
        );
    }

    #[test]
    fn a_bucket_is_lowered_and_never_raised() {
        let store = spent(10);
        for (full_in_us, remaining) in [(2_000_000, 10), (500_000, 15), (0, 20)] {
            store.lower(&charge().key, charge().quota, full_in_us, 0);
            assert_eq!(left(&store, Share::WHOLE), Some(remaining));
        }
    }

    #[test]
    fn a_bucket_of_a_plan_is_lowered_by_the_plans_rate() {
        fn nonzero(number: u64) -> NonZeroU64 {
            NonZeroU64::new(number).unwrap()
        }
        let plan = BucketCharge {
            quota: TokenBucket::new(nonzero(1_000), nonzero(1_000_000), nonzero(500))
                .unwrap()
                .into(),
            ..charge()
        };
        let store = MemoryStore::new(10);
        store.take_at(std::slice::from_ref(&plan), 400, 0, Share::WHOLE);
        store.lower(&plan.key, charge().quota, 300_000, 0);
        assert_eq!(
            store
                .peek_at(&plan, 0, Share::WHOLE)
                .map(|seen| seen.level(1).remaining),
            Some(200)
        );
    }
}

//! Bounds how many records of one account and one kind go into the audit log, which nobody may
//! clear.

use tollgate_limiter::algorithm::share::Share;
use tollgate_limiter::algorithm::token_bucket::TokenBucket;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::store::BucketCharge;
use tollgate_limiter::store::memory::MemoryStore;

use tollgate_limiter::clock;

/// Accounts that are remembered.
const MAX_BUCKETS: usize = 4_096;

/// The records of one kind that were kept.
pub struct BoundedRecords {
    buckets: MemoryStore,
    bound: TokenBucket,
}

impl BoundedRecords {
    pub fn new(bound: TokenBucket) -> Self {
        Self {
            buckets: MemoryStore::new(MAX_BUCKETS),
            bound,
        }
    }

    /// Whether another one of `account` is to be kept.
    pub fn take(&self, account: &str) -> bool {
        let key = Key(account.as_bytes().into());
        let charge = BucketCharge {
            key,
            quota: self.bound.into(),
            cost: 1,
            largest_cost: 1,
            local_us: u64::MAX,
        };
        self.buckets
            .take_at(&[charge], 1, clock::monotonic_micros(), Share::WHOLE)
            .units
            == 1
    }
}

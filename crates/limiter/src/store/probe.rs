//! The request that finds out whether a store decides.

use std::num::NonZeroU64;

use crate::algorithm::token_bucket::TokenBucket;
use crate::limit::key::Key;
use crate::store::BucketCharge;

/// `!` starts no limit's name, so no limit's bucket is probed away.
pub(crate) const KEY: &str = "!probe";

/// A charge to a bucket of its own, wide enough to be granted, so that it proves writing too.
pub(crate) fn charge(key: Key) -> Option<BucketCharge> {
    let plenty = NonZeroU64::new(1_000_000)?;
    let shape = TokenBucket::new(plenty, plenty, plenty).ok()?;
    Some(BucketCharge { key, quota: shape.into(), cost: 1, largest_cost: 1 })
}

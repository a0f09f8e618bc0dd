//! The request that finds out whether a store decides.

use std::num::NonZeroU64;

use tokio::time::timeout;

use crate::algorithm::token_bucket::TokenBucket;
use crate::limit::key::Key;
use crate::store::{BucketCharge, Store, StoreError, StoreFailure};

/// `!` starts no limit's name, so no limit's bucket is probed away.
pub(crate) const KEY: &str = "!probe";

/// A charge to a bucket of its own, wide enough to be granted, so that it proves writing too.
fn charge(key: Key) -> Option<BucketCharge> {
    let plenty = NonZeroU64::new(1_000_000)?;
    let shape = TokenBucket::new(plenty, plenty, plenty).ok()?;
    Some(BucketCharge { key, quota: shape.into(), cost: 1, largest_cost: 1 })
}

/// Takes from the bucket of `key` within the time limit of `store`.
pub(crate) async fn take<S: Store + ?Sized>(store: &S, key: Key) -> Result<(), StoreFailure> {
    let Some(charge) = charge(key) else { return Ok(()) };
    let late = || StoreFailure { server: store.server_of(&charge.key), error: StoreError::Timeout };
    let answer = timeout(store.timeout(), store.take(std::slice::from_ref(&charge), 1)).await;
    answer.unwrap_or_else(|_| Err(late())).map(drop)
}

//! Stores with a fault each, for the judge to find.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, ready};
use parking_lot::Mutex;
use tollgate_limiter::algorithm::concurrency::GrantedPermits;
use tollgate_limiter::algorithm::level::Level;
use tollgate_limiter::algorithm::quota::Quota;
use tollgate_limiter::clock;
use tollgate_limiter::store::adjustment::{AdjustmentBatch, AdjustmentOutcome, AdjustmentResult};
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::{BucketCharge, Grant, PermitClaim, Store, StoreError, StoreFailure};

/// How far a node's clock is ahead of the one before.
const SKEW_US: u64 = 20_000;

/// A token bucket which refills by what its callers say the time is, as scripts do that take it as
/// an argument.
#[derive(Clone, Default)]
pub struct OwnClock {
    bucket: Arc<Mutex<Bucket>>,
    ahead_us: u64,
}

#[derive(Default)]
struct Bucket {
    used_ticks: u64,
    at_us: u64,
}

impl OwnClock {
    pub fn of_node(&self, node: u32) -> Self {
        Self {
            bucket: self.bucket.clone(),
            ahead_us: u64::from(node) * SKEW_US,
        }
    }
}

impl Store for OwnClock {
    fn take<'a>(
        &'a self,
        charges: &'a [BucketCharge],
        units: u32,
    ) -> BoxFuture<'a, Result<Grant, StoreFailure>> {
        let mut bucket = self.bucket.lock();
        let now_us = clock::monotonic_micros() + self.ahead_us;
        let Quota::TokenBucket(shape) = charges[0].quota else {
            panic!("{charges:?}")
        };
        let cost = charges[0].cost;
        let passed = now_us.saturating_sub(bucket.at_us) * shape.ticks_per_us();
        bucket.at_us = now_us;
        bucket.used_ticks = bucket.used_ticks.saturating_sub(passed);
        let fitting = (shape.capacity() - bucket.used_ticks) / shape.charge(cost);
        let granted = u32::try_from(fitting).unwrap_or(units).min(units);
        bucket.used_ticks += shape.charge(cost) * u64::from(granted);
        let levels = charges.iter().map(|_| Level::default()).collect();
        Box::pin(ready(Ok(Grant {
            units: granted,
            levels,
            at_us: now_us,
            ..Grant::default()
        })))
    }

    fn adjust<'a>(&'a self, batch: &'a AdjustmentBatch) -> BoxFuture<'a, Vec<AdjustmentResult>> {
        Box::pin(ready(vec![Ok(AdjustmentOutcome::Applied); batch.len()]))
    }

    fn claim<'a>(
        &'a self,
        _: &'a [PermitClaim],
    ) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>> {
        Box::pin(ready(Ok(Vec::new())))
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// Denies every tenth request, although it has charged it.
#[derive(Clone)]
pub struct Miser {
    store: Arc<MemoryStore>,
    granted: Arc<AtomicU64>,
}

impl Default for Miser {
    fn default() -> Self {
        Self {
            store: Arc::new(MemoryStore::new(10)),
            granted: Arc::default(),
        }
    }
}

impl Store for Miser {
    fn take<'a>(
        &'a self,
        charges: &'a [BucketCharge],
        units: u32,
    ) -> BoxFuture<'a, Result<Grant, StoreFailure>> {
        Box::pin(async move {
            let mut grant = self.store.take(charges, units).await?;
            if grant.units > 0
                && self
                    .granted
                    .fetch_add(1, Ordering::Relaxed)
                    .is_multiple_of(10)
            {
                grant.units = 0;
            }
            Ok(grant)
        })
    }

    fn adjust<'a>(&'a self, batch: &'a AdjustmentBatch) -> BoxFuture<'a, Vec<AdjustmentResult>> {
        self.store.adjust(batch)
    }

    fn claim<'a>(
        &'a self,
        claims: &'a [PermitClaim],
    ) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>> {
        self.store.claim(claims)
    }

    fn timeout(&self) -> Duration {
        self.store.timeout()
    }
}

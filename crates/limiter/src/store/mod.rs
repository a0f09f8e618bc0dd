//! Where buckets are kept: the trait [`Store`] for requests and its messages, `hash_reader` for
//! plans, `inspect` for operators, and who implements them, `memory/` in this process and `redis/`
//! for a fleet.
//!
//! A store promises atomicity and a bound on its waiting. The arithmetic is [`crate::algorithm`]'s.

pub mod adjustment;
mod error;
pub mod fleet_share;
pub mod hash_reader;
pub mod inspect;
pub mod memory;
pub(crate) mod merged_charges;
#[cfg(feature = "redis-core")]
pub mod redis;
mod server;
pub(crate) mod usual_duration;

use std::num::NonZeroU64;
use std::time::Duration;

use futures_util::TryFutureExt;
use futures_util::future::BoxFuture;
use smallvec::SmallVec;
use tokio::time::timeout;

use crate::algorithm::concurrency::{GrantedPermits, PermitRequest};
use crate::algorithm::level::Level;
use crate::algorithm::quota::Quota;
use crate::algorithm::token_bucket::TokenBucket;
use crate::limit::key::Key;
use crate::store::adjustment::{AdjustmentBatch, AdjustmentResult};
pub use crate::store::error::StoreError;
pub use crate::store::server::{ServerId, StoreFailure};

/// The key of [`probe_bucket`]. `!` starts no limit's name, so no limit's bucket is probed away.
pub(crate) const PROBE_KEY: &str = "!probe";

/// A charge that one request makes to one bucket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BucketCharge {
    pub key: Key,
    pub quota: Quota,
    /// Tokens.
    pub cost: u64,
    /// The most tokens that any request of this limit costs, on whatever route. It decides, for all
    /// requests alike, whether the limit can be divided among nodes (see
    /// [`crate::algorithm::share`]).
    pub largest_cost: u64,
    /// The microseconds for which a node without the store admits its share of the limit. The
    /// others hold the share back for so long.
    pub local_us: u64,
}

impl BucketCharge {
    /// Whether tokens of the limit may be taken ahead.
    #[inline]
    pub fn is_leased(&self) -> bool {
        self.quota.lease_us() > 0
    }
}

/// Tokens that `charges` together take from the bucket of `charge`.
pub fn cost_of(charges: &[BucketCharge], charge: &BucketCharge) -> u64 {
    charges
        .iter()
        .filter(|other| other.key == charge.key)
        .map(|other| other.cost)
        .fold(0, u64::saturating_add)
}

/// Units granted, and the level of each bucket, in the order of the charges. Charges to keys that
/// hold a value which is not Tollgate's were not made, and had no part in the decision.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Grant {
    pub units: u32,
    pub levels: Levels,
    /// Microseconds of the store's own clock.
    pub at_us: u64,
    /// The places of the charges whose keys hold a foreign value. Nearly always none.
    pub foreign: SmallVec<[usize; 2]>,
    /// The levels of the whole limits, while parts of them are held back. Empty: they are the
    /// levels.
    pub whole: Box<[Level]>,
}

/// A level per charge. More than four limits on a request go to the heap.
pub type Levels = SmallVec<[Level; 4]>;

/// A node's claim of permits of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermitClaim {
    pub key: Key,
    /// Permits that the limit has in all.
    pub most: u64,
    /// The node that claims.
    pub node: u64,
    pub claim: PermitRequest,
}

/// Keeps buckets, and decides on charges to them.
pub trait Store: Send + Sync + 'static {
    /// Takes as many of `units` equal requests as each bucket has room for, and charges that many
    /// to each: all or nothing over the buckets. A denied unit charges nothing. Charges of the same
    /// key are taken together.
    ///
    /// Requests wait for [`Self::timeout`] at most. The limiter goes on polling a call that takes
    /// longer, for [`late_answer_limit`] at most: a late answer says that what they were granted
    /// meanwhile is charged already.
    ///
    /// # Errors
    /// When the store could not decide. What it was asked for is owed then.
    fn take<'a>(
        &'a self,
        charges: &'a [BucketCharge],
        units: u32,
    ) -> BoxFuture<'a, Result<Grant, StoreFailure>>;

    /// Corrects buckets: see [`Change`](adjustment::Change). A refund returns no more than the
    /// charge still weighs. The results are in the order of the adjustments. An error says that the
    /// correction was not made, or may not have been. A batch with an id may be sent again then, in
    /// whole or in part: nothing of it is made twice.
    fn adjust<'a>(&'a self, batch: &'a AdjustmentBatch) -> BoxFuture<'a, Vec<AdjustmentResult>>;

    /// Takes over a node's claims of permits for requests in flight. Of each key the node gets the
    /// permits that the others leave, for [`LEASE_US`](crate::algorithm::concurrency::LEASE_US).
    /// The answers are in the order of the claims.
    ///
    /// # Errors
    /// When the store did not do so, or may not have. The node's next claim puts it right.
    fn claim<'a>(
        &'a self,
        claims: &'a [PermitClaim],
    ) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>>;

    /// Finds out whether `server` decides within the time limit, by the script that requests use.
    ///
    /// # Errors
    /// When it does not.
    fn probe(&self, _server: ServerId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(probe_bucket(self, Key::from(PROBE_KEY)).map_err(|failure| failure.error))
    }

    /// The server that has the bucket of `key`, as far as is known.
    fn server_of(&self, _key: &Key) -> ServerId {
        ServerId::ONLY
    }

    /// The server that has the permits of `key`, as far as is known.
    fn server_of_permits(&self, _key: &Key) -> ServerId {
        ServerId::ONLY
    }

    /// The name of a server, for people. Empty, where there is only one.
    fn server_name(&self, _server: ServerId) -> String {
        String::new()
    }

    /// Whether [`Self::take`] charges several buckets in one step. Otherwise, units that one of
    /// them denies may be charged to others for a moment, and come back as a refund.
    fn charges_at_once(&self) -> bool {
        true
    }

    /// The longest that a request may wait for a call.
    fn timeout(&self) -> Duration;
}

/// The longest that a call goes on whose requests waited for `timeout` and gave up.
pub fn late_answer_limit(timeout: Duration) -> Duration {
    Duration::from_secs(1).max(timeout * 10)
}

/// Takes from a bucket of its own, wide enough to be granted, so that it proves writing too, within
/// the time limit of `store`.
pub(crate) async fn probe_bucket<S: Store + ?Sized>(
    store: &S,
    key: Key,
) -> Result<(), StoreFailure> {
    let plenty = NonZeroU64::MIN.saturating_add(1_000_000);
    let Ok(bucket) = TokenBucket::new(plenty, plenty, plenty) else {
        return Ok(());
    };
    let charge = BucketCharge {
        key,
        quota: bucket.into(),
        cost: 1,
        largest_cost: 1,
        local_us: u64::MAX,
    };
    let answer = timeout(
        store.timeout(),
        store.take(std::slice::from_ref(&charge), 1),
    )
    .await;
    answer
        .unwrap_or_else(|_| {
            Err(StoreFailure {
                server: store.server_of(&charge.key),
                error: StoreError::Timeout,
            })
        })
        .map(drop)
}

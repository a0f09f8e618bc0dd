//! Where buckets are kept: the trait [`Store`] for requests and its messages, `hash_reader` for plans, `inspect` for
//! operators, and who implements them, `memory/` in this process and `redis/` for a fleet.
//!
//! A store promises atomicity and a bound on its waiting. The arithmetic is [`crate::algorithm`]'s.

pub mod adjustment;
mod error;
pub mod fleet_share;
pub mod hash_reader;
pub mod inspect;
pub mod memory;
pub(crate) mod merged_charges;
#[cfg(feature = "redis")]
pub mod redis;

use std::time::Duration;

use futures_util::future::BoxFuture;
use smallvec::SmallVec;

use crate::algorithm::concurrency::{GrantedPermits, PermitRequest};
use crate::algorithm::level::Level;
use crate::algorithm::quota::Quota;
use crate::limit::key::Key;
use crate::store::adjustment::{AdjustmentBatch, AdjustmentResult};
pub use crate::store::error::StoreError;

/// A charge that one request makes to one bucket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BucketCharge {
    pub key: Key,
    pub quota: Quota,
    /// Tokens.
    pub cost: u64,
    /// The most tokens that any request of this limit costs, on whatever route. It decides, for all requests alike,
    /// whether the limit can be divided among nodes (see [`crate::algorithm::share`]).
    pub largest_cost: u64,
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
    charges.iter().filter(|other| other.key == charge.key).map(|other| other.cost).fold(0, u64::saturating_add)
}

/// Units granted, and the level of each bucket, in the order of the charges. Charges to keys that hold a value which is
/// not Tollgate's were not made, and had no part in the decision.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Grant {
    pub units: u32,
    pub levels: Levels,
    /// Microseconds of the store's own clock.
    pub at_us: u64,
    /// The places of the charges whose keys hold a foreign value. Nearly always none.
    pub foreign: SmallVec<[usize; 2]>,
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
    /// Takes as many of `units` equal requests as each bucket has room for, and charges that many to each: all or
    /// nothing over the buckets. A denied unit charges nothing. Charges of the same key are taken together.
    ///
    /// # Errors
    /// When the store could not decide. It has answered by then, or its own time limit has passed.
    fn take<'a>(&'a self, charges: &'a [BucketCharge], units: u32) -> BoxFuture<'a, Result<Grant, StoreError>>;

    /// Corrects buckets: see [`Change`](adjustment::Change). A refund returns no more than the charge still weighs. The
    /// results are in the order of the adjustments. An error says that the correction was not made, or may not have
    /// been. A batch with an id may be sent again then, in whole or in part: nothing of it is made twice.
    fn adjust<'a>(&'a self, batch: &'a AdjustmentBatch) -> BoxFuture<'a, Vec<AdjustmentResult>>;

    /// Takes over a node's claims of permits for requests in flight. Of each key the node gets the permits that the
    /// others leave, for [`LEASE_US`](crate::algorithm::concurrency::LEASE_US). The answers are in the order of the
    /// claims.
    ///
    /// # Errors
    /// When the store did not do so, or may not have. The node's next claim puts it right.
    fn claim<'a>(&'a self, claims: &'a [PermitClaim]) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>>;

    /// The longest that a call takes, and that a request may wait.
    fn timeout(&self) -> Duration;
}

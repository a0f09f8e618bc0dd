//! Where buckets live.
//!
//! A store promises atomicity and a bound on its waiting; what taking from a bucket means is [`crate::algorithm::token_bucket`]'s.

pub mod fields;
pub mod inspect;
pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;

use std::time::Duration;

use futures_util::future::BoxFuture;
use smallvec::SmallVec;

use crate::algorithm::concurrency::{GrantedPermits, PermitRequest};
use crate::algorithm::level::Level;
use crate::algorithm::quota::Quota;
use crate::limit::key::Key;

/// What one request takes of one bucket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BucketCharge {
    pub key: Key,
    pub quota: Quota,
    /// Tokens.
    pub cost: u64,
    /// The most tokens that any request of this limit costs, on whatever route. It decides, for all requests alike, whether
    /// the limit can be divided among nodes (see [`crate::algorithm::share`]).
    pub largest_cost: u64,
}

impl BucketCharge {
    /// Whether tokens of the limit may be taken ahead.
    #[inline]
    pub fn is_leased(&self) -> bool {
        self.quota.lease_us() > 0
    }
}

/// Tokens that `charges` take together of the bucket of `charge`.
pub fn cost_of(charges: &[BucketCharge], charge: &BucketCharge) -> u64 {
    charges.iter().filter(|other| other.key == charge.key).map(|other| other.cost).fold(0, u64::saturating_add)
}

/// Units granted, and the level of each asked bucket, in the order of the charges.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Grant {
    pub units: u32,
    pub levels: Levels,
    /// Microseconds of the store's own clock.
    pub at_us: u64,
}

/// What happened to a bucket outside of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adjustment {
    pub key: Key,
    pub quota: Quota,
    pub change: Change,
}

/// In what [`Quota::charge`] makes of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// So much was admitted without asking.
    ForceCharge(u64),
    /// So much is what a request turned out to cost beside what was granted: all of them count, however little the
    /// bucket or window holds.
    Charge(u64),
    /// So much, of what was granted at `taken_at_us` of the store's clock, was not spent and never will be.
    Refund { charge: u64, taken_at_us: u64 },
}

/// One level per charge. More than four limits on a request go to the heap.
pub type Levels = SmallVec<[Level; 4]>;

/// What a node says of the slots that it holds of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermitClaim {
    pub key: Key,
    /// Slots in all.
    pub most: u64,
    /// Who says it.
    pub node: u64,
    pub claim: PermitRequest,
}

/// A place that keeps buckets.
pub trait Store: Send + Sync + 'static {
    /// Takes as many of `units` equal requests as every asked bucket has room for, and charges that many to each: all or
    /// nothing over the buckets. A denied unit charges nothing. Charges of the same key are taken together.
    ///
    /// # Errors
    /// When the store could not decide. It has answered by then, or its own time limit has passed.
    fn take<'a>(&'a self, charges: &'a [BucketCharge], units: u32) -> BoxFuture<'a, Result<Grant, StoreError>>;

    /// Corrects buckets. Owing makes a bucket at most empty, a charge leaves it short of all it is; giving back returns no more than the charge still weighs.
    ///
    /// # Errors
    /// When the store did not do so, or may not have. Giving back must not be tried again then.
    fn adjust<'a>(&'a self, adjustments: &'a [Adjustment]) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Takes over what a node says of its slots for requests in flight: of each key it gets what the others leave, for
    /// [`LEASE_US`](crate::algorithm::concurrency::LEASE_US). In the order of the claims.
    ///
    /// # Errors
    /// When the store did not do so, or may not have: the next word of the node puts it right.
    fn claim<'a>(&'a self, claims: &'a [PermitClaim]) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>>;

    /// The longest that a call takes, and that a request may wait.
    fn timeout(&self) -> Duration;
}

/// Why a store could not decide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("no answer in time")]
    Timeout,
    #[error("the connection is down")]
    Io,
    /// A replica, or a primary that protects itself.
    #[error("the server takes no writes")]
    ReadOnly,
    #[error("the server is loading its data")]
    Loading,
    #[error("the server is out of memory")]
    OutOfMemory,
    /// Also a cluster that is down.
    #[error("the key lives on another server")]
    Moved,
    #[error("the server refuses the credentials or their permissions")]
    Auth,
    #[error("the server is busy with a script")]
    Busy,
    /// More calls in flight than the client takes.
    #[error("too many calls wait for the server")]
    Overloaded,
    /// An answer that is not what the script replies.
    #[error("the server's answer makes no sense")]
    Protocol,
    #[error("the script failed: {0}")]
    Script(Box<str>),
}

impl StoreError {
    /// Every value of [`Self::as_str`], at its [`Self::index`].
    pub const NAMES: [&'static str; 11] = [
        "timeout",
        "io",
        "read_only",
        "loading",
        "out_of_memory",
        "moved",
        "auth",
        "busy",
        "overloaded",
        "protocol",
        "script",
    ];

    /// The place of this kind in [`Self::NAMES`].
    pub fn index(&self) -> usize {
        match self {
            Self::Timeout => 0,
            Self::Io => 1,
            Self::ReadOnly => 2,
            Self::Loading => 3,
            Self::OutOfMemory => 4,
            Self::Moved => 5,
            Self::Auth => 6,
            Self::Busy => 7,
            Self::Overloaded => 8,
            Self::Protocol => 9,
            Self::Script(_) => 10,
        }
    }

    /// The value of the `outcome` metric label.
    pub fn as_str(&self) -> &'static str {
        Self::NAMES[self.index()]
    }
}

/// The buckets of one request, each once: a limit that is asked twice, by the listener and by the route, is one charge.
pub(crate) struct MergedCharges<'a> {
    pub list: SmallVec<[MergedCharge<'a>; 4]>,
    /// For each charge asked for, its place in the list.
    places: SmallVec<[usize; 4]>,
}

/// One bucket to charge.
pub(crate) struct MergedCharge<'a> {
    pub key: &'a [u8],
    pub quota: Quota,
    pub cost: u64,
    pub largest_cost: u64,
}

impl<'a> MergedCharge<'a> {
    /// Of a charge that stands alone.
    pub fn of(charge: &'a BucketCharge) -> Self {
        let BucketCharge { ref key, quota, cost, largest_cost } = *charge;
        Self { key: key.as_bytes(), quota, cost, largest_cost }
    }
}

impl<'a> MergedCharges<'a> {
    pub fn of(charges: &'a [BucketCharge]) -> Self {
        let mut merged = Self { list: SmallVec::new(), places: SmallVec::new() };
        for charge in charges {
            let place = merged.place(charge);
            merged.places.push(place);
        }
        merged
    }

    fn place(&mut self, charge: &'a BucketCharge) -> usize {
        let key = charge.key.as_bytes();
        if let Some(place) = self.list.iter().position(|known| known.key == key) {
            let known = &mut self.list[place];
            known.cost = known.cost.saturating_add(charge.cost);
            return place;
        }
        self.list.push(MergedCharge::of(charge));
        self.list.len() - 1
    }

    /// The level of each charge's bucket, in the order of the charges.
    pub fn spread(&self, levels: &[Level]) -> Levels {
        self.places.iter().filter_map(|place| levels.get(*place).copied()).collect()
    }
}

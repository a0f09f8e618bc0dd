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
use crate::limit::spec::OnOutage;

/// What one request asks of one bucket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ask {
    pub key: Key,
    pub quota: Quota,
    /// Tokens.
    pub cost: u64,
    /// The most tokens that any request of this limit costs, on whatever route: decides, the same for all of them, whether
    /// the limit can be shared out among nodes (see [`crate::algorithm::share`]).
    pub largest_cost: u64,
    pub on_outage: OnOutage,
    /// The cost is a reservation, of which a part may come back any time.
    pub settled_later: bool,
}

/// Tokens that `asks` take together of the bucket of `ask`.
pub fn cost_of(asks: &[Ask], ask: &Ask) -> u64 {
    asks.iter().filter(|other| other.key == ask.key).map(|other| other.cost).fold(0, u64::saturating_add)
}

/// Units granted, and the level of each asked bucket, in the order of the asks.
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
    Owe(u64),
    /// So much is what a request turned out to cost beside what was granted: all of them count, however little the
    /// bucket or window holds.
    Charge(u64),
    /// So much, of what was granted at `taken_at_us` of the store's clock, was not spent and never will be.
    GiveBack { charge: u64, taken_at_us: u64 },
}

/// One level per ask. More than four limits on a request go to the heap.
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
    /// nothing over the buckets. A denied unit charges nothing. Asks of the same key are charged their costs together.
    ///
    /// # Errors
    /// When the store could not decide. It has answered by then, or its own time limit has passed.
    fn take<'a>(&'a self, asks: &'a [Ask], units: u32) -> BoxFuture<'a, Result<Grant, StoreError>>;

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
pub(crate) struct BucketCharges<'a> {
    pub list: SmallVec<[BucketCharge<'a>; 4]>,
    /// For each ask, its charge's place in the list.
    places: SmallVec<[usize; 4]>,
}

/// One bucket to charge.
pub(crate) struct BucketCharge<'a> {
    pub key: &'a [u8],
    pub quota: Quota,
    pub cost: u64,
    pub largest_cost: u64,
}

impl<'a> BucketCharge<'a> {
    /// Of an ask that stands alone.
    pub fn of(ask: &'a Ask) -> Self {
        Self { key: ask.key.as_bytes(), quota: ask.quota, cost: ask.cost, largest_cost: ask.largest_cost }
    }
}

impl<'a> BucketCharges<'a> {
    pub fn of(asks: &'a [Ask]) -> Self {
        let mut charges = Self { list: SmallVec::new(), places: SmallVec::new() };
        for ask in asks {
            let place = charges.place(ask);
            charges.places.push(place);
        }
        charges
    }

    fn place(&mut self, ask: &'a Ask) -> usize {
        let key = ask.key.as_bytes();
        if let Some(place) = self.list.iter().position(|charge| charge.key == key) {
            let charge = &mut self.list[place];
            charge.cost = charge.cost.saturating_add(ask.cost);
            return place;
        }
        self.list.push(BucketCharge::of(ask));
        self.list.len() - 1
    }

    /// Hands each ask the level of its bucket.
    pub fn spread(&self, levels: &[Level]) -> Levels {
        self.places.iter().filter_map(|place| levels.get(*place).copied()).collect()
    }
}

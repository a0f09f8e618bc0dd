//! Reads single buckets, and grants them tokens, for operators.
//!
//! Beside [`Store`](crate::store::Store) and not part of it: nothing here is on a request's way.
//! Guarantees that reading changes nothing, and that no bucket ever gets more than full.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::algorithm::level::Level;
use crate::algorithm::quota::Quota;
use crate::algorithm::state::QuotaState;
use crate::limit::key::Key;
use crate::store::{BucketCharge, ServerId, StoreError};

/// Tokens that an operator grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenGrant {
    /// This number of tokens, or as many as the bucket has room for.
    Tokens(u64),
    /// Enough tokens to fill the bucket.
    All,
}

/// The state of a bucket or window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketState {
    /// The parts that the limit is divided into: a level is that of one of them.
    pub parts: u32,
    /// The tokens in it, as the limit counts them.
    pub state: QuotaState,
}

/// A bucket before and after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeforeAndAfter {
    pub before: BucketState,
    pub after: BucketState,
}

/// A change that an operator made through some node, for each node that keeps state of that bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeNotice {
    pub key: Key,
    /// Microseconds until the bucket is full again, at most, by the rate that it was last charged
    /// at.
    pub full_in_us: u64,
}

/// A node of the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetNode {
    /// Chosen by chance when its process began.
    pub id: String,
    /// Since it was last heard of.
    pub heard_of: Duration,
    /// The node's statement about itself. Empty: the node says nothing, or is of an older version.
    pub statement: Vec<u8>,
}

/// Buckets that operators can read. Of a [`BucketCharge`], only key and quota count; nothing is
/// taken.
pub trait Inspect: Send + Sync + 'static {
    /// The bucket, unchanged.
    ///
    /// # Errors
    /// When the store could not be asked.
    fn peek<'a>(
        &'a self,
        charge: &'a BucketCharge,
    ) -> BoxFuture<'a, Result<BucketState, StoreError>>;

    /// Permits of requests in flight that the nodes hold of `key`.
    ///
    /// # Errors
    /// When the store could not be asked.
    fn permits_in_use<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<u64, StoreError>>;

    /// Grants tokens.
    ///
    /// # Errors
    /// When the store could not be asked. After [`StoreError::Timeout`] it may have been,
    /// nevertheless.
    fn grant<'a>(
        &'a self,
        charge: &'a BucketCharge,
        tokens: TokenGrant,
    ) -> BoxFuture<'a, Result<BeforeAndAfter, StoreError>>;

    /// Publishes a change to all nodes.
    ///
    /// # Errors
    /// When the store could not be asked: other nodes go by their own state until it has expired.
    fn publish<'a>(&'a self, notice: &'a ChangeNotice) -> BoxFuture<'a, Result<(), StoreError>>;

    /// The nodes of the fleet, by rank. Those that have been silent for the store's `autonomy` are
    /// not among them.
    ///
    /// # Errors
    /// When the store could not be asked.
    fn nodes(&self) -> BoxFuture<'_, Result<Vec<FleetNode>, StoreError>>;

    /// The server that has the bucket of `key`, as far as is known.
    fn server_of(&self, _key: &Key) -> ServerId {
        ServerId::ONLY
    }

    /// The server that has the permits of `key`, as far as is known.
    fn server_of_permits(&self, _key: &Key) -> ServerId {
        ServerId::ONLY
    }
}

/// Keeps state of the shared store's buckets in this process: a local copy, a denial, tokens taken
/// ahead.
pub trait CacheListener: Send + Sync + 'static {
    /// Holds nothing against the bucket beyond `full_in_us` from `now_us` on. `quota` is the
    /// limit's own, whatever plan the bucket's client has.
    fn lower(&self, key: &Key, quota: Quota, full_in_us: u64, now_us: u64);
}

impl BucketState {
    /// A bucket that is not divided.
    pub fn whole(state: QuotaState) -> Self {
        Self { parts: 1, state }
    }

    /// The level that a request of `cost` would meet. Nothing is taken.
    pub fn level(&self, cost: u64) -> Level {
        self.state.level(self.parts, cost)
    }

    /// The state after a grant.
    #[must_use]
    pub fn granted(&self, tokens: TokenGrant) -> Self {
        let mut granted = self.clone();
        tokens.apply(&mut granted.state);
        granted
    }

    /// Microseconds until the bucket is full, by the rate that it is stored with: that of a
    /// client's plan, which need not be the limit's.
    pub fn full_in_us(&self) -> u64 {
        self.state.full_in_us()
    }
}

impl TokenGrant {
    /// Makes the grant.
    pub fn apply(self, state: &mut QuotaState) {
        match self {
            Self::All => state.lower_to(0),
            Self::Tokens(tokens) => state.grant(tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::algorithm::state::StoredState;
    use crate::algorithm::token_bucket::TokenBucket;
    use crate::algorithm::token_bucket::conversion::Backlog;
    use crate::algorithm::window::Timestamp;

    fn shape() -> TokenBucket {
        fn nonzero(number: u64) -> NonZeroU64 {
            NonZeroU64::new(number).unwrap()
        }
        TokenBucket::new(nonzero(10), nonzero(1_000_000), nonzero(20)).unwrap()
    }

    fn lacking(ticks: u64, by: TokenBucket) -> BucketState {
        let kept = StoredState::TokenBucket(Backlog {
            ticks,
            tick_rate: by.tick_rate(),
        });
        BucketState::whole(kept.read_as(shape().into(), Timestamp::default()))
    }

    #[test]
    fn a_level_is_what_a_request_would_meet_and_takes_nothing() {
        let used = shape().charge(15);
        fn level(ticks: u64, cost: u64) -> Level {
            lacking(ticks, shape()).level(cost)
        }
        assert_eq!(
            level(0, 1),
            Level {
                remaining: 20,
                retry_after_us: 0,
                reset_after_us: 0
            }
        );
        assert_eq!(
            level(used, 5),
            Level {
                remaining: 5,
                retry_after_us: 0,
                reset_after_us: 1_500_000
            }
        );
        assert_eq!(level(used, 6).retry_after_us, 100_000);
    }

    #[test]
    fn a_grant_never_makes_more_than_full() {
        fn left(tokens: TokenGrant, ticks: u64) -> u64 {
            lacking(ticks, shape()).granted(tokens).level(1).remaining
        }
        let used = shape().charge(15);
        assert_eq!(left(TokenGrant::Tokens(5), used), 10);
        assert_eq!(left(TokenGrant::Tokens(u64::MAX), used), 20);
        assert_eq!(left(TokenGrant::All, used), 20);
        assert_eq!(left(TokenGrant::Tokens(5), shape().charge(90)), 5);
    }

    #[test]
    fn a_grant_counts_in_tokens_whatever_limit_the_bucket_is_stored_by() {
        fn nonzero(number: u64) -> NonZeroU64 {
            NonZeroU64::new(number).unwrap()
        }
        let plan = TokenBucket::new(nonzero(1_000), nonzero(1_000_000), nonzero(500)).unwrap();
        let seen = lacking(plan.charge(18), plan);
        let granted = seen.granted(TokenGrant::Tokens(5));
        assert_eq!(
            (granted.level(1).remaining, granted.full_in_us()),
            (7, 13_000)
        );
        let share = BucketState { parts: 2, ..seen };
        assert_eq!(
            (
                share.level(1).remaining,
                share.granted(TokenGrant::Tokens(5)).level(1).remaining
            ),
            (1, 3)
        );
    }
}

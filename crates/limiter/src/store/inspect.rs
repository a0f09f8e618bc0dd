//! Looking at single buckets, and giving tokens back, on an operator's behalf.
//!
//! Beside [`Store`](crate::store::Store) and not part of it: nothing here is on a request's way. Guarantees that a look changes
//! nothing, and that no bucket ever gets more than full. Refuses to know who charges and why.

use futures_util::future::BoxFuture;

use crate::algorithm::level::Level;
use crate::algorithm::quota::Quota;
use crate::algorithm::state::QuotaState;
use crate::limit::key::Key;
use crate::store::{BucketCharge, StoreError};

/// What is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenGrant {
    /// As many tokens, as far as the bucket takes them.
    Tokens(u64),
    /// All: the bucket is full.
    All,
}

/// A bucket or window as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketState {
    /// The limit's, or this node's share of it.
    pub part: Quota,
    /// What there is of it, as the limit sees it.
    pub state: QuotaState,
}

/// The same before and after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeforeAndAfter {
    pub before: BucketState,
    pub after: BucketState,
}

/// A change that some node made, for all that keep something of that bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeNotice {
    pub key: Key,
    /// Microseconds until the bucket is full again, at most, by the rate that it was last charged at.
    pub full_in_us: u64,
}

/// Buckets that can be looked at. Of a [`BucketCharge`], only key and quota count; nothing is taken.
pub trait Inspect: Send + Sync + 'static {
    /// The bucket, unchanged.
    ///
    /// # Errors
    /// When the store could not be asked.
    fn peek<'a>(&'a self, charge: &'a BucketCharge) -> BoxFuture<'a, Result<BucketState, StoreError>>;

    /// Permits of requests in flight that the nodes hold of `key`.
    ///
    /// # Errors
    /// When the store could not be asked.
    fn permits_in_use<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<u64, StoreError>>;

    /// Gives back.
    ///
    /// # Errors
    /// When the store could not be asked. After [`StoreError::Timeout`] it may have been, nevertheless.
    fn give<'a>(
        &'a self,
        charge: &'a BucketCharge,
        gift: TokenGrant,
    ) -> BoxFuture<'a, Result<BeforeAndAfter, StoreError>>;

    /// Tells every node of a change.
    ///
    /// # Errors
    /// When the store could not be asked: other nodes go by what they hold until time has taken it away.
    fn tell<'a>(&'a self, notice: &'a ChangeNotice) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// Something that keeps, in this process, what the shared store said of buckets: a warm copy, a denial, tokens taken ahead.
pub trait CacheListener: Send + Sync + 'static {
    /// Holds nothing against the bucket beyond `full_in_us` from `now_us` on. `quota` is the limit's own, whatever plan the
    /// bucket's client has.
    fn lower(&self, key: &Key, quota: Quota, full_in_us: u64, now_us: u64);
}

impl BucketState {
    /// What a request of `cost` would meet. It takes nothing.
    pub fn level(&self, cost: u64) -> Level {
        self.state.level(self.part, cost)
    }

    /// What would become of it.
    #[must_use]
    pub fn given(&self, gift: TokenGrant) -> Self {
        Self { part: self.part, state: gift.applied(self.state.clone()) }
    }

    /// Microseconds until all is back, by the rate that it is kept by: that of a client's plan, which need not be the limit's.
    pub fn full_in_us(&self) -> u64 {
        self.state.full_in_us()
    }
}

impl TokenGrant {
    /// What `state` becomes.
    pub fn applied(self, state: QuotaState) -> QuotaState {
        match self {
            Self::All => state.full_by(0),
            Self::Tokens(tokens) => state.grant(tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::algorithm::conversion::Backlog;
    use crate::algorithm::state::StoredState;
    use crate::algorithm::token_bucket::TokenBucket;
    use crate::algorithm::window::Timestamp;

    fn shape() -> TokenBucket {
        let nonzero = |number| NonZeroU64::new(number).unwrap();
        TokenBucket::new(nonzero(10), nonzero(1_000_000), nonzero(20)).unwrap()
    }

    fn lacking(ticks: u64, by: TokenBucket) -> BucketState {
        let kept = StoredState::TokenBucket(Backlog { ticks, tick_rate: by.tick_rate() });
        BucketState { part: shape().into(), state: kept.read_as(shape().into(), Timestamp::default()) }
    }

    #[test]
    fn a_level_tells_what_a_request_would_meet_and_takes_nothing() {
        let used = shape().charge(15);
        let level = |ticks, cost| lacking(ticks, shape()).level(cost);
        assert_eq!(level(0, 1), Level { remaining: 20, retry_after_us: 0, reset_after_us: 0 });
        assert_eq!(level(used, 5), Level { remaining: 5, retry_after_us: 0, reset_after_us: 1_500_000 });
        assert_eq!(level(used, 6).retry_after_us, 100_000);
    }

    #[test]
    fn a_gift_never_makes_more_than_full() {
        let left = |gift: TokenGrant, ticks| lacking(ticks, shape()).given(gift).level(1).remaining;
        let used = shape().charge(15);
        assert_eq!(left(TokenGrant::Tokens(5), used), 10);
        assert_eq!(left(TokenGrant::Tokens(u64::MAX), used), 20);
        assert_eq!(left(TokenGrant::All, used), 20);
        assert_eq!(left(TokenGrant::Tokens(5), shape().charge(90)), 5);
    }

    #[test]
    fn a_gift_counts_in_tokens_whatever_limit_the_bucket_is_stored_by() {
        let nonzero = |number| NonZeroU64::new(number).unwrap();
        let plan = TokenBucket::new(nonzero(1_000), nonzero(1_000_000), nonzero(500)).unwrap();
        let seen = lacking(plan.charge(18), plan);
        let given = seen.given(TokenGrant::Tokens(5));
        assert_eq!((given.level(1).remaining, given.full_in_us()), (7, 13_000));
        let share = BucketState { part: Quota::from(shape()).shared_by(2), ..seen };
        assert_eq!((share.level(1).remaining, share.given(TokenGrant::Tokens(5)).level(1).remaining), (1, 3));
    }
}

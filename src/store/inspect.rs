//! Looking at single buckets, and giving tokens back, on an operator's behalf.
//!
//! Beside [`Store`](super::Store) and not part of it: nothing here is on a request's way. Guarantees that a look changes
//! nothing, and that no bucket ever gets more than full. Refuses to know who asks and why.

use futures_util::future::BoxFuture;

use super::{Ask, StoreError};
use crate::rate_limit::bucket::Shape;
use crate::rate_limit::carry::Carried;
use crate::rate_limit::decision::Level;
use crate::rate_limit::key::Key;

/// What is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gift {
    /// As many tokens, as far as the bucket takes them.
    Tokens(u64),
    /// All: the bucket is full.
    All,
}

/// A bucket as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The limit's, or this node's share of it.
    pub shape: Shape,
    /// What it lacks, as the limit sees it.
    pub carried: Carried,
    /// Microseconds until it is full by the rate that it is stored by: that of a client's plan, which the shape need not be.
    pub full_in_us: u64,
}

/// A bucket before and after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    pub before: Seen,
    pub after: Seen,
}

/// A change that some node made, for all that keep something of that bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub key: Key,
    /// Microseconds until the bucket is full again, at most, by the rate that it was last charged at.
    pub full_in_us: u64,
}

/// Buckets that can be looked at. Of an [`Ask`], only key and shape count; nothing is taken.
pub trait Inspect: Send + Sync + 'static {
    /// The bucket, unchanged.
    ///
    /// # Errors
    /// When the store could not be asked.
    fn peek<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Result<Seen, StoreError>>;

    /// Gives back.
    ///
    /// # Errors
    /// When the store could not be asked. After [`StoreError::Timeout`] it may have been, nevertheless.
    fn give<'a>(&'a self, ask: &'a Ask, gift: Gift) -> BoxFuture<'a, Result<Changed, StoreError>>;

    /// Tells every node of a change.
    ///
    /// # Errors
    /// When the store could not be asked: other nodes go by what they hold until time has taken it away.
    fn tell<'a>(&'a self, notice: &'a Notice) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// Something that keeps, in this process, what the shared store said of buckets: a warm copy, a denial, tokens taken ahead.
pub trait Holder: Send + Sync + 'static {
    /// Holds nothing against the bucket beyond `full_in_us` from `now_us` on. `shape` is the limit's own, whatever plan the
    /// bucket's client has.
    fn lower(&self, key: &Key, shape: Shape, full_in_us: u64, now_us: u64);
}

impl Seen {
    /// What a request of `cost` would meet. It takes nothing.
    pub fn level(&self, cost: u64) -> Level {
        let seen = self.carried.settle(self.shape, cost, 0, 1);
        Level { remaining: seen.remaining, retry_after_us: seen.retry_after_us, reset_after_us: seen.reset_after_us }
    }

    /// What would become of it.
    pub fn given(self, gift: Gift) -> Self {
        Self::of(self.shape, gift.applied(self.shape, self.carried))
    }

    /// A bucket as `shape` has it, the limit or a share of it, when the limit sees it so.
    pub fn of(shape: Shape, carried: Carried) -> Self {
        Self { shape, carried, full_in_us: carried.kept.pace.micros(carried.kept.ticks) }
    }
}

impl Gift {
    /// What is missing then of what `carried` is as `shape` has it, the limit or a share of it. What was consumed beyond its
    /// burst is given besides, or what is given would not show.
    pub fn applied(self, shape: Shape, carried: Carried) -> Carried {
        match self {
            Self::All => carried.lowered(0),
            Self::Tokens(tokens) => {
                let missing = carried.kept.ticks.min(carried.as_kept(shape.capacity()));
                carried.lowered(missing.saturating_sub(carried.as_kept(shape.charge(tokens))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::rate_limit::carry::Backlog;

    fn shape() -> Shape {
        let nonzero = |number| NonZeroU64::new(number).unwrap();
        Shape::new(nonzero(10), nonzero(1_000_000), nonzero(20)).unwrap()
    }

    fn lacking(ticks: u64) -> Carried {
        Backlog { ticks, pace: shape().pace() }.carried(shape())
    }

    #[test]
    fn a_level_tells_what_a_request_would_meet_and_takes_nothing() {
        let used = shape().charge(15);
        let level = |ticks, cost| Seen::of(shape(), lacking(ticks)).level(cost);
        assert_eq!(level(0, 1), Level { remaining: 20, retry_after_us: 0, reset_after_us: 0 });
        assert_eq!(level(used, 5), Level { remaining: 5, retry_after_us: 0, reset_after_us: 1_500_000 });
        assert_eq!(level(used, 6).retry_after_us, 100_000);
    }

    #[test]
    fn a_gift_never_makes_more_than_full() {
        let used = lacking(shape().charge(15));
        let left = |gift: Gift, carried| gift.applied(shape(), carried).backlog;
        assert_eq!(left(Gift::Tokens(5), used), shape().charge(10));
        assert_eq!(left(Gift::Tokens(u64::MAX), used), 0);
        assert_eq!(left(Gift::All, used), 0);
        assert_eq!(left(Gift::Tokens(5), lacking(shape().charge(90))), shape().charge(15));
    }

    #[test]
    fn a_gift_counts_in_tokens_whatever_limit_the_bucket_is_stored_by() {
        let nonzero = |number| NonZeroU64::new(number).unwrap();
        let plan = Shape::new(nonzero(1_000), nonzero(1_000_000), nonzero(500)).unwrap();
        let carried = Backlog { ticks: plan.charge(18), pace: plan.pace() }.carried(shape());
        let seen = Seen::of(shape(), carried).given(Gift::Tokens(5));
        assert_eq!((seen.level(1).remaining, seen.full_in_us), (7, 13_000));
        let share = Seen::of(shape().shared_by(2), carried);
        assert_eq!((share.level(1).remaining, share.given(Gift::Tokens(5)).level(1).remaining), (1, 6));
    }
}

//! Corrections of buckets, for what happened outside of the store, and batches of them that are
//! made once.
//!
//! A batch that may be sent again has an id, and each of its adjustments keeps its place: the store
//! remembers, by both, what it has made.

use crate::algorithm::quota::Quota;
use crate::limit::key::Key;
use crate::store::StoreError;

/// A correction of a bucket, for something that happened outside of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adjustment {
    pub key: Key,
    pub quota: Quota,
    pub change: Change,
}

/// A correction, in the unit of [`Quota::charge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Tokens that were admitted without asking the store, or that a request turned out to cost
    /// beyond its grant. All of them count, however little the bucket or window has left; tokens
    /// that flowed in since `since_us` may pay for them. That is a time of this process's monotonic
    /// clock; one in the future counts as now.
    Charge { charge: u64, since_us: u64 },
    /// The unspent part of a grant, which was made at `taken_at_us` of the store's clock. It never
    /// will be spent.
    Refund { charge: u64, taken_at_us: u64 },
}

/// The outcome of an adjustment: in an error, the reason why it was not made or confirmed.
pub type AdjustmentResult = Result<AdjustmentOutcome, StoreError>;

/// The store's answer for an adjustment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdjustmentOutcome {
    /// The adjustment was made, now or when the batch was sent before.
    Applied,
    /// The key holds a value that is not Tollgate's. It stays as it is.
    Foreign,
    /// Tokens of the key are out by another algorithm: the limit began anew, or is about to. They
    /// stay as they are.
    OtherAlgorithm,
}

/// The outcome of a call with these results: the first error, if there is one.
pub fn summary(results: &[AdjustmentResult]) -> Result<(), StoreError> {
    results
        .iter()
        .find_map(|result| result.as_ref().err())
        .map_or(Ok(()), |error| Err(error.clone()))
}

/// The name of a batch: no two batches of a fleet have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchId {
    /// The process that sends it, a number of its own choice.
    pub node: u64,
    /// Among its batches, from 1 on.
    pub number: u64,
}

/// Adjustments that are sent together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdjustmentBatch {
    /// `None`: it is sent once, whatever becomes of it.
    pub id: Option<BatchId>,
    /// Adjustments that are still to be made.
    adjustments: Vec<PlacedAdjustment>,
}

/// An adjustment and its place in its batch, which it keeps when others are done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedAdjustment {
    /// From 1 on.
    pub place: u32,
    pub adjustment: Adjustment,
}

impl AdjustmentBatch {
    /// A batch that may be sent again.
    pub fn new(id: BatchId, adjustments: Vec<Adjustment>) -> Self {
        Self {
            id: Some(id),
            ..Self::once(adjustments)
        }
    }

    /// A batch that is sent once.
    pub fn once(adjustments: Vec<Adjustment>) -> Self {
        let placed = (1..)
            .zip(adjustments)
            .map(|(place, adjustment)| PlacedAdjustment { place, adjustment });
        Self {
            id: None,
            adjustments: placed.collect(),
        }
    }

    /// The adjustments that are still to be made, with their places.
    pub fn placed(&self) -> &[PlacedAdjustment] {
        &self.adjustments
    }

    /// The adjustments that are still to be made.
    pub fn iter(&self) -> impl Iterator<Item = &Adjustment> {
        self.adjustments.iter().map(|placed| &placed.adjustment)
    }

    pub fn len(&self) -> usize {
        self.adjustments.len()
    }

    pub fn is_empty(&self) -> bool {
        self.adjustments.is_empty()
    }

    /// Keeps the adjustments of `places` only.
    pub fn retain_places(&mut self, places: &[u32]) {
        self.adjustments
            .retain(|placed| places.contains(&placed.place));
    }

    /// Changes the adjustments of `key`. Those for which `change` answers `false` are dropped.
    pub fn change(&mut self, key: &Key, mut change: impl FnMut(&mut Adjustment) -> bool) {
        self.adjustments
            .retain_mut(|placed| placed.adjustment.key != *key || change(&mut placed.adjustment));
    }
}

//! Debts: tokens that this node admitted without asking the store, until they are charged there.
//!
//! A node of n admits one token for each n-th of the limit's rate and burst that its local bucket
//! has. A token weighs n in that bucket, and one in the limit. So the debt to the limit is the n-th
//! part of the tokens that all local buckets count beyond the store's level. A node keeps its own
//! n-th of it: each token adds one token's time, which flows off at an n-th of the limit's rate. It
//! flows off only once the tokens of the store's level have flowed off as well, since these flow
//! off in the store itself. The store's own level plus all debts is then the mean of the local
//! levels, and at least the level that the store would have, had it been asked for each token. (The
//! highest local level would be safe as well, and simpler; but one busy node would then empty the
//! bucket for all.)
//!
//! A part that flowed off a moment ago stays owed for a while: see [`bucket_debt`].
//!
//! In a window, a token of a node's share takes n of the local quota, and the tokens that the nodes
//! admit beside the store's count are at most the rest of the quota. They are owed token by token,
//! until the end of the window that they were taken in.
//!
//! A limit whose algorithm changes begins anew, and what it owed by the old one is dropped.
//!
//! Guarantees that otherwise all that was admitted is owed, also beyond a full bucket: a part that
//! was cut off would be admitted again. Guarantees a bound on the number of debts: beyond it, the
//! smallest of a few is waived and counted. From here a debt goes to the
//! [`outbox`](crate::node::outbox), which charges it once.

mod bucket_debt;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use metrics::{Counter, counter};
use tokio::sync::Notify;

use crate::algorithm::quota::Quota;
use crate::algorithm::window::{Timestamp, WindowEntries};
use crate::limit::key::Key;
use crate::node::bounded_table::BoundedTable;
use crate::node::debt::bucket_debt::BucketDebt;
use crate::store::BucketCharge;
use crate::store::adjustment::{Adjustment, Change};

/// Buckets with debts, about 200 bytes each.
const CAPACITY: usize = 65_536;

/// A node has one.
pub(crate) struct Debts {
    table: BoundedTable<Debt>,
    any: AtomicBool,
    /// The set of the table at which the next search begins.
    next_set: AtomicUsize,
    incurred: Notify,
    waived: Counter,
}

#[derive(Clone)]
enum Debt {
    Bucket(BucketDebt),
    /// Tokens, until their window's end.
    Window {
        quota: Quota,
        entries: WindowEntries,
    },
}

impl Debts {
    pub fn new() -> Self {
        Self {
            table: BoundedTable::new(CAPACITY),
            any: AtomicBool::new(false),
            next_set: AtomicUsize::new(0),
            incurred: Notify::new(),
            waived: counter!("tollgate_store_debts_waived_total"),
        }
    }

    /// Adds a grant of `charge`, from one of `parts` of the limit. For `known_us` more, the level
    /// that the store last had flows off.
    pub fn incur(&self, charge: &BucketCharge, parts: u32, known_us: u64, at: Timestamp) {
        let quota = charge.quota;
        let flows_from_us = at.now_us.saturating_add(known_us);
        let empty = Debt::new(quota, flows_from_us, parts.max(1));
        let (_, displaced) = self.table.upsert(
            &charge.key,
            || empty.clone(),
            |debt| debt.left_us(at.now_us),
            |debt| {
                debt.flow(at.now_us);
                if !debt.owe(quota, quota.charge(charge.cost), at) {
                    *debt = empty.clone();
                    self.waived.increment(1);
                    debt.owe(quota, quota.charge(charge.cost), at);
                }
            },
        );
        if displaced.is_some_and(|debt| debt.left_us(at.now_us) > 0) {
            self.waived.increment(1);
        }
        if !self.any.swap(true, Ordering::AcqRel) {
            self.incurred.notify_one();
        }
    }

    /// Waits until there is a debt.
    pub async fn until_owed(&self) {
        while !self.any.load(Ordering::Acquire) {
            self.incurred.notified().await;
        }
    }

    /// Takes out about `at_most` debts whose key is `wanted`, as of `now_us`: empty when there are
    /// none.
    pub fn collect(
        &self,
        now_us: u64,
        at_most: usize,
        wanted: impl Fn(&Key) -> bool,
    ) -> Vec<Adjustment> {
        self.any.store(false, Ordering::Release);
        let mut owed = Vec::new();
        while owed.len() < at_most {
            let from = self.next_set.load(Ordering::Relaxed);
            let (taken, next) = self.table.extract(from, at_most - owed.len(), &wanted);
            self.next_set.store(next, Ordering::Relaxed);
            if taken.is_empty() {
                break;
            }
            owed.extend(
                taken
                    .into_iter()
                    .filter_map(|(key, debt)| debt.adjustment(key, now_us)),
            );
        }
        if owed.len() >= at_most || !self.table.is_empty() {
            self.any.store(true, Ordering::Release);
        }
        owed
    }

    /// Keys with a debt.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Reduces the debt of `key` by `charge` of `quota`: a reservation that was not spent. In a
    /// window, at most by the debt since `from_us`.
    pub fn reduce(&self, key: &Key, quota: Quota, charge: u64, from_us: u64, now_us: u64) {
        self.table.with(key, |debt| {
            if let Some(debt) = debt {
                debt.flow(now_us);
                debt.reduce(quota, charge, from_us);
            }
        });
    }

    /// Drops the debt of `key`.
    pub fn forget(&self, key: &Key) {
        self.table.remove(key);
    }

    /// Waives the debt of `key` beyond `left_us`, in microseconds.
    pub fn lower(&self, key: &Key, left_us: u64, now_us: u64) {
        self.table.with(key, |debt| {
            if let Some(debt) = debt {
                debt.flow(now_us);
                debt.lower(left_us, now_us);
            }
        });
    }

    /// Drops debts that have flowed off.
    pub fn sweep(&self, now_us: u64) {
        self.table.retain(|debt| debt.left_us(now_us) > 0);
    }
}

impl Debt {
    /// An empty debt. To a bucket, nothing flows off until `at_us`.
    fn new(quota: Quota, at_us: u64, parts: u32) -> Self {
        match quota {
            Quota::TokenBucket(shape) => Self::Bucket(BucketDebt::new(shape, at_us, parts)),
            Quota::Window(_) => Self::Window {
                quota,
                entries: WindowEntries::default(),
            },
        }
    }

    fn flow(&mut self, now_us: u64) {
        match self {
            Self::Bucket(bucket_debt) => bucket_debt.flow(now_us),
            Self::Window { entries, .. } => entries.end_by(now_us, u64::MAX),
        }
    }

    /// Adds a charge of `quota`. `false`: this is a debt to another algorithm, which stays as it
    /// is.
    fn owe(&mut self, quota: Quota, charge: u64, at: Timestamp) -> bool {
        match quota {
            Quota::TokenBucket(shape) => {
                let Self::Bucket(bucket_debt) = self else {
                    return false;
                };
                bucket_debt.owe(shape, charge);
            }
            Quota::Window(_) => {
                let Self::Window {
                    quota: own,
                    entries,
                } = self
                else {
                    return false;
                };
                *own = quota;
                entries.charge_debt(charge, at.expires_at_us, at.now_us);
            }
        }
        true
    }

    /// Takes off a charge of `quota` that was not spent, of tokens that were to expire at
    /// `expired_at_us`. Does nothing to a debt to another algorithm.
    fn reduce(&mut self, quota: Quota, charge: u64, expired_at_us: u64) {
        match quota {
            Quota::TokenBucket(shape) => {
                if let Self::Bucket(bucket_debt) = self {
                    bucket_debt.reduce(shape, charge);
                }
            }
            Quota::Window(_) => {
                if let Self::Window { entries, .. } = self {
                    entries.refund(charge, expired_at_us);
                }
            }
        }
    }

    /// The charge of what is owed at `now_us`. `None`: it has flowed off. However late the charge
    /// is made, it counts from when its unsettled part began to flow off; or from when the store's
    /// level has flowed off, as far as this node knows.
    fn adjustment(mut self, key: Key, now_us: u64) -> Option<Adjustment> {
        self.flow(now_us);
        let (quota, charge, since_us) = match self {
            Self::Bucket(debt) => (debt.shape().into(), debt.owed(), debt.since_us()),
            Self::Window { quota, entries } => (quota, entries.tokens_out(), now_us),
        };
        (charge > 0).then_some(Adjustment {
            key,
            quota,
            change: Change::Charge { charge, since_us },
        })
    }

    fn lower(&mut self, left_us: u64, now_us: u64) {
        match self {
            Self::Bucket(bucket_debt) => {
                bucket_debt.lower(left_us);
            }
            Self::Window { entries, .. } => entries.end_by(now_us, now_us.saturating_add(left_us)),
        }
    }

    /// The debt in microseconds.
    fn left_us(&self, now_us: u64) -> u64 {
        match self {
            Self::Bucket(bucket_debt) => {
                let mut then = *bucket_debt;
                then.flow(now_us);
                then.shape().micros(then.owed())
            }
            Self::Window { entries, .. } => entries.last_us().saturating_sub(now_us),
        }
    }
}

#[cfg(test)]
mod tests;

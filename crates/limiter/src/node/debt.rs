//! What this node admitted without asking the store, until it is charged there.
//!
//! A node of n admits a token for every n-th of the limit's rate and burst that its local bucket has. So a token weighs n in
//! that bucket, and one in the limit: the n-th part of what all local buckets hold beyond what the store knew is what the
//! limit is owed. A node keeps its own n-th: each token adds one token's time, which flows off at an n-th of the limit's
//! rate, and only once what the store knew has flowed off as well, since that flows off in the store itself. The store's
//! own level plus all debts then is the mean of the local levels, and at least what it would be, had all been asked there.
//! (The highest local level would be safe as well, and simpler: but one busy node would then empty the bucket for all.)
//!
//! In a window, a token of a node's share takes n of the local quota, and what the nodes admit beside what the store knew is
//! at most the rest. It is owed token by token, until the window that it was taken in ends.
//!
//! Guarantees that a debt is at most a full bucket of the largest limit it was incurred under, and a bound on their number: beyond it, the smallest near it is waived
//! and counted. What settling fails for is owed still: if it was charged after all, it is charged twice, never too little.
//! Refuses to know how debts are settled.

use std::sync::atomic::{AtomicBool, Ordering};

use metrics::{Counter, counter};
use tokio::sync::Notify;

use crate::algorithm::quota::Quota;
use crate::algorithm::token_bucket as bucket;
use crate::algorithm::token_bucket::{MAX_TICKS, TokenBucket};
use crate::algorithm::window::{Timestamp, WindowEntries};
use crate::limit::key::Key;
use crate::node::bounded_table::BoundedTable;
use crate::store::{Adjustment, BucketCharge, Change};

/// Buckets with debts, about 180 bytes each.
const PLACES: usize = 65_536;

/// One per node.
pub(crate) struct Debts {
    table: BoundedTable<Debt>,
    any: AtomicBool,
    incurred: Notify,
    waived: Counter,
}

#[derive(Clone)]
enum Debt {
    Bucket(Flowing),
    /// Tokens, until their window's end.
    Window {
        quota: Quota,
        ledger: WindowEntries,
    },
}

/// A debt to a bucket.
#[derive(Clone, Copy)]
struct Flowing {
    shape: TokenBucket,
    /// Ticks of the whole limit, as of `at_us`.
    ticks: u64,
    at_us: u64,
    /// Nodes among which the limit is shared out: the debt flows off at one part in so many.
    parts: u32,
}

impl Debts {
    pub fn new() -> Self {
        Self {
            table: BoundedTable::new(PLACES),
            any: AtomicBool::new(false),
            incurred: Notify::new(),
            waived: counter!("tollgate_store_debts_waived_total"),
        }
    }

    /// Notes that `charge` was granted, from one of `parts` of the limit. `known_us` more, what the store last said of the
    /// bucket goes on flowing off.
    pub fn incur(&self, charge: &BucketCharge, parts: u32, known_us: u64, at: Timestamp) {
        let parts = parts.max(1);
        let new = || Debt::new(charge.quota, at.now_us.saturating_add(known_us), parts);
        self.add(&charge.key, new, charge.quota, charge.quota.charge(charge.cost), at);
    }

    fn add(&self, key: &Key, new: impl FnOnce() -> Debt, quota: Quota, charge: u64, at: Timestamp) {
        let add = |debt: &mut Debt| {
            debt.flow(at.now_us);
            debt.adopt(quota);
            debt.owe(quota, charge, at.expires_at_us);
        };
        let (_, displaced) = self.table.upsert(key, new, |debt| debt.due_us(at.now_us), add);
        if displaced.is_some_and(|debt| debt.due_us(at.now_us) > 0) {
            self.waived.increment(1);
        }
        if !self.any.swap(true, Ordering::AcqRel) {
            self.incurred.notify_one();
        }
    }

    /// Waits until something is owed.
    pub async fn until_owed(&self) {
        while !self.any.load(Ordering::Acquire) {
            self.incurred.notified().await;
        }
    }

    /// Takes the debts out, in parts of at most `at_most`, as of `now_us`.
    pub fn collect(&self, now_us: u64, at_most: usize) -> Vec<Vec<Adjustment>> {
        self.any.store(false, Ordering::Release);
        let mut parts: Vec<Vec<Adjustment>> = Vec::new();
        self.table.drain(|key, mut debt| {
            debt.flow(now_us);
            let (quota, charge) = debt.owed();
            if charge == 0 {
                return;
            }
            let owed = Adjustment { key, quota, change: Change::ForceCharge(charge) };
            match parts.last_mut().filter(|part| part.len() < at_most) {
                Some(part) => part.push(owed),
                None => parts.push(vec![owed]),
            }
        });
        parts
    }

    /// Owes again what could not be settled. It does not flow off until it is collected again, soon.
    pub fn restore(&self, part: &[Adjustment], at: impl Fn(Quota) -> Timestamp) {
        for Adjustment { key, quota, change } in part {
            if let Change::ForceCharge(charge) = *change {
                let at = at(*quota);
                self.add(key, || Debt::new(*quota, at.now_us, u32::MAX), *quota, charge, at);
            }
        }
    }

    /// Owes `charge` of `quota` less for `key`: what was reserved and not spent. To a window, as much as was owed in it since
    /// `at_us`.
    pub fn lessen(&self, key: &Key, quota: Quota, charge: u64, from_us: u64, now_us: u64) {
        self.table.with(key, |debt| match (debt, quota) {
            (Some(Debt::Bucket(flowing)), Quota::TokenBucket(shape)) => {
                flowing.flow(now_us);
                let ticks = bucket::convert_room(charge, shape.tick_rate(), flowing.shape.tick_rate());
                flowing.ticks = flowing.ticks.saturating_sub(ticks);
            }
            (Some(Debt::Window { ledger, .. }), Quota::Window(_)) => ledger.refund(charge, from_us),
            _ => {}
        });
    }

    /// Drops what is owed for `key`.
    pub fn forget(&self, key: &Key) {
        self.table.remove(key);
    }

    /// Waives what is owed for `key` beyond `due_us`, in microseconds.
    pub fn lower(&self, key: &Key, due_us: u64, now_us: u64) {
        self.table.with(key, |debt| {
            if let Some(debt) = debt {
                debt.flow(now_us);
                debt.lower(due_us, now_us);
            }
        });
    }

    /// Drops what has flowed off.
    pub fn sweep(&self, now_us: u64) {
        self.table.retain(|debt| debt.due_us(now_us) > 0);
    }
}

impl Debt {
    /// Nothing is owed yet; to a bucket, nothing flows off until `at_us`.
    fn new(quota: Quota, at_us: u64, parts: u32) -> Self {
        match quota {
            Quota::TokenBucket(shape) => Self::Bucket(Flowing { shape, ticks: 0, at_us, parts }),
            Quota::Window(_) => Self::Window { quota, ledger: WindowEntries::default() },
        }
    }

    fn flow(&mut self, now_us: u64) {
        match self {
            Self::Bucket(flowing) => flowing.flow(now_us),
            Self::Window { ledger, .. } => ledger.end_by(now_us, u64::MAX),
        }
    }

    /// What is owed, in tokens that count by `quota` from now on when its algorithm is another.
    fn adopt(&mut self, quota: Quota) {
        match (&mut *self, quota) {
            (Self::Bucket(flowing), Quota::TokenBucket(shape)) => flowing.adopt(shape),
            (Self::Window { quota: own, .. }, Quota::Window(_)) => *own = quota,
            (Self::Bucket(flowing), Quota::Window(window)) => {
                let until_us = flowing.at_us.saturating_add(window.width_us());
                *self = Self::Window {
                    quota,
                    ledger: WindowEntries::of(flowing.shape.tick_rate().tokens(flowing.ticks), until_us),
                };
            }
            // Requests in flight are owed to nobody.
            (Self::Window { ledger, .. }, Quota::TokenBucket(shape)) => {
                let (ticks, at_us) = (shape.charge(ledger.used()).min(MAX_TICKS), ledger.last_us());
                *self = Self::Bucket(Flowing { shape, ticks, at_us, parts: u32::MAX });
            }
        }
    }

    fn owe(&mut self, quota: Quota, charge: u64, expires_at_us: u64) {
        match (self, quota) {
            (Self::Bucket(flowing), Quota::TokenBucket(shape)) => flowing.owe(shape, charge),
            (Self::Window { ledger, .. }, Quota::Window(window)) => {
                ledger.force_charge(window.quota(), charge, expires_at_us)
            }
            _ => {}
        }
    }

    fn owed(&self) -> (Quota, u64) {
        match self {
            Self::Bucket(flowing) => (flowing.shape.into(), flowing.ticks),
            Self::Window { quota, ledger } => (*quota, ledger.used()),
        }
    }

    fn lower(&mut self, due_us: u64, now_us: u64) {
        match self {
            Self::Bucket(flowing) => {
                flowing.ticks = flowing.ticks.min(due_us.saturating_mul(flowing.shape.ticks_per_us()));
            }
            Self::Window { ledger, .. } => ledger.end_by(now_us, now_us.saturating_add(due_us)),
        }
    }

    /// How much it is, in microseconds.
    fn due_us(&self, now_us: u64) -> u64 {
        match self {
            Self::Bucket(flowing) => {
                let mut then = *flowing;
                then.flow(now_us);
                then.shape.micros(then.ticks)
            }
            Self::Window { ledger, .. } => ledger.last_us().saturating_sub(now_us),
        }
    }
}

impl Flowing {
    fn flow(&mut self, now_us: u64) {
        if let Some(elapsed) = now_us.checked_sub(self.at_us) {
            let flowed = elapsed.saturating_mul(self.shape.ticks_per_us()) / u64::from(self.parts);
            self.ticks = self.ticks.saturating_sub(flowed);
            self.at_us = now_us;
        }
    }

    /// A faster limit, and of equally fast ones the larger, counts what is owed from now on: see `carry`.
    fn adopt(&mut self, shape: TokenBucket) {
        let (old, new) = (self.shape.tick_rate(), shape.tick_rate());
        let ticks = bucket::convert(self.ticks, old, new);
        let larger = new == old && shape.capacity() > self.shape.capacity();
        if larger || (new.is_faster_than(old) && ticks < MAX_TICKS) {
            (self.shape, self.ticks) = (shape, ticks);
        }
    }

    fn owe(&mut self, shape: TokenBucket, ticks: u64) {
        let own = |ticks| bucket::convert(ticks, shape.tick_rate(), self.shape.tick_rate());
        let capacity = self.shape.capacity().max(own(shape.capacity()));
        self.ticks = bucket::force_charge(self.ticks, own(ticks), capacity);
    }
}

#[cfg(test)]
mod tests;

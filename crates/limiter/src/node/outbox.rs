//! Adjustments on their way to the store, until it has confirmed them.
//!
//! A call without an answer may have been made all the same. So its batch is kept as it was, under
//! its id, and sent again until the store says what became of it; the store makes nothing of it
//! twice. Guarantees a bound on the adjustments that wait: beyond it, the oldest batch is waived
//! and counted. A batch is kept from before it is sent, so it is not lost with the task that sends
//! it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use metrics::{Counter, counter};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::limit::key::Key;
use crate::store::adjustment::{Adjustment, AdjustmentBatch, AdjustmentResult, BatchId, Change};

/// Adjustments that wait to be sent again at most, about 200 bytes each.
const CAPACITY: usize = 65_536;

/// A node has one.
pub(crate) struct Outbox {
    node: u64,
    batches: Mutex<UnconfirmedBatches>,
    /// Batches that wait to be sent again.
    overdue: AtomicUsize,
    failed_once: Notify,
    failed: Counter,
    waived: Counter,
}

#[derive(Default)]
struct UnconfirmedBatches {
    last_number: u64,
    by_number: BTreeMap<u64, UnconfirmedBatch>,
    /// The keys of batches that failed, and in how many adjustments.
    keys: HashMap<Key, u32>,
    /// Batches that failed, and adjustments in them.
    failed_batches: usize,
    failed: usize,
    /// The batch that was sent again last.
    sent_again: u64,
}

struct UnconfirmedBatch {
    batch: Arc<AdjustmentBatch>,
    in_flight: bool,
    failed: bool,
}

/// A batch in flight. Dropped without an answer, it has failed.
pub(crate) struct SentBatch<'a> {
    outbox: &'a Outbox,
    number: u64,
    pub batch: Arc<AdjustmentBatch>,
    /// The places that are still to be made. `None`: all.
    failed: Option<Vec<u32>>,
}

impl Outbox {
    /// Metrics go to the recorder that is installed by now.
    pub fn new() -> Self {
        let failed = counter!("tollgate_store_adjustments_failed_total");
        failed.increment(0);
        Self {
            node: fastrand::u64(..),
            batches: Mutex::default(),
            overdue: AtomicUsize::new(0),
            failed_once: Notify::new(),
            failed,
            waived: counter!("tollgate_store_debts_waived_total"),
        }
    }

    /// A batch of these, which is about to be sent.
    pub fn send(&self, adjustments: Vec<Adjustment>) -> SentBatch<'_> {
        let mut batches = self.batches.lock();
        batches.last_number += 1;
        let number = batches.last_number;
        let batch = Arc::new(AdjustmentBatch::new(
            BatchId {
                node: self.node,
                number,
            },
            adjustments,
        ));
        let unconfirmed = UnconfirmedBatch {
            batch: batch.clone(),
            in_flight: true,
            failed: false,
        };
        batches.by_number.insert(number, unconfirmed);
        SentBatch {
            outbox: self,
            number,
            batch,
            failed: None,
        }
    }

    /// A batch that failed before, which is about to be sent again. Asked often enough, each has
    /// its turn. Not one whose keys are all out of reach.
    pub fn send_again(&self, is_there: impl Fn(&Key) -> bool) -> Option<SentBatch<'_>> {
        if self.overdue.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut batches = self.batches.lock();
        let after = batches.sent_again + 1;
        let newer = batches.by_number.range(after..);
        let older = batches.by_number.range(..after);
        let (number, _) = newer.chain(older).find(|(_, unconfirmed)| {
            unconfirmed.waits() && unconfirmed.batch.iter().any(|one| is_there(&one.key))
        })?;
        let number = *number;
        batches.sent_again = number;
        let unconfirmed = batches.by_number.get_mut(&number)?;
        unconfirmed.in_flight = true;
        Some(SentBatch {
            outbox: self,
            number,
            batch: unconfirmed.batch.clone(),
            failed: None,
        })
    }

    /// Batches that wait to be sent again.
    pub fn overdue(&self) -> usize {
        self.overdue.load(Ordering::Acquire)
    }

    /// Waits until a batch is to be sent again.
    pub async fn until_overdue(&self) {
        while self.overdue() == 0 {
            self.failed_once.notified().await;
        }
    }

    /// Whether an adjustment of `key` waits to be sent again. Another for it should wait as well,
    /// and become one with those behind it: a server that is away would otherwise be owed without
    /// bound.
    pub fn holds(&self, key: &Key) -> bool {
        self.overdue() > 0 && self.batches.lock().keys.contains_key(key)
    }

    /// Adjustments that wait to be sent again.
    pub fn len(&self) -> usize {
        self.batches.lock().failed
    }

    /// Drops the adjustments of `key`.
    pub fn forget(&self, key: &Key) {
        self.change(key, |_| false);
    }

    /// Waives what is owed by `key` beyond `left_us`, in microseconds.
    pub fn lower(&self, key: &Key, left_us: u64) {
        self.change(key, |Adjustment { quota, change, .. }| match change {
            Change::Charge { charge, .. } => {
                *charge = quota.charge_within(*charge, left_us);
                *charge > 0
            }
            Change::Refund { .. } => true,
        });
    }

    fn change(&self, key: &Key, mut change: impl FnMut(&mut Adjustment) -> bool) {
        let mut batches = self.batches.lock();
        let numbers: Vec<u64> = batches
            .by_number
            .iter()
            .filter_map(|(number, unconfirmed)| {
                unconfirmed
                    .batch
                    .iter()
                    .any(|adjustment| adjustment.key == *key)
                    .then_some(*number)
            })
            .collect();
        for number in numbers {
            batches.update(number, |unconfirmed| {
                Arc::make_mut(&mut unconfirmed.batch).change(key, &mut change)
            });
        }
        self.overdue
            .store(batches.failed_batches, Ordering::Release);
    }

    /// A batch that was in flight is done: all of it is confirmed.
    fn confirm(&self, number: u64) {
        let mut batches = self.batches.lock();
        batches.remove(number);
        self.overdue
            .store(batches.failed_batches, Ordering::Release);
    }

    /// A batch that was in flight waits to be sent again: those of `places`, or all.
    fn keep(&self, number: u64, places: Option<&[u32]>) {
        let mut batches = self.batches.lock();
        batches.update(number, |unconfirmed| {
            if let Some(places) = places {
                Arc::make_mut(&mut unconfirmed.batch).retain_places(places);
            }
            (unconfirmed.in_flight, unconfirmed.failed) = (false, true);
        });
        while batches.failed > CAPACITY
            && let Some(waived) = batches.drop_oldest()
        {
            self.waived
                .increment(u64::try_from(waived).unwrap_or(u64::MAX));
        }
        self.overdue
            .store(batches.failed_batches, Ordering::Release);
        drop(batches);
        self.failed_once.notify_one();
    }
}

impl UnconfirmedBatches {
    /// Changes a batch, and drops it when nothing is left of it.
    fn update(&mut self, number: u64, change: impl FnOnce(&mut UnconfirmedBatch)) {
        let Some(mut unconfirmed) = self.remove(number) else {
            return;
        };
        change(&mut unconfirmed);
        if unconfirmed.batch.is_empty() {
            return;
        }
        if unconfirmed.failed {
            self.failed_batches += 1;
            self.failed += unconfirmed.batch.len();
            unconfirmed
                .batch
                .iter()
                .for_each(|one| *self.keys.entry(one.key.clone()).or_default() += 1);
        }
        self.by_number.insert(number, unconfirmed);
    }

    fn remove(&mut self, number: u64) -> Option<UnconfirmedBatch> {
        let removed = self.by_number.remove(&number)?;
        if !removed.failed {
            return Some(removed);
        }
        self.failed_batches -= 1;
        self.failed -= removed.batch.len();
        for one in removed.batch.iter() {
            if let Some(count) = self.keys.get_mut(&one.key) {
                *count -= 1;
                if *count == 0 {
                    self.keys.remove(&one.key);
                }
            }
        }
        Some(removed)
    }

    /// Drops the oldest batch that waits: how many adjustments it had.
    fn drop_oldest(&mut self) -> Option<usize> {
        let (number, _) = self.by_number.iter().find(|(_, one)| one.waits())?;
        let dropped = self.remove(*number)?;
        Some(dropped.batch.len())
    }
}

impl UnconfirmedBatch {
    /// Whether it waits to be sent again.
    fn waits(&self) -> bool {
        self.failed && !self.in_flight
    }
}

impl SentBatch<'_> {
    /// Takes over the store's results, in the order of the adjustments that were sent. What failed
    /// waits to be sent again.
    pub fn answered(mut self, results: &[AdjustmentResult]) {
        let mut failed = Vec::new();
        for (index, placed) in self.batch.placed().iter().enumerate() {
            if !matches!(results.get(index), Some(Ok(_))) {
                failed.push(placed.place);
            }
        }
        self.failed = Some(failed);
    }
}

impl Drop for SentBatch<'_> {
    fn drop(&mut self) {
        let failed = self.failed.as_ref().map_or(self.batch.len(), Vec::len);
        if failed == 0 {
            return self.outbox.confirm(self.number);
        }
        self.outbox
            .failed
            .increment(u64::try_from(failed).unwrap_or(u64::MAX));
        self.outbox.keep(self.number, self.failed.as_deref());
    }
}

#[cfg(test)]
mod tests;

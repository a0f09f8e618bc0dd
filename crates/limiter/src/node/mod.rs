//! The state that the workers of a node share, beside the store: one per process.
//!
//! Guarantees that a node is one node: each worker uses what any of them learned. `breaker` says
//! whether the store may be asked, `recovery` finds out when it may be again; `denial_cache`,
//! `lease` and `permits` save calls; `debt` has what was admitted without the store, and `outbox`
//! what is on its way there; `foreign_keys` are those that the store cannot decide on;
//! `bounded_table` is the table that they keep keys in.

pub(crate) mod bounded_table;
pub mod breaker;
pub(crate) mod debt;
pub(crate) mod denial_cache;
pub mod foreign_keys;
pub(crate) mod lease;
pub(crate) mod outbox;
pub mod permits;
pub mod recovery;
pub(crate) mod store_metrics;

use std::sync::Arc;

use metrics::{Counter, Gauge, counter, gauge};

use crate::algorithm::quota::Quota;
use crate::clock;
use crate::limit::key::Key;
use crate::node::breaker::Breaker;
use crate::node::debt::Debts;
use crate::node::denial_cache::DenialCache;
use crate::node::foreign_keys::ForeignKeys;
use crate::node::lease::Leases;
use crate::node::outbox::{Outbox, SentBatch};
use crate::node::permits::PermitTable;
use crate::node::store_metrics::CallOutcomes;
use crate::store::adjustment::{AdjustmentOutcome, AdjustmentResult, Change};
use crate::store::fleet_share::FleetShare;
use crate::store::inspect::CacheListener;
use crate::store::memory::MemoryStore;

/// The state of one node.
pub struct Node {
    /// Buckets of this node alone: they decide while the store is away.
    pub memory: Arc<MemoryStore>,
    pub breaker: Arc<Breaker>,
    pub share: Arc<FleetShare>,
    pub(crate) denials: DenialCache,
    pub(crate) leases: Leases,
    pub(crate) debts: Debts,
    pub(crate) outbox: Outbox,
    /// Keys that the store cannot decide on.
    pub foreign_keys: ForeignKeys,
    pub(crate) outcomes: CallOutcomes,
    /// Permits of this process for requests in flight.
    pub permits: Arc<PermitTable>,
    debts_pending: Gauge,
    debts_waived: Counter,
}

impl Node {
    /// A node that has learned nothing yet. Metrics go to the recorder that is installed by now.
    pub fn new(memory: Arc<MemoryStore>, breaker: Arc<Breaker>, share: Arc<FleetShare>) -> Self {
        Self {
            memory,
            breaker,
            share,
            denials: DenialCache::new(),
            leases: Leases::new(),
            debts: Debts::new(),
            outbox: Outbox::new(),
            foreign_keys: ForeignKeys::default(),
            outcomes: CallOutcomes::new(),
            permits: Arc::default(),
            debts_pending: gauge!("tollgate_store_debts_pending"),
            debts_waived: counter!("tollgate_store_debts_waived_total"),
        }
    }

    /// Drops debts that have flowed off, and counts the others. For a background task.
    pub fn sweep(&self, now_us: u64) {
        self.debts.sweep(now_us);
        self.foreign_keys.sweep(now_us);
        self.count_debts();
    }

    pub(crate) fn count_debts(&self) {
        self.debts_pending
            .set((self.debts.len() + self.outbox.len()) as f64);
    }

    /// Waits until something is owed to the store.
    pub(crate) async fn until_owed(&self) {
        tokio::select! {
            () = self.debts.until_owed() => {}
            () = self.outbox.until_overdue() => {}
        }
    }

    /// Takes over the store's results for a batch. Whether any of it was confirmed.
    pub(crate) fn confirm(&self, sent: SentBatch<'_>, results: &[AdjustmentResult]) -> bool {
        for (adjustment, result) in sent.batch.iter().zip(results) {
            match (result, adjustment.change) {
                (Ok(AdjustmentOutcome::Foreign), Change::Charge { .. }) => {
                    self.debts_waived.increment(1);
                    self.foreign_keys
                        .remember(&adjustment.key, clock::monotonic_micros());
                }
                (Ok(AdjustmentOutcome::OtherAlgorithm), Change::Charge { .. }) => {
                    self.debts_waived.increment(1);
                }
                (Ok(AdjustmentOutcome::Applied), Change::Refund { .. }) => {
                    self.denials.forget(&adjustment.key)
                }
                _ => {}
            }
        }
        sent.answered(results);
        results.iter().any(Result::is_ok)
    }

    /// Holds nothing against a bucket beyond `full_in_us`: a denial may no longer hold, tokens
    /// taken ahead belong to the old state, and a debt beyond the store's count is dropped. The
    /// local buckets are apart.
    pub fn lower_caches(&self, key: &Key, full_in_us: u64, now_us: u64) {
        self.denials.forget(key);
        self.leases.forget(key);
        self.debts.lower(key, full_in_us, now_us);
        self.outbox.lower(key, full_in_us);
    }

    /// Forgets this node's state of a bucket that was reset in the store: the next request asks the
    /// store.
    pub fn forget(&self, key: &Key) {
        self.denials.forget(key);
        self.leases.forget(key);
        self.debts.forget(key);
        self.outbox.forget(key);
    }
}

impl CacheListener for Node {
    fn lower(&self, key: &Key, _quota: Quota, full_in_us: u64, now_us: u64) {
        self.lower_caches(key, full_in_us, now_us);
    }
}

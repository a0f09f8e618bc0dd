//! The state that the workers of a node share, beside the store: one per process.
//!
//! Guarantees that a node is one node: each worker uses what any of them learned. `breaker` says whether the store may
//! be asked, `recovery` finds out when it may be again; `denial_cache`, `lease` and `permits` save calls; `debt` has
//! what was admitted without the store; `bounded_table` is the table that they keep keys in.

pub(crate) mod bounded_table;
pub mod breaker;
pub(crate) mod debt;
pub(crate) mod denial_cache;
pub(crate) mod lease;
pub mod permits;
pub mod recovery;
pub(crate) mod store_metrics;

use std::sync::Arc;

use crate::algorithm::quota::Quota;
use crate::limit::key::Key;
use crate::node::breaker::Breaker;
use crate::node::debt::Debts;
use crate::node::denial_cache::DenialCache;
use crate::node::lease::Leases;
use crate::node::permits::PermitTable;
use crate::node::store_metrics::CallOutcomes;
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
    pub(crate) outcomes: CallOutcomes,
    /// Permits of this process for requests in flight.
    pub permits: Arc<PermitTable>,
}

impl Node {
    /// A node that has learned nothing yet. Metrics go to the recorder that is installed by now.
    pub fn new(memory: Arc<MemoryStore>, breaker: Arc<Breaker>, share: Arc<FleetShare>) -> Self {
        let (denials, leases, debts) = (DenialCache::new(), Leases::new(), Debts::new());
        Self { memory, breaker, share, denials, leases, debts, outcomes: CallOutcomes::new(), permits: Arc::default() }
    }

    /// Drops debts that have flowed off. For a background task.
    pub fn sweep(&self, now_us: u64) {
        self.debts.sweep(now_us);
    }

    /// Holds nothing against a bucket beyond `full_in_us`: a denial may no longer hold, tokens taken ahead belong to the
    /// old state, and a debt beyond the store's count is dropped. The local buckets are apart.
    pub fn lower_caches(&self, key: &Key, full_in_us: u64, now_us: u64) {
        self.denials.forget(key);
        self.leases.forget(key);
        self.debts.lower(key, full_in_us, now_us);
    }

    /// Forgets this node's state of a bucket that was reset in the store: the next request asks the store.
    pub fn forget(&self, key: &Key) {
        self.denials.forget(key);
        self.leases.forget(key);
        self.debts.forget(key);
    }
}

impl CacheListener for Node {
    fn lower(&self, key: &Key, _quota: Quota, full_in_us: u64, now_us: u64) {
        self.lower_caches(key, full_in_us, now_us);
    }
}

//! What the workers of a node know together of the shared store and of each other. One per process.
//!
//! Guarantees that a node is one node: what one worker learned, all of them use. Decides nothing itself.

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
    /// Buckets of this node alone: what it enforces while the store is away.
    pub memory: Arc<MemoryStore>,
    pub breaker: Arc<Breaker>,
    pub share: Arc<FleetShare>,
    pub(crate) denials: DenialCache,
    pub(crate) leases: Leases,
    pub(crate) debts: Debts,
    pub(crate) outcomes: CallOutcomes,
    /// What this process counts of requests in flight.
    pub permits: Arc<PermitTable>,
}

impl Node {
    /// A node that has heard nothing yet. Metrics go to the recorder that is installed by now.
    pub fn new(memory: Arc<MemoryStore>, breaker: Arc<Breaker>, share: Arc<FleetShare>) -> Self {
        let (denials, leases, debts) = (DenialCache::new(), Leases::new(), Debts::new());
        Self { memory, breaker, share, denials, leases, debts, outcomes: CallOutcomes::new(), permits: Arc::default() }
    }

    /// Drops what time has settled. For a background task.
    pub fn sweep(&self, now_us: u64) {
        self.debts.sweep(now_us);
    }

    /// Forgets what this node knows of a bucket that was reset in the store: the next request asks for it.
    pub fn forget(&self, key: &Key) {
        self.denials.forget(key);
        self.leases.forget(key);
        self.debts.forget(key);
    }
}

impl CacheListener for Node {
    /// An operator changed the bucket: a denial need not hold any more, tokens taken ahead are of what was there before, and
    /// more than the store counts is not owed. The local buckets are a holder of their own.
    fn lower(&self, key: &Key, _quota: Quota, full_in_us: u64, now_us: u64) {
        self.denials.forget(key);
        self.leases.forget(key);
        self.debts.lower(key, full_in_us, now_us);
    }
}

//! Permits for requests in flight: those of this process, and those that its node holds of the
//! fleet's.
//!
//! A request takes a permit and gives it back when its response's body has ended or it is dropped.
//! A node claims permits of a key for a few seconds at a time, passes them on among its own
//! requests, and returns those that it has not needed for a moment. Guarantees that memory is used
//! only for keys with requests in flight or permits held. See [`concurrency`] for why nothing is
//! counted twice, whatever gets lost, and `pool.rs` for who gets a permit.

mod pool;
pub(crate) mod upkeep;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};

use crate::algorithm::concurrency::{self, ConcurrencyLimit, PermitRequest, Scope};
use crate::algorithm::level::Level;
use crate::clock;
use crate::limit::key::Key;
pub(crate) use crate::node::permits::pool::FULL;
use crate::node::permits::pool::{PermitPool, PoolAnswer};
use crate::store::PermitClaim;

/// Locks, so that the workers of a large machine seldom meet.
pub(crate) const SHARDS: usize = 16;

/// A request's need of a limit of requests in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermitNeed {
    pub key: Key,
    pub limit: ConcurrencyLimit,
    /// Permits that the request takes.
    pub cost: u64,
}

/// The permits of one process.
pub struct PermitTable {
    shards: [Mutex<PermitShard>; SHARDS],
    /// Seeded: clients choose their keys.
    hasher: RandomState,
    /// Names this table in claims. Not the id of the heartbeat: that need not be the same process
    /// for as long.
    node: u64,
    turn: AtomicU64,
    visits: Notify,
    urgent_visits: Notify,
    ended_claims: Notify,
    upkeep_running: AtomicBool,
}

/// The keys under one lock.
#[derive(Default)]
struct PermitShard {
    pools: HashMap<Key, PermitPool>,
    /// Keys that the upkeep visits next.
    listed: Vec<Key>,
}

/// A permit of a request in flight. It is given back when dropped.
pub struct ConcurrencyPermit {
    table: Arc<PermitTable>,
    key: Key,
    cost: u64,
}

/// The answer to a request without asking the store.
pub(crate) enum Admittance {
    Taken(ConcurrencyPermit, Level),
    Full(Level),
    /// The store must be asked.
    Unknown,
}

impl From<Result<(ConcurrencyPermit, Level), Level>> for Admittance {
    fn from(outcome: Result<(ConcurrencyPermit, Level), Level>) -> Self {
        match outcome {
            Ok((permit, level)) => Self::Taken(permit, level),
            Err(level) => Self::Full(level),
        }
    }
}

/// A request that cannot go on without the store.
pub(crate) enum PermitWait {
    Done(Result<(ConcurrencyPermit, Level), Level>),
    /// The request waits. Somebody claims permits for it already.
    Joined(WaitingRequest),
    /// The request waits, and the caller has to claim permits for the key.
    Claiming(WaitingRequest),
}

/// A request that waits for permits. A permit that was granted meanwhile is given back when this is
/// dropped.
pub(crate) struct WaitingRequest {
    table: Arc<PermitTable>,
    need: PermitNeed,
    outcome: oneshot::Receiver<Result<Level, Level>>,
}

/// A place from which freed permits of a key can be seen: see [`PermitTable::watch`].
pub struct FreePermitWatch {
    table: Arc<PermitTable>,
    key: Key,
    cost: u64,
    freed: Arc<Notify>,
}

impl Default for PermitTable {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            node: fastrand::u64(..),
            turn: AtomicU64::new(0),
            visits: Notify::new(),
            urgent_visits: Notify::new(),
            ended_claims: Notify::new(),
            upkeep_running: AtomicBool::new(false),
        }
    }
}

impl PermitTable {
    /// Takes a permit that this process gives out on its own, out of `part` of the limit.
    pub(crate) fn take_alone(
        self: &Arc<Self>,
        need: &PermitNeed,
        part: ConcurrencyLimit,
    ) -> Result<(ConcurrencyPermit, Level), Level> {
        let mut shard = self.lock(&need.key);
        let entry = shard.pools.entry(need.key.clone());
        let in_use = match &entry {
            Entry::Occupied(known) => known.get().in_use(),
            Entry::Vacant(_) => 0,
        };
        if part.most() < in_use.saturating_add(need.cost) {
            return Err(FULL);
        }
        let pool = entry.or_default();
        // The store learns of the whole limit later, whatever part of it holds now.
        pool.follow(
            need.limit.most(),
            need.cost,
            need.limit.scope() == Scope::Fleet,
        );
        pool.take(need.cost);
        Ok((
            self.permit(need),
            concurrency::level(part, pool.in_use(), 0),
        ))
    }

    /// Takes one of the permits that the node holds, or says that there is none.
    pub(crate) fn take_held(self: &Arc<Self>, need: &PermitNeed, now_us: u64) -> Admittance {
        let mut shard = self.lock(&need.key);
        let PermitShard { pools, listed } = &mut *shard;
        let Some(pool) = pools.get_mut(&need.key) else {
            return Admittance::Unknown;
        };
        pool.follow(need.limit.most(), need.cost, true);
        match pool.try_take(need.cost, now_us) {
            PoolAnswer::Taken(level) => {
                if pool.is_share_check_due(now_us) {
                    self.list(pool, listed, &need.key, true);
                }
                Admittance::Taken(self.permit(need), level)
            }
            PoolAnswer::Full => Admittance::Full(FULL),
            PoolAnswer::Unknown => Admittance::Unknown,
        }
    }

    /// Lets a request wait for a permit, unless there is one by now.
    pub(crate) fn wait(self: &Arc<Self>, need: &PermitNeed) -> PermitWait {
        let mut shard = self.lock(&need.key);
        let pool = shard.pools.entry(need.key.clone()).or_default();
        pool.follow(need.limit.most(), need.cost, true);
        match pool.try_take(need.cost, clock::monotonic_micros()) {
            PoolAnswer::Taken(level) => PermitWait::Done(Ok((self.permit(need), level))),
            PoolAnswer::Full => PermitWait::Done(Err(FULL)),
            PoolAnswer::Unknown => {
                let outcome = pool.wait(need.cost);
                let waiting = WaitingRequest {
                    table: self.clone(),
                    need: need.clone(),
                    outcome,
                };
                if pool.start_claiming() {
                    PermitWait::Claiming(waiting)
                } else {
                    PermitWait::Joined(waiting)
                }
            }
        }
    }

    /// Watches for permits that `need` could take. A request that was denied and waits for its turn
    /// watches first, then tries again, and awaits [`FreePermitWatch::until_free`] between further
    /// tries: so it misses none. Where the limit is the fleet's, the node asks the store for
    /// permits in the meantime.
    pub fn watch(self: &Arc<Self>, need: &PermitNeed) -> FreePermitWatch {
        let mut shard = self.lock(&need.key);
        let PermitShard { pools, listed } = &mut *shard;
        let pool = pools.entry(need.key.clone()).or_default();
        pool.follow(
            need.limit.most(),
            need.cost,
            need.limit.scope() == Scope::Fleet,
        );
        let freed = pool.watch(need.cost);
        self.list(pool, listed, &need.key, false);
        FreePermitWatch {
            table: self.clone(),
            key: need.key.clone(),
            cost: need.cost,
            freed,
        }
    }

    fn give_back(&self, key: &Key, cost: u64) {
        let mut shard = self.lock(key);
        let PermitShard { pools, listed } = &mut *shard;
        let Entry::Occupied(mut known) = pools.entry(key.clone()) else {
            return;
        };
        let pool = known.get_mut();
        pool.give_back(cost);
        if pool.has_spare() {
            self.list(pool, listed, key, false);
        } else if pool.is_idle(0) {
            // A pool that remembers a denial is left to the upkeep.
            known.remove();
        }
    }

    /// Puts a key on the list of the upkeep, if that has a reason to visit it, or because its share
    /// `is_due`.
    fn list(&self, pool: &mut PermitPool, listed: &mut Vec<Key>, key: &Key, is_due: bool) {
        if pool.is_beyond_share() {
            self.urgent_visits.notify_one();
        }
        if !pool.listed && (is_due || pool.needs_visit()) {
            pool.listed = true;
            listed.push(key.clone());
            self.visits.notify_one();
        }
    }

    fn permit(self: &Arc<Self>, need: &PermitNeed) -> ConcurrencyPermit {
        ConcurrencyPermit {
            table: self.clone(),
            key: need.key.clone(),
            cost: need.cost,
        }
    }

    fn claim_in(&self, key: &Key, most: u64, claim: PermitRequest) -> PermitClaim {
        PermitClaim {
            key: key.clone(),
            most,
            node: self.node,
            claim,
        }
    }

    fn lock(&self, key: &Key) -> MutexGuard<'_, PermitShard> {
        let hash = self.hasher.hash_one(key.as_bytes());
        self.shards[hash as usize % SHARDS].lock()
    }

    /// Permits of `key` that are in use here.
    pub fn in_use(&self, key: &Key) -> u64 {
        self.lock(key).pools.get(key).map_or(0, PermitPool::in_use)
    }
}

impl WaitingRequest {
    /// The outcome. `None`: the store did not answer.
    pub(crate) async fn outcome(mut self) -> Option<Result<(ConcurrencyPermit, Level), Level>> {
        let outcome = (&mut self.outcome).await.ok()?;
        Some(outcome.map(|level| (self.table.permit(&self.need), level)))
    }
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        self.outcome.close();
        if let Ok(Ok(_)) = self.outcome.try_recv() {
            self.table.give_back(&self.need.key, self.need.cost);
        }
    }
}

impl FreePermitWatch {
    /// Waits until a permit of the key came back on this node, or the store granted one, that
    /// nobody had asked for yet. Watchers are woken in the order in which they began to wait, one
    /// for each permit. A permit that comes while nobody waits wakes the next one that does.
    /// Somebody else may take it first, and the woken request has to try.
    pub async fn until_free(&self) {
        self.freed.notified().await;
    }
}

impl Drop for FreePermitWatch {
    fn drop(&mut self) {
        let mut shard = self.table.lock(&self.key);
        let Some(pool) = shard.pools.get_mut(&self.key) else {
            return;
        };
        pool.unwatch(self.cost);
        if pool.is_idle(0) {
            shard.pools.remove(&self.key);
        }
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        self.table.give_back(&self.key, self.cost);
    }
}

impl std::fmt::Debug for ConcurrencyPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConcurrencyPermit")
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}

//! Permits for requests in flight: those of this process, and those that its node holds of the
//! fleet's.
//!
//! A request takes a permit and gives it back when its response's body has ended or it is dropped.
//! A node claims permits of a key for a few seconds at a time, passes them on among its own
//! requests, and returns those that it has not needed for a moment. Guarantees that memory is used
//! only for keys with requests in flight or permits held. See [`concurrency`] for why nothing is
//! counted twice, whatever gets lost, and `pool.rs` for who gets a permit.

mod keyed_pools;
mod pool;
pub(crate) mod upkeep;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};

use crate::algorithm::concurrency::{self, ConcurrencyLimit, PermitRequest, Scope};
use crate::algorithm::level::Level;
use crate::clock;
use crate::limit::key::Key;
use crate::node::permits::keyed_pools::KeyedPools;
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
    pools: KeyedPools,
    /// Keys that the upkeep visits next.
    listed: Vec<Key>,
}

/// A permit of a request in flight. It is given back when dropped.
pub struct ConcurrencyPermit {
    table: Arc<PermitTable>,
    key: Key,
    hash: u64,
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
        let hash = self.hash(&need.key);
        let mut shard = self.lock(hash);
        let known = shard.pools.get(hash, &need.key);
        if part.most()
            < known
                .map_or(0, PermitPool::in_use)
                .saturating_add(need.cost)
        {
            return Err(FULL);
        }
        let pool = shard.pools.get_or_insert(hash, &need.key);
        // The store learns of the whole limit later, whatever part of it holds now.
        pool.follow(
            need.limit.most(),
            need.cost,
            need.limit.scope() == Scope::Fleet,
        );
        pool.take(need.cost);
        Ok((
            self.permit(need, hash),
            concurrency::level(part, pool.in_use(), 0),
        ))
    }

    /// Takes one of the permits that the node holds, or says that there is none.
    pub(crate) fn take_held(self: &Arc<Self>, need: &PermitNeed, now_us: u64) -> Admittance {
        let hash = self.hash(&need.key);
        let mut shard = self.lock(hash);
        let PermitShard { pools, listed } = &mut *shard;
        let Some(pool) = pools.get_mut(hash, &need.key) else {
            return Admittance::Unknown;
        };
        pool.follow(need.limit.most(), need.cost, true);
        match pool.try_take(need.cost, now_us) {
            PoolAnswer::Taken(level) => {
                if pool.is_share_check_due(now_us) {
                    self.list(pool, listed, &need.key, true);
                }
                Admittance::Taken(self.permit(need, hash), level)
            }
            PoolAnswer::Full => Admittance::Full(FULL),
            PoolAnswer::Unknown => Admittance::Unknown,
        }
    }

    /// Lets a request wait for a permit, unless there is one by now.
    pub(crate) fn wait(self: &Arc<Self>, need: &PermitNeed) -> PermitWait {
        let hash = self.hash(&need.key);
        let mut shard = self.lock(hash);
        let pool = shard.pools.get_or_insert(hash, &need.key);
        pool.follow(need.limit.most(), need.cost, true);
        match pool.try_take(need.cost, clock::monotonic_micros()) {
            PoolAnswer::Taken(level) => PermitWait::Done(Ok((self.permit(need, hash), level))),
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
        let hash = self.hash(&need.key);
        let mut shard = self.lock(hash);
        let PermitShard { pools, listed } = &mut *shard;
        let pool = pools.get_or_insert(hash, &need.key);
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

    fn give_back(&self, hash: u64, key: &Key, cost: u64) {
        let mut shard = self.lock(hash);
        let PermitShard { pools, listed } = &mut *shard;
        pools.visit(hash, key, |pool| {
            pool.give_back(cost);
            if pool.has_spare() {
                self.list(pool, listed, key, false);
            }
            // A pool that remembers a denial is left to the upkeep.
            pool.is_idle(0)
        });
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

    fn permit(self: &Arc<Self>, need: &PermitNeed, hash: u64) -> ConcurrencyPermit {
        ConcurrencyPermit {
            table: self.clone(),
            key: need.key.clone(),
            hash,
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

    fn hash(&self, key: &Key) -> u64 {
        self.hasher.hash_one(key.as_bytes())
    }

    /// The keys under the lock of those with this hash, which is chosen by its middle: their table
    /// places them by its ends.
    fn lock(&self, hash: u64) -> MutexGuard<'_, PermitShard> {
        self.shards[(hash >> 32) as usize % SHARDS].lock()
    }

    /// Permits of `key` that are in use here.
    pub fn in_use(&self, key: &Key) -> u64 {
        let hash = self.hash(key);
        let shard = self.lock(hash);
        shard.pools.get(hash, key).map_or(0, PermitPool::in_use)
    }
}

impl WaitingRequest {
    /// The outcome. `None`: the store did not answer.
    pub(crate) async fn outcome(mut self) -> Option<Result<(ConcurrencyPermit, Level), Level>> {
        let outcome = (&mut self.outcome).await.ok()?;
        let hash = self.table.hash(&self.need.key);
        Some(outcome.map(|level| (self.table.permit(&self.need, hash), level)))
    }
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        self.outcome.close();
        if let Ok(Ok(_)) = self.outcome.try_recv() {
            let hash = self.table.hash(&self.need.key);
            self.table.give_back(hash, &self.need.key, self.need.cost);
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
        let hash = self.table.hash(&self.key);
        self.table.lock(hash).pools.visit(hash, &self.key, |pool| {
            pool.unwatch(self.cost);
            pool.is_idle(0)
        });
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        self.table.give_back(self.hash, &self.key, self.cost);
    }
}

impl std::fmt::Debug for ConcurrencyPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConcurrencyPermit")
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}

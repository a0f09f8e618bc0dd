//! Permits for requests in flight: those of this process, and those that its node holds of the fleet's.
//!
//! A request takes a permit and gives it back when its response's body has ended or it is dropped. A node claims
//! permits of a key for a few seconds at a time, passes them on among its own requests, and returns those that it has
//! not needed for a moment. Guarantees that no request gets a permit that the node does not hold, counted from before
//! the node asked for it, and that memory is used only for keys with requests in flight or permits held. See
//! [`concurrency`] for why nothing is counted twice, whatever gets lost.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::algorithm::concurrency::{self, ConcurrencyLimit, GrantedPermits, LEASE_US, PermitRequest, RETRY_US};
use crate::algorithm::level::Level;
use crate::clock;
use crate::limit::key::Key;
use crate::store::PermitClaim;

/// Locks, so that the workers of a large machine seldom meet.
const SHARDS: usize = 16;

/// After a denial, the store is not asked again for so long. A permit that this node's own requests give back is
/// available at once.
const PAUSE_US: u64 = 20_000;

/// Held permits are claimed again when less than this is left of their time.
pub(crate) const RENEW_US: u64 = LEASE_US * 2 / 3;

/// The level when no permit is left.
pub(crate) const FULL: Level = Level { remaining: 0, retry_after_us: RETRY_US, reset_after_us: RETRY_US };

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
    shards: [Mutex<HashMap<Key, PermitPool>>; SHARDS],
    /// Seeded: clients choose their keys.
    hasher: RandomState,
    /// Names this table in claims. Not the id of the heartbeat: that need not be the same process for as long.
    node: u64,
    turn: AtomicU64,
    /// Notified when a permit that the node holds comes back.
    returned: Notify,
    upkeep_running: AtomicBool,
}

/// The permits of one key.
#[derive(Default)]
struct PermitPool {
    most: u64,
    in_use: u64,
    /// Granted by the store, for requests to take until `until_us`.
    held: u64,
    until_us: u64,
    others: u64,
    /// The turn of the claim that those are the answer to.
    answered_turn: u64,
    /// Permits that requests wait for.
    waited_for: u64,
    claiming: bool,
    denied_until_us: u64,
    /// The most in use since the last upkeep.
    peak: u64,
    changed: Arc<Notify>,
    /// Notified when a permit comes back, for those that wait in a queue.
    freed: Arc<Notify>,
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

/// The next step of a request that needs the store.
pub(crate) enum PermitStep {
    Done(Result<(ConcurrencyPermit, Level), Level>),
    /// Another request's claim is under way.
    Wait(OwnedNotified),
    Claim(PermitClaim),
}

/// A request that waits for a permit. Dropped: it does not.
pub(crate) struct WaitingRequest<'a> {
    table: &'a PermitTable,
    need: &'a PermitNeed,
}

/// A claim for a key, of which there is one at a time. Dropped: over, whatever came of it.
pub(crate) struct ClaimUnderWay<'a> {
    table: &'a PermitTable,
    key: &'a Key,
}

/// When the next upkeep is needed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UpkeepPace {
    Done,
    Later,
    Soon,
}

impl Default for PermitTable {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            node: fastrand::u64(..),
            turn: AtomicU64::new(0),
            returned: Notify::new(),
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
        let mut pools = self.lock(&need.key);
        if part.most() < pools.get(&need.key).map_or(0, |pool| pool.in_use).saturating_add(need.cost) {
            return Err(FULL);
        }
        let pool = pools.entry(need.key.clone()).or_default();
        // The store learns of the whole limit later, whatever part of it holds now.
        pool.most = need.limit.most();
        let (permit, _) = self.take(pool, need);
        Ok((permit, concurrency::level(part, pool.in_use, 0)))
    }

    /// Takes one of the permits that the node holds, or says that there is none.
    pub(crate) fn take_held(self: &Arc<Self>, need: &PermitNeed, now_us: u64) -> Admittance {
        let mut pools = self.lock(&need.key);
        match pools.get_mut(&need.key) {
            Some(pool) => {
                pool.most = need.limit.most();
                self.try_take(pool, need, now_us)
            }
            None => Admittance::Unknown,
        }
    }

    fn try_take(self: &Arc<Self>, pool: &mut PermitPool, need: &PermitNeed, now_us: u64) -> Admittance {
        if pool.in_use.saturating_add(need.cost) <= pool.held.min(pool.most) && now_us < pool.until_us {
            let (permit, level) = self.take(pool, need);
            return Admittance::Taken(permit, level);
        }
        if now_us < pool.denied_until_us { Admittance::Full(FULL) } else { Admittance::Unknown }
    }

    fn take(self: &Arc<Self>, pool: &mut PermitPool, need: &PermitNeed) -> (ConcurrencyPermit, Level) {
        pool.in_use = pool.in_use.saturating_add(need.cost);
        pool.peak = pool.peak.max(pool.in_use);
        let permit = ConcurrencyPermit { table: self.clone(), key: need.key.clone(), cost: need.cost };
        (permit, pool.level())
    }

    /// Registers a request that cannot go on without the store.
    pub(crate) fn wait<'a>(&'a self, need: &'a PermitNeed) -> WaitingRequest<'a> {
        let mut pools = self.lock(&need.key);
        let pool = pools.entry(need.key.clone()).or_default();
        pool.waited_for = pool.waited_for.saturating_add(need.cost);
        WaitingRequest { table: self, need }
    }

    /// The next step of a waiting request. After [`PermitStep::Claim`] the claim is under way until the guard of
    /// [`Self::begin_claim`] is dropped.
    pub(crate) fn next_step(self: &Arc<Self>, need: &PermitNeed) -> PermitStep {
        let mut pools = self.lock(&need.key);
        let pool = pools.entry(need.key.clone()).or_default();
        pool.most = need.limit.most();
        match self.try_take(pool, need, clock::monotonic_micros()) {
            Admittance::Taken(permit, level) => PermitStep::Done(Ok((permit, level))),
            Admittance::Full(level) => PermitStep::Done(Err(level)),
            Admittance::Unknown if pool.claiming => PermitStep::Wait(pool.changed.clone().notified_owned()),
            Admittance::Unknown => {
                pool.claiming = true;
                let wanted = pool.in_use.saturating_add(pool.waited_for);
                PermitStep::Claim(self.claim_of(pool, &need.key, wanted))
            }
        }
    }

    /// Ends, when dropped, the claim that [`Self::next_step`] began.
    pub(crate) fn begin_claim<'a>(&'a self, key: &'a Key) -> ClaimUnderWay<'a> {
        ClaimUnderWay { table: self, key }
    }

    /// The permit that the answer to a claim left for this request. Without one, it has none: the store was asked once.
    pub(crate) fn take_after_claim(self: &Arc<Self>, need: &PermitNeed) -> Result<(ConcurrencyPermit, Level), Level> {
        let mut pools = self.lock(&need.key);
        let pool = pools.entry(need.key.clone()).or_default();
        match self.try_take(pool, need, clock::monotonic_micros()) {
            Admittance::Taken(permit, level) => Ok((permit, level)),
            Admittance::Full(_) | Admittance::Unknown => Err(FULL),
        }
    }

    /// The claim of a pool whose node wants `wanted` permits. From now on it has no more than that of those it holds.
    fn claim_of(&self, pool: &mut PermitPool, key: &Key, wanted: u64) -> PermitClaim {
        let wanted = wanted.min(pool.most).max(pool.in_use);
        pool.held = pool.held.min(wanted);
        // Under the pool's lock, so that of two claims of a key the later one says what was true later.
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) + 1;
        let claim = PermitRequest { wanted, needed: pool.in_use, turn };
        PermitClaim { key: key.clone(), most: pool.most, node: self.node, claim }
    }

    /// Takes over the store's answer to a claim that was sent at `sent_us`.
    pub(crate) fn learn(&self, claimed: &PermitClaim, granted: GrantedPermits, sent_us: u64) {
        let mut pools = self.lock(&claimed.key);
        let Some(pool) = pools.get_mut(&claimed.key) else { return };
        if claimed.claim.turn < pool.answered_turn {
            return;
        }
        pool.answered_turn = claimed.claim.turn;
        (pool.held, pool.others, pool.until_us) = (granted.own, granted.others, sent_us.saturating_add(LEASE_US));
        let spare = pool.held.saturating_sub(pool.in_use);
        // From the answer on: a store may take longer than the pause to give it.
        let pause_until_us = clock::monotonic_micros().saturating_add(PAUSE_US);
        pool.denied_until_us = if spare < pool.waited_for { pause_until_us } else { 0 };
    }

    fn give_back(&self, key: &Key, cost: u64) {
        let mut pools = self.lock(key);
        let Some(pool) = pools.get_mut(key) else { return };
        pool.in_use = pool.in_use.saturating_sub(cost);
        pool.freed.notify_one();
        if pool.waited_for > 0 {
            pool.changed.notify_waiters();
        }
        if pool.held > pool.in_use {
            self.returned.notify_one();
        } else if pool.is_idle() {
            pools.remove(key);
        }
    }

    /// Claims to make now: of held permits that expire soon, and of permits that are no longer needed. Says when to
    /// look again.
    pub(crate) fn claims_to_make(&self, now_us: u64) -> (Vec<PermitClaim>, UpkeepPace) {
        let (mut claims, mut pace) = (Vec::new(), UpkeepPace::Done);
        for shard in &self.shards {
            let mut pools = shard.lock();
            pools.retain(|_, pool| !pool.is_idle());
            for (key, pool) in pools.iter_mut() {
                let peak = std::mem::replace(&mut pool.peak, pool.in_use);
                let spare = pool.held > peak;
                let ageing = pool.until_us < now_us.saturating_add(RENEW_US) && (pool.held > 0 || pool.in_use > 0);
                if (spare || ageing) && !pool.claiming {
                    claims.push(self.claim_of(pool, key, peak));
                }
                let soon = pool.held > pool.in_use;
                pace = pace.max(if soon { UpkeepPace::Soon } else { UpkeepPace::Later });
            }
        }
        (claims, pace)
    }

    /// Whether the caller is to start the upkeep, of which there is one at a time.
    pub(crate) fn start_upkeep(&self) -> bool {
        !self.upkeep_running.swap(true, Ordering::SeqCst)
    }

    /// Ends the upkeep. `true`: it has to go on after all, since a request relied on it just before.
    pub(crate) fn end_upkeep(&self) -> bool {
        self.upkeep_running.store(false, Ordering::SeqCst);
        !self.is_empty() && self.start_upkeep()
    }

    /// The upkeep was dropped with its runtime: another may start.
    pub(crate) fn abandon_upkeep(&self) {
        self.upkeep_running.store(false, Ordering::SeqCst);
    }

    /// Waits until a permit of `key` that is in use here comes back, or has come back since another such wait: forever, if
    /// none is in use. For one at a time, the first request in a line, which asks again after a while in any case.
    pub(crate) async fn until_free(&self, key: &Key) {
        let freed = self.lock(key).get(key).filter(|pool| pool.in_use > 0).map(|pool| pool.freed.clone());
        match freed {
            Some(freed) => freed.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until a permit that the node holds comes back.
    pub(crate) async fn until_returned(&self) {
        self.returned.notified().await;
    }

    fn lock(&self, key: &Key) -> MutexGuard<'_, HashMap<Key, PermitPool>> {
        let hash = self.hasher.hash_one(key.as_bytes());
        self.shards[hash as usize % SHARDS].lock()
    }

    fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_empty())
    }

    /// Permits of `key` that are in use here.
    pub fn in_use(&self, key: &Key) -> u64 {
        self.lock(key).get(key).map_or(0, |pool| pool.in_use)
    }
}

impl PermitPool {
    fn level(&self) -> Level {
        let remaining = self.most.saturating_sub(self.in_use).saturating_sub(self.others);
        Level { remaining, retry_after_us: 0, reset_after_us: if remaining == 0 { RETRY_US } else { 0 } }
    }

    fn is_idle(&self) -> bool {
        self.in_use == 0 && self.held == 0 && self.waited_for == 0 && !self.claiming
    }
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        let mut pools = self.table.lock(&self.need.key);
        if let Some(pool) = pools.get_mut(&self.need.key) {
            pool.waited_for = pool.waited_for.saturating_sub(self.need.cost);
        }
    }
}

impl Drop for ClaimUnderWay<'_> {
    fn drop(&mut self) {
        let mut pools = self.table.lock(self.key);
        if let Some(pool) = pools.get_mut(self.key) {
            pool.claiming = false;
            pool.changed.notify_waiters();
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
        f.debug_struct("ConcurrencyPermit").field("cost", &self.cost).finish_non_exhaustive()
    }
}

//! PermitTable for requests in flight: those of this process, and those of its node's part of the fleet.
//!
//! A request enters a slot and leaves it when its response's body has ended or it is dropped. A node holds slots of each key for
//! a few seconds at a time and passes them on among its own requests, so that a busy key costs no call; what it has not needed
//! for a moment it gives back. See [`in_flight`](crate::algorithm::concurrency) for why nothing is counted twice, whatever gets lost.
//!
//! Guarantees that no request enters a slot that the node does not hold, counted from before it asked for it; that requests
//! which need an answer wait for one call together, each no longer than the store's time limit; and that there is room kept
//! only for keys with requests in flight or slots held. Refuses to know what becomes of a request that has no slot.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout_at};

use crate::algorithm::concurrency as in_flight;
use crate::algorithm::concurrency::{ConcurrencyLimit, GrantedPermits, LEASE_US, PermitRequest, RETRY_US};
use crate::algorithm::level::Level;
use crate::clock;
use crate::decide::store_client::StoreClient;
use crate::limit::key::Key;
use crate::store::{Ask, PermitClaim};

/// Locks, so that the workers of a large machine seldom meet.
const SHARDS: usize = 16;

/// After a no, nobody asks again for so long. A slot that this node's own requests leave is there at once.
const PAUSE_US: u64 = 20_000;

/// PermitTable that were not needed for so long are given back.
const IDLE: Duration = Duration::from_millis(10);

/// What is held is said again when less than this is left of its time.
const RENEW_US: u64 = LEASE_US * 2 / 3;

/// Keys of a call that gives back or says again.
const BATCH: usize = 64;

/// One per process.
pub struct PermitTable {
    shards: [Mutex<HashMap<Key, PermitPool>>; SHARDS],
    /// Seeded: clients choose their keys.
    hasher: RandomState,
    /// Who says it. Not the one that announces itself: that need not be the same process for as long.
    node: u64,
    turn: AtomicU64,
    left: Notify,
    kept: AtomicBool,
}

/// The slots of one key.
#[derive(Default)]
struct PermitPool {
    most: u64,
    in_use: u64,
    /// Given by the store, for requests to enter until `until_us`.
    held: u64,
    until_us: u64,
    others: u64,
    /// The word that those are the answer to.
    heard: u64,
    /// PermitTable that requests wait for.
    waited_for: u64,
    asking: bool,
    denied_until_us: u64,
    /// The most in use since the last look.
    peak: u64,
    changed: Arc<Notify>,
}

/// A place of a request in flight. Dropped: left.
pub struct ConcurrencyPermit {
    slots: Arc<PermitTable>,
    key: Key,
    cost: u64,
}

/// What there is for a request without asking.
pub(crate) enum Admittance {
    In(ConcurrencyPermit, Level),
    Full(Level),
    /// The store must be asked.
    Unknown,
}

/// A request that waits for a slot. Dropped: it does not.
struct Waiting<'a> {
    slots: &'a PermitTable,
    key: &'a Key,
    cost: u64,
}

/// A call for a key, of which there is one at a time. Dropped: over, whatever came of it.
struct ClaimUnderWay<'a> {
    slots: &'a PermitTable,
    key: &'a Key,
}

/// The task that says again and gives back, of which there is one at a time. Dropped with its runtime: another may start.
struct Upkeep(Option<Arc<PermitTable>>);

impl Default for PermitTable {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            node: fastrand::u64(..),
            turn: AtomicU64::new(0),
            left: Notify::new(),
            kept: AtomicBool::new(false),
        }
    }
}

impl PermitTable {
    /// Enters a slot of those that this process gives out on its own.
    pub(crate) fn enter_alone(
        self: &Arc<Self>,
        ask: &Ask,
        part: ConcurrencyLimit,
    ) -> Result<(ConcurrencyPermit, Level), Level> {
        let mut rooms = self.lock(&ask.key);
        if part.most() < rooms.get(&ask.key).map_or(0, |room| room.in_use).saturating_add(ask.cost) {
            return Err(FULL);
        }
        let room = rooms.entry(ask.key.clone()).or_default();
        // What the store is told of later is the limit, whatever part of it holds now.
        room.most = ask.quota.in_flight().unwrap_or(part).most();
        let (slot, _) = self.enter(room, ask);
        Ok((slot, in_flight::level(part, room.in_use, 0)))
    }

    /// Enters one of the slots that the node holds, or says that there is none.
    pub(crate) fn enter_held(self: &Arc<Self>, ask: &Ask, most: u64, now_us: u64) -> Admittance {
        let mut rooms = self.lock(&ask.key);
        match rooms.get_mut(&ask.key) {
            Some(room) => {
                room.most = most;
                self.try_enter(room, ask, now_us)
            }
            None => Admittance::Unknown,
        }
    }

    fn try_enter(self: &Arc<Self>, room: &mut PermitPool, ask: &Ask, now_us: u64) -> Admittance {
        if room.in_use.saturating_add(ask.cost) <= room.held.min(room.most) && now_us < room.until_us {
            let (slot, level) = self.enter(room, ask);
            return Admittance::In(slot, level);
        }
        if now_us < room.denied_until_us { Admittance::Full(FULL) } else { Admittance::Unknown }
    }

    fn enter(self: &Arc<Self>, room: &mut PermitPool, ask: &Ask) -> (ConcurrencyPermit, Level) {
        room.in_use = room.in_use.saturating_add(ask.cost);
        room.peak = room.peak.max(room.in_use);
        let slot = ConcurrencyPermit { slots: self.clone(), key: ask.key.clone(), cost: ask.cost };
        (slot, room.level())
    }

    /// Enters a slot of the fleet's `most`, if there is one. `None`: the store did not say in time.
    pub(crate) async fn enter_fleet(
        self: &Arc<Self>,
        ask: &Ask,
        most: u64,
        caller: &Arc<StoreClient>,
    ) -> Option<Result<(ConcurrencyPermit, Level), Level>> {
        let deadline = clock::now() + caller.patience();
        let waiting = Waiting::new(self, ask);
        self.keep(caller);
        let mut waited = false;
        loop {
            let changed;
            let step = {
                let mut rooms = self.lock(&ask.key);
                let room = rooms.entry(ask.key.clone()).or_default();
                room.most = most;
                match self.try_enter(room, ask, clock::monotonic_micros()) {
                    Admittance::In(slot, level) => return Some(Ok((slot, level))),
                    Admittance::Full(level) => return Some(Err(level)),
                    Admittance::Unknown if room.asking => {
                        changed = room.changed.clone();
                        Err(changed.notified())
                    }
                    Admittance::Unknown => {
                        room.asking = true;
                        Ok(self.word(room, &ask.key, room.in_use.saturating_add(room.waited_for)))
                    }
                }
            };
            match step {
                Err(answered) => {
                    timeout_at(deadline, answered).await.ok()?;
                    waited = true;
                }
                Ok(claim) => {
                    let asking = ClaimUnderWay { slots: self, key: waiting.key };
                    let sent_us = clock::monotonic_micros();
                    let call = caller.claim(std::slice::from_ref(&claim));
                    // A call has a time limit of its own, and one that reaches it must be heard of. Who waited has less.
                    let held = if waited { timeout_at(deadline, call).await.ok()? } else { call.await };
                    self.hear(&claim, held?.first().copied()?, sent_us);
                    drop(asking);
                    // Asked once: who is not in by this answer has no slot.
                    let mut rooms = self.lock(&ask.key);
                    let room = rooms.entry(ask.key.clone()).or_default();
                    return Some(match self.try_enter(room, ask, clock::monotonic_micros()) {
                        Admittance::In(slot, level) => Ok((slot, level)),
                        Admittance::Full(_) | Admittance::Unknown => Err(FULL),
                    });
                }
            }
        }
    }

    /// What to say of a room whose node wants `wanted` slots. From now on it has no more than that of those it holds.
    fn word(&self, room: &mut PermitPool, key: &Key, wanted: u64) -> PermitClaim {
        let wanted = wanted.min(room.most).max(room.in_use);
        room.held = room.held.min(wanted);
        // Under the room's lock, so that of two words of a key the later one says what was true later.
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) + 1;
        let claim = PermitRequest { wanted, needed: room.in_use, turn };
        PermitClaim { key: key.clone(), most: room.most, node: self.node, claim }
    }

    fn hear(&self, said: &PermitClaim, held: GrantedPermits, sent_us: u64) {
        let mut rooms = self.lock(&said.key);
        let Some(room) = rooms.get_mut(&said.key) else { return };
        if said.claim.turn < room.heard {
            return;
        }
        room.heard = said.claim.turn;
        (room.held, room.others, room.until_us) = (held.own, held.others, sent_us.saturating_add(LEASE_US));
        let spare = room.held.saturating_sub(room.in_use);
        // From the answer on: a store may take longer than the pause to give it.
        let pause_until_us = clock::monotonic_micros().saturating_add(PAUSE_US);
        room.denied_until_us = if spare < room.waited_for { pause_until_us } else { 0 };
    }

    fn leave(&self, key: &Key, cost: u64) {
        let mut rooms = self.lock(key);
        let Some(room) = rooms.get_mut(key) else { return };
        room.in_use = room.in_use.saturating_sub(cost);
        if room.waited_for > 0 {
            room.changed.notify_waiters();
        }
        if room.held > room.in_use {
            self.left.notify_one();
        } else if room.is_idle() {
            rooms.remove(key);
        }
    }

    /// Says again what is held, and gives back what is not needed, as long as anything is.
    pub(crate) fn keep(self: &Arc<Self>, caller: &Arc<StoreClient>) {
        if let Ok(runtime) = Handle::try_current()
            && !self.kept.swap(true, Ordering::SeqCst)
        {
            let (upkeep, caller) = (Upkeep(Some(self.clone())), caller.clone());
            runtime.spawn(upkeep.run(caller));
        }
    }

    /// What there is to say now, and whether there will be more.
    fn due(&self, now_us: u64) -> (Vec<PermitClaim>, Pace) {
        let (mut claims, mut pace) = (Vec::new(), Pace::Done);
        for shard in &self.shards {
            let mut rooms = shard.lock();
            rooms.retain(|_, room| !room.is_idle());
            for (key, room) in rooms.iter_mut() {
                let peak = std::mem::replace(&mut room.peak, room.in_use);
                let spare = room.held > peak;
                let ageing = room.until_us < now_us.saturating_add(RENEW_US) && (room.held > 0 || room.in_use > 0);
                if (spare || ageing) && !room.asking {
                    claims.push(self.word(room, key, peak));
                }
                let soon = room.held > room.in_use;
                pace = pace.max(if soon { Pace::Soon } else { Pace::Later });
            }
        }
        (claims, pace)
    }

    fn lock(&self, key: &Key) -> MutexGuard<'_, HashMap<Key, PermitPool>> {
        let hash = self.hasher.hash_one(key.as_bytes());
        self.shards[hash as usize % SHARDS].lock()
    }

    fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_empty())
    }

    /// PermitTable of `key` that are in use here.
    pub fn in_use(&self, key: &Key) -> u64 {
        self.lock(key).get(key).map_or(0, |room| room.in_use)
    }
}

/// When the next look is due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pace {
    Done,
    Later,
    Soon,
}

impl Upkeep {
    async fn run(mut self, caller: Arc<StoreClient>) {
        while let Some(slots) = self.0.clone() {
            let (claims, pace) = slots.due(clock::monotonic_micros());
            for claims in claims.chunks(BATCH) {
                let sent_us = clock::monotonic_micros();
                // While the store is away, the next look says it again.
                let held = if caller.node.breaker.is_open() { None } else { caller.claim(claims).await };
                for (claim, held) in claims.iter().zip(held.into_iter().flatten()) {
                    slots.hear(claim, held, sent_us);
                }
            }
            match pace {
                Pace::Done => self.end(),
                Pace::Soon => sleep(IDLE).await,
                Pace::Later => tokio::select! {
                    () = slots.left.notified() => sleep(IDLE).await,
                    () = sleep(Duration::from_micros(LEASE_US - RENEW_US)) => {}
                },
            }
        }
    }
}

impl Upkeep {
    /// Goes on after all, if somebody relied on it just before.
    fn end(&mut self) {
        let Some(slots) = self.0.take() else { return };
        slots.kept.store(false, Ordering::SeqCst);
        if !slots.is_empty() && !slots.kept.swap(true, Ordering::SeqCst) {
            self.0 = Some(slots);
        }
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        if let Some(slots) = self.0.take() {
            slots.kept.store(false, Ordering::SeqCst);
        }
    }
}

/// No slot is left.
pub(crate) const FULL: Level = Level { remaining: 0, retry_after_us: RETRY_US, reset_after_us: RETRY_US };

impl PermitPool {
    fn level(&self) -> Level {
        let remaining = self.most.saturating_sub(self.in_use).saturating_sub(self.others);
        Level { remaining, retry_after_us: 0, reset_after_us: if remaining == 0 { RETRY_US } else { 0 } }
    }

    fn is_idle(&self) -> bool {
        self.in_use == 0 && self.held == 0 && self.waited_for == 0 && !self.asking
    }
}

impl<'a> Waiting<'a> {
    fn new(slots: &'a PermitTable, ask: &'a Ask) -> Self {
        let mut rooms = slots.lock(&ask.key);
        let room = rooms.entry(ask.key.clone()).or_default();
        room.waited_for = room.waited_for.saturating_add(ask.cost);
        Self { slots, key: &ask.key, cost: ask.cost }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut rooms = self.slots.lock(self.key);
        if let Some(room) = rooms.get_mut(self.key) {
            room.waited_for = room.waited_for.saturating_sub(self.cost);
        }
    }
}

impl Drop for ClaimUnderWay<'_> {
    fn drop(&mut self) {
        let mut rooms = self.slots.lock(self.key);
        if let Some(room) = rooms.get_mut(self.key) {
            room.asking = false;
            room.changed.notify_waiters();
        }
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        self.slots.leave(&self.key, self.cost);
    }
}

impl std::fmt::Debug for ConcurrencyPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConcurrencyPermit").field("cost", &self.cost).finish_non_exhaustive()
    }
}

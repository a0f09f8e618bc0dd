//! Buckets in this process, for all of its workers.
//!
//! Guarantees the same decisions as the shared store's script, a bound on the number of buckets, and never more than the
//! limit even when buckets must be forgotten (see `shard.rs`), nor when workers come late: they read the clock before they
//! have the lock, and under the lock time never moves back. Refuses to know why the decision is local: the caller says
//! which share of the limits is this node's.

mod compact_state;
mod inspect;
mod shard;

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, ready};
use parking_lot::{Mutex, MutexGuard};
use smallvec::{SmallVec, smallvec};

use crate::algorithm::concurrency as in_flight;
use crate::algorithm::concurrency::{GrantedPermits, PermitHolder};
use crate::algorithm::level::Level;
use crate::algorithm::quota::Quota;
use crate::algorithm::share::Share;
use crate::algorithm::state::QuotaState;
use crate::algorithm::window::Timestamp;
use crate::clock;
use crate::limit::key::Key;
use crate::store::memory::shard::{Found, Shard};
use crate::store::{
    Adjustment, BucketCharge, Change, Grant, MergedCharge, MergedCharges, PermitClaim, Store, StoreError,
};

/// Locks at most: enough for the workers of a large machine to seldom meet.
const SHARDS: usize = 64;

/// A wall clock that is this far from where it should be was set.
const CLOCK_STEP_US: u64 = 10_000;

/// A bounded table of buckets.
pub struct MemoryStore {
    /// A power of two of them.
    shards: Box<[Mutex<Shard>]>,
    /// Seeded: clients choose their keys.
    hasher: RandomState,
    /// Microseconds since 1970-01-01T00:00Z when the monotonic clock read 0: fixed windows go by the calendar.
    epoch_us: AtomicU64,
    /// Who holds slots for requests in flight, where this is the store of several nodes.
    holders: Mutex<HashMap<Key, Vec<PermitHolder>>>,
}

/// A charge with all that it needs, its shard locked.
struct Place<'a> {
    key: &'a [u8],
    hash: u64,
    /// The limit itself, which is kept.
    quota: Quota,
    /// This node's part of it. `None`: another node's alone.
    part: Option<Quota>,
    cost: u64,
    found: Found,
}

/// The shards of one request, locked in ascending order so that two requests never wait for each other.
struct Locked<'a> {
    ids: SmallVec<[usize; 4]>,
    guards: SmallVec<[MutexGuard<'a, Shard>; 4]>,
}

impl MemoryStore {
    /// Room for `max_buckets` buckets, at least one. Memory is taken as they come.
    pub fn new(max_buckets: usize) -> Self {
        let max = max_buckets.max(1);
        let count = if max >= SHARDS { SHARDS } else { (max + 1).next_power_of_two() / 2 };
        let shards = (0..count).map(|_| Mutex::new(Shard::new(max / count))).collect();
        let store = Self { shards, hasher: RandomState::new(), epoch_us: AtomicU64::new(0), holders: Mutex::default() };
        store.follow_clock();
        store
    }

    /// Takes over what the wall clock shows: somebody may have set it. For a background task.
    pub fn follow_clock(&self) {
        let epoch_us = clock::unix_micros().saturating_sub(clock::monotonic_micros());
        // Less is how finely clocks are read: windows that end at the same time should stay one.
        if epoch_us.abs_diff(self.epoch_us()) > CLOCK_STEP_US {
            self.set_epoch(epoch_us);
        }
    }

    /// What time it was, in microseconds since 1970-01-01T00:00Z, when the clock that callers read showed 0.
    pub fn set_epoch(&self, epoch_us: u64) {
        self.epoch_us.store(epoch_us, Ordering::Relaxed);
    }

    /// A time of the monotonic clock, with what `quota` needs of it.
    pub fn timestamp(&self, quota: Quota, now_us: u64) -> Timestamp {
        quota.timestamp(now_us, self.epoch_us())
    }

    fn epoch_us(&self) -> u64 {
        self.epoch_us.load(Ordering::Relaxed)
    }

    /// Takes as [`Store::take`] does, at `now_us` of the monotonic clock, from this node's share of each limit. Who
    /// comes later than somebody with a later time takes at that time.
    pub fn take_at(&self, charges: &[BucketCharge], units: u32, now_us: u64, share: Share) -> Grant {
        match charges {
            [charge] => self.take_one(charge, units, now_us, share),
            _ => self.take_all(charges, units, now_us, share),
        }
    }

    /// Most requests have one limit, and need no lists.
    fn take_one(&self, charge: &BucketCharge, units: u32, now_us: u64, share: Share) -> Grant {
        let charge = MergedCharge::of(charge);
        let hash = self.hash(charge.key);
        let mut shard = self.shards[self.shard_of(hash)].lock();
        let now_us = shard.advance(now_us);
        let mut place = Place::find(&charge, hash, &shard, [now_us, self.epoch_us()], share);
        let granted = place.grants(units);
        let level = place.charge(granted, units);
        place.keep(&mut shard, now_us);
        Grant { units: granted, levels: smallvec![level], at_us: now_us }
    }

    fn take_all(&self, charges: &[BucketCharge], units: u32, now_us: u64, share: Share) -> Grant {
        let charges = MergedCharges::of(charges);
        let hashes: SmallVec<[u64; 4]> = charges.list.iter().map(|charge| self.hash(charge.key)).collect();
        let mut held = self.lock(&hashes);
        let now_us = held.advance(now_us);
        let mut places: SmallVec<[Place<'_>; 4]> = (charges.list.iter().zip(&hashes))
            .map(|(charge, hash)| {
                Place::find(charge, *hash, held.shard(self.shard_of(*hash)), [now_us, self.epoch_us()], share)
            })
            .collect();
        let granted = places.iter().map(|place| place.grants(units)).min().unwrap_or(units);
        let levels: SmallVec<[Level; 4]> = (places.iter_mut())
            .map(|place| {
                let level = place.charge(granted, units);
                place.keep_anew(held.shard(self.shard_of(place.hash)), [now_us, self.epoch_us()]);
                level
            })
            .collect();
        Grant { units: granted, levels: charges.spread(&levels), at_us: now_us }
    }

    /// Corrects as [`Store::adjust`] does, at `now_us` of the monotonic clock.
    pub fn adjust_at(&self, adjustments: &[Adjustment], now_us: u64) {
        for Adjustment { key, quota, change } in adjustments {
            self.change(key.as_bytes(), *quota, now_us, |state| match *change {
                Change::ForceCharge(charge) => state.force_charge(charge),
                Change::Charge(charge) => state.charge_late(charge),
                Change::Refund { charge, taken_at_us } => {
                    let from_us = self.timestamp(*quota, taken_at_us).expires_at_us;
                    state.refund(charge, taken_at_us, from_us);
                }
            });
        }
    }

    /// Takes over what the shared store last said of `charge`'s key, so that an outage starts from there.
    pub fn observe(&self, charge: &BucketCharge, level: &Level, now_us: u64) {
        self.change(charge.key.as_bytes(), charge.quota, now_us, |state| state.observe(level));
    }

    /// What `key` had, and has after `to`.
    fn change(&self, key: &[u8], quota: Quota, now_us: u64, to: impl FnOnce(&mut QuotaState)) -> [QuotaState; 2] {
        let hash = self.hash(key);
        let mut shard = self.shards[self.shard_of(hash)].lock();
        let found = shard.find(hash, key, quota, now_us, self.epoch_us());
        let mut after = found.state.clone();
        to(&mut after);
        if after.is_changed() {
            // Also when all is back now: a key that is not known may count as less.
            shard.put(&found, hash, key, after.stored(), now_us);
        }
        [found.state, after]
    }

    /// Takes over claims as [`Store::claim`] does, at `now_us` of the monotonic clock.
    pub fn claim_at(&self, claims: &[PermitClaim], now_us: u64) -> Vec<GrantedPermits> {
        let mut holders = self.holders.lock();
        let mut claim = |said: &PermitClaim| {
            let of_key = holders.entry(said.key.clone()).or_default();
            in_flight::claim(of_key, said.node, said.most, said.claim, now_us)
        };
        let held = claims.iter().map(&mut claim).collect();
        holders.retain(|_, of_key| of_key.iter().any(|holder| holder.until_us > now_us));
        held
    }

    /// Forgets the buckets that are full by `now_us`, one shard at a time. For a background task, so that what an idle
    /// process keeps shrinks.
    pub fn sweep(&self, now_us: u64) {
        for shard in &self.shards {
            shard.lock().sweep(now_us);
        }
    }

    /// Buckets kept now.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Of a key alone: the length that is hashed before a slice, where others may follow it, tells nothing here.
    fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    /// By the high half of the hash: the low bits place the entry within its shard.
    fn shard_of(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.shards.len() - 1)
    }

    fn lock(&self, hashes: &[u64]) -> Locked<'_> {
        let mut ids: SmallVec<[usize; 4]> = hashes.iter().map(|hash| self.shard_of(*hash)).collect();
        ids.sort_unstable();
        ids.dedup();
        let guards = ids.iter().map(|id| self.shards[*id].lock()).collect();
        Locked { ids, guards }
    }
}

impl Store for MemoryStore {
    fn take<'a>(&'a self, charges: &'a [BucketCharge], units: u32) -> BoxFuture<'a, Result<Grant, StoreError>> {
        Box::pin(ready(Ok(self.take_at(charges, units, clock::monotonic_micros(), Share::WHOLE))))
    }

    fn adjust<'a>(&'a self, adjustments: &'a [Adjustment]) -> BoxFuture<'a, Result<(), StoreError>> {
        self.adjust_at(adjustments, clock::monotonic_micros());
        Box::pin(ready(Ok(())))
    }

    fn claim<'a>(&'a self, claims: &'a [PermitClaim]) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>> {
        Box::pin(ready(Ok(self.claim_at(claims, clock::monotonic_micros()))))
    }

    /// It answers at once: this only bounds what waits for another call.
    fn timeout(&self) -> Duration {
        Duration::from_secs(1)
    }
}

impl Locked<'_> {
    /// One time for all of the shards, which none of them takes for the past.
    fn advance(&mut self, now_us: u64) -> u64 {
        let latest_us = self.guards.iter().fold(now_us, |latest_us, shard| shard.time(latest_us));
        for shard in &mut self.guards {
            shard.advance(latest_us);
        }
        latest_us
    }

    /// One of the shards that were locked.
    fn shard(&mut self, id: usize) -> &mut Shard {
        let place = self.ids.partition_point(|held| *held < id);
        &mut self.guards[place]
    }
}

impl<'a> Place<'a> {
    fn find(charge: &MergedCharge<'a>, hash: u64, shard: &Shard, [now_us, epoch_us]: [u64; 2], share: Share) -> Self {
        let MergedCharge { key, quota, cost, largest_cost } = *charge;
        let part = share.of(key, quota, largest_cost);
        Self { key, hash, quota, part, cost, found: shard.find(hash, key, quota, now_us, epoch_us) }
    }

    fn grants(&self, units: u32) -> u32 {
        self.part.map_or(0, |part| self.found.state.fitting(part, self.cost, units))
    }

    /// MergedCharges `granted` units.
    fn charge(&mut self, granted: u32, units: u32) -> Level {
        match self.part {
            Some(part) => self.found.state.charge(part, self.cost, granted, units),
            None => self.elsewhere(granted < units),
        }
    }

    /// Keeps what was charged. Nothing else may have touched the shard in between.
    fn keep(&self, shard: &mut Shard, now_us: u64) {
        if self.is_to_keep() {
            shard.put(&self.found, self.hash, self.key, self.found.state.stored(), now_us);
        }
    }

    /// The same after other places were kept, which may have moved this one: it is looked up again.
    fn keep_anew(&self, shard: &mut Shard, [now_us, epoch_us]: [u64; 2]) {
        if self.is_to_keep() {
            let found = shard.find(self.hash, self.key, self.quota, now_us, epoch_us);
            shard.put(&found, self.hash, self.key, self.found.state.stored(), now_us);
        }
    }

    /// What is another node's alone is not kept here.
    fn is_to_keep(&self) -> bool {
        self.part.is_some() && self.found.state.is_changed()
    }

    /// The limit is another node's as long as the store is away: nothing is left here, and a guess at when to come back is
    /// the time the limit takes to yield one such request.
    fn elsewhere(&self, denied: bool) -> Level {
        let wait = self.quota.pace_us(self.cost);
        Level { remaining: 0, retry_after_us: if denied { wait } else { 0 }, reset_after_us: wait }
    }
}

//! Buckets in this process, for all of its workers.
//!
//! Guarantees the same decisions as the shared store's script, a bound on the number of buckets,
//! and never more than the limit even when buckets must be forgotten (see `shard.rs`), nor when
//! workers come late: they read the clock before they have the lock, and under the lock time never
//! moves back. The caller says which share of the limits is this node's.

mod compact_state;
mod inspect;
mod limit_usage;
mod shard;

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, ready};
use parking_lot::{Mutex, MutexGuard};
use smallvec::{SmallVec, smallvec};

use crate::algorithm::concurrency::{self, GrantedPermits, PermitHolder};
use crate::algorithm::level::Level;
use crate::algorithm::quota::Quota;
use crate::algorithm::share::Share;
use crate::algorithm::state::QuotaState;
use crate::algorithm::window::Timestamp;
use crate::clock;
use crate::limit::key::Key;
use crate::store::adjustment::{
    Adjustment, AdjustmentBatch, AdjustmentOutcome, AdjustmentResult, Change,
};
use crate::store::memory::shard::{FoundBucket, Shard};
use crate::store::merged_charges::{MergedCharge, MergedCharges};
use crate::store::{BucketCharge, Grant, PermitClaim, Store, StoreError, StoreFailure};

/// Locks at most: enough for the workers of a large machine to seldom meet.
const SHARDS: usize = 64;

/// Buckets per lock at least, so that a limit has some of its own to drop when it must make room.
const SMALLEST_SHARD: usize = 16;

/// A wall clock that differs by more than this from the monotonic one was set.
const CLOCK_STEP_US: u64 = 10_000;

/// A bounded table of buckets. `Limiter::local` takes one.
pub struct MemoryStore {
    /// A power of two of them.
    shards: Box<[Mutex<Shard>]>,
    /// Seeded: clients choose their keys.
    hasher: RandomState,
    /// Microseconds since 1970-01-01T00:00Z when the monotonic clock read 0: fixed windows go by
    /// the calendar.
    epoch_us: AtomicU64,
    /// The nodes that hold permits for requests in flight, where this is the store of several
    /// nodes.
    holders: Mutex<HashMap<Key, Vec<PermitHolder>>>,
}

/// A charge under way, with its shard locked.
struct BucketCharging<'a> {
    key: &'a [u8],
    hash: u64,
    /// The whole limit, which is stored.
    quota: Quota,
    /// The parts of it, of which this node has one. `None`: the limit is another node's alone.
    parts: Option<u32>,
    cost: u64,
    found: FoundBucket,
}

/// The shards of one request, locked in ascending order so that two requests never wait for each
/// other.
struct LockedShards<'a> {
    ids: SmallVec<[usize; 4]>,
    guards: SmallVec<[MutexGuard<'a, Shard>; 4]>,
}

impl MemoryStore {
    /// Room for `max_buckets` buckets, at least one. Memory is taken as they come.
    pub fn new(max_buckets: usize) -> Self {
        let max = max_buckets.max(1);
        let count = SHARDS.min(1 << (max / SMALLEST_SHARD).max(1).ilog2());
        let shards = (0..count)
            .map(|_| Mutex::new(Shard::new(max / count)))
            .collect();
        let store = Self {
            shards,
            hasher: RandomState::new(),
            epoch_us: AtomicU64::new(0),
            holders: Mutex::default(),
        };
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

    /// Sets the time at which the clock that callers read showed 0, in microseconds since
    /// 1970-01-01T00:00Z.
    pub fn set_epoch(&self, epoch_us: u64) {
        self.epoch_us.store(epoch_us, Ordering::Relaxed);
        self.shards
            .iter()
            .for_each(|shard| shard.lock().set_epoch(epoch_us));
    }

    /// A time of the monotonic clock, in the form that `quota` needs.
    pub fn timestamp(&self, quota: Quota, now_us: u64) -> Timestamp {
        quota.timestamp(now_us, self.epoch_us())
    }

    fn epoch_us(&self) -> u64 {
        self.epoch_us.load(Ordering::Relaxed)
    }

    /// Takes like [`Store::take`], at `now_us` of the monotonic clock, from this node's share of
    /// each limit. A caller that comes after another with a later time takes at that later time.
    pub fn take_at(
        &self,
        charges: &[BucketCharge],
        units: u32,
        now_us: u64,
        share: Share,
    ) -> Grant {
        match charges {
            [charge] => self.take_one(charge, units, now_us, share),
            _ => self.take_all(charges, units, now_us, share),
        }
    }

    /// Most requests have one limit, and need no lists.
    fn take_one(&self, charge: &BucketCharge, units: u32, now_us: u64, share: Share) -> Grant {
        let charge = MergedCharge::new(charge);
        let hash = self.hash(charge.key);
        let mut shard = self.shards[self.shard_of(hash)].lock();
        let now_us = shard.advance(now_us);
        let mut charging = BucketCharging::find(&charge, hash, &shard, now_us, share);
        let granted = charging.grants(units);
        let level = charging.charge(granted, units);
        charging.store(&mut shard, now_us);
        Grant {
            units: granted,
            levels: smallvec![level],
            at_us: now_us,
            foreign: SmallVec::new(),
            whole: Box::default(),
        }
    }

    fn take_all(&self, charges: &[BucketCharge], units: u32, now_us: u64, share: Share) -> Grant {
        let charges = MergedCharges::new(charges);
        let hashes: SmallVec<[u64; 4]> = charges
            .list
            .iter()
            .map(|charge| self.hash(charge.key))
            .collect();
        let mut locked = self.lock(&hashes);
        let now_us = locked.advance(now_us);
        let mut chargings: SmallVec<[BucketCharging<'_>; 4]> = (charges.list.iter().zip(&hashes))
            .map(|(charge, hash)| {
                BucketCharging::find(
                    charge,
                    *hash,
                    locked.shard(self.shard_of(*hash)),
                    now_us,
                    share,
                )
            })
            .collect();
        let granted = chargings
            .iter()
            .map(|charging| charging.grants(units))
            .min()
            .unwrap_or(units);
        let levels: SmallVec<[Level; 4]> = (chargings.iter_mut())
            .map(|charging| {
                let level = charging.charge(granted, units);
                charging.store_again(locked.shard(self.shard_of(charging.hash)), now_us);
                level
            })
            .collect();
        Grant {
            units: granted,
            levels: charges.spread(&levels),
            at_us: now_us,
            ..Grant::default()
        }
    }

    /// Corrects like [`Store::adjust`], at `now_us` of the monotonic clock.
    pub fn adjust_at<'a>(
        &self,
        adjustments: impl IntoIterator<Item = &'a Adjustment>,
        now_us: u64,
    ) {
        for Adjustment { key, quota, change } in adjustments {
            self.change(key.as_bytes(), *quota, now_us, |state| match *change {
                Change::Charge { charge, since_us } => {
                    let since_us = since_us.min(now_us);
                    let [then_us, this_us] =
                        [since_us, now_us].map(|at| self.timestamp(*quota, at).expires_at_us);
                    // The state knows better when this window ends, if the clock stepped back.
                    let expires_at_us = if then_us < this_us { then_us } else { u64::MAX };
                    state.charge_debt(charge, now_us - since_us, expires_at_us);
                }
                Change::Refund {
                    charge,
                    taken_at_us,
                } => {
                    let from_us = self.timestamp(*quota, taken_at_us).expires_at_us;
                    state.refund(charge, taken_at_us, from_us);
                }
            });
        }
    }

    /// Takes over the level that the shared store last had for the bucket of `charge`, so that an
    /// outage starts from there.
    pub fn observe(&self, charge: &BucketCharge, level: &Level, now_us: u64) {
        self.change(charge.key.as_bytes(), charge.quota, now_us, |state| {
            state.observe(level)
        });
    }

    /// Changes the state of `key`: the state before and after.
    fn change(
        &self,
        key: &[u8],
        quota: Quota,
        now_us: u64,
        change: impl FnOnce(&mut QuotaState),
    ) -> [QuotaState; 2] {
        let hash = self.hash(key);
        let mut shard = self.shards[self.shard_of(hash)].lock();
        let found = shard.find(hash, key, quota, now_us);
        let mut after = found.state.clone();
        change(&mut after);
        if after.is_changed() {
            // A full bucket too: an unknown key may count as less.
            shard.put(&found, hash, key, after.stored(), now_us);
        }
        [found.state, after]
    }

    /// Takes over claims like [`Store::claim`], at `now_us` of the monotonic clock.
    pub fn claim_at(&self, claims: &[PermitClaim], now_us: u64) -> Vec<GrantedPermits> {
        let mut holders = self.holders.lock();
        claims
            .iter()
            .map(|claim| {
                let of_key = holders.entry(claim.key.clone()).or_default();
                let granted =
                    concurrency::claim(of_key, claim.node, claim.most, claim.claim, now_us);
                if of_key.is_empty() {
                    holders.remove(&claim.key);
                }
                granted
            })
            .collect()
    }

    /// Forgets the buckets that are full by `now_us`, one shard at a time, and permits whose time
    /// is over. For a background task, so that what an idle process keeps shrinks.
    pub fn sweep(&self, now_us: u64) {
        for shard in &self.shards {
            shard.lock().sweep(now_us);
        }
        self.holders
            .lock()
            .retain(|_, of_key| of_key.iter().any(|holder| holder.until_us > now_us));
    }

    /// Buckets kept now.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The hash of a key's bytes alone. `Hash` of a slice adds its length, which is of no use where
    /// nothing follows.
    fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    /// The shard of a hash, by its high half: the low bits place the bucket within its shard.
    fn shard_of(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.shards.len() - 1)
    }

    fn lock(&self, hashes: &[u64]) -> LockedShards<'_> {
        let mut ids: SmallVec<[usize; 4]> =
            hashes.iter().map(|hash| self.shard_of(*hash)).collect();
        ids.sort_unstable();
        ids.dedup();
        let guards = ids.iter().map(|id| self.shards[*id].lock()).collect();
        LockedShards { ids, guards }
    }
}

impl Store for MemoryStore {
    fn take<'a>(
        &'a self,
        charges: &'a [BucketCharge],
        units: u32,
    ) -> BoxFuture<'a, Result<Grant, StoreFailure>> {
        Box::pin(ready(Ok(self.take_at(
            charges,
            units,
            clock::monotonic_micros(),
            Share::WHOLE,
        ))))
    }

    /// This store answers at once, so no batch is sent to it twice.
    fn adjust<'a>(&'a self, batch: &'a AdjustmentBatch) -> BoxFuture<'a, Vec<AdjustmentResult>> {
        self.adjust_at(batch.iter(), clock::monotonic_micros());
        Box::pin(ready(vec![Ok(AdjustmentOutcome::Applied); batch.len()]))
    }

    fn claim<'a>(
        &'a self,
        claims: &'a [PermitClaim],
    ) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>> {
        Box::pin(ready(Ok(self.claim_at(claims, clock::monotonic_micros()))))
    }

    /// This store answers at once: the time only bounds what waits for another call.
    fn timeout(&self) -> Duration {
        Duration::from_secs(1)
    }
}

impl LockedShards<'_> {
    /// The time for all of the shards, which is not before the time of any of them.
    fn advance(&mut self, now_us: u64) -> u64 {
        let latest_us = self
            .guards
            .iter()
            .fold(now_us, |latest_us, shard| shard.time(latest_us));
        for shard in &mut self.guards {
            shard.advance(latest_us);
        }
        latest_us
    }

    /// A shard that was locked, by its number.
    fn shard(&mut self, id: usize) -> &mut Shard {
        let place = self.ids.partition_point(|locked| *locked < id);
        &mut self.guards[place]
    }
}

impl<'a> BucketCharging<'a> {
    fn find(
        charge: &MergedCharge<'a>,
        hash: u64,
        shard: &Shard,
        now_us: u64,
        share: Share,
    ) -> Self {
        let MergedCharge {
            key,
            quota,
            cost,
            largest_cost,
            ..
        } = *charge;
        Self {
            key,
            hash,
            quota,
            parts: share.parts(key, quota, largest_cost),
            cost,
            found: shard.find(hash, key, quota, now_us),
        }
    }

    fn grants(&self, units: u32) -> u32 {
        match self.parts {
            Some(parts) => self.found.state.fitting(parts, self.cost, units),
            None => 0,
        }
    }

    /// Charges `granted` units.
    fn charge(&mut self, granted: u32, units: u32) -> Level {
        match self.parts {
            Some(parts) => self.found.state.charge(parts, self.cost, granted, units),
            None => Self::elsewhere(granted < units),
        }
    }

    /// Stores the charged state. Nothing else may have touched the shard in between.
    fn store(&self, shard: &mut Shard, now_us: u64) {
        if self.is_to_store() {
            shard.put(
                &self.found,
                self.hash,
                self.key,
                self.found.state.stored(),
                now_us,
            );
        }
    }

    /// Like [`Self::store`], after other buckets were stored, which may have moved this one: it is
    /// looked up again.
    fn store_again(&self, shard: &mut Shard, now_us: u64) {
        if self.is_to_store() {
            let found = shard.find(self.hash, self.key, self.quota, now_us);
            shard.put(
                &found,
                self.hash,
                self.key,
                self.found.state.stored(),
                now_us,
            );
        }
    }

    /// The bucket of a limit that is other nodes' alone is not stored here.
    fn is_to_store(&self) -> bool {
        self.parts.is_some() && self.found.state.is_changed()
    }

    /// The level where the limit is other nodes' as long as the store is away.
    fn elsewhere(denied: bool) -> Level {
        if denied {
            Level::DENIED_WITHOUT_STORE
        } else {
            Level {
                retry_after_us: 0,
                ..Level::DENIED_WITHOUT_STORE
            }
        }
    }
}

//! Buckets in this process, for all of its workers.
//!
//! Guarantees the same decisions as the shared store's script, a bound on the number of buckets, and never more than the
//! limit even when buckets must be forgotten (see `shard.rs`), nor when workers come late: they read the clock before they
//! have the lock, and under the lock time never moves back. Refuses to know why the decision is local: the caller says
//! which share of the limits is this node's.

mod inspect;

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use futures_util::future::{BoxFuture, ready};
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::shard::{Found, Shard};
use super::{Adjustment, Ask, Change, Charge, Charges, Grant, Store, StoreError};
use crate::clock;
use crate::rate_limit::bucket::{self, MAX_TICKS, Shape};
use crate::rate_limit::carry::Backlog;
use crate::rate_limit::decision::Level;
use crate::rate_limit::share::Share;

/// Locks at most: enough for the workers of a large machine to seldom meet.
const SHARDS: usize = 64;

/// A bounded table of buckets.
pub struct MemoryStore {
    /// A power of two of them.
    shards: Box<[Mutex<Shard>]>,
    /// Seeded: clients choose their keys.
    hasher: RandomState,
}

/// A charge with all that it needs, its shard locked.
struct Place<'a> {
    key: &'a [u8],
    hash: u64,
    /// The limit itself, which the stored backlog counts in.
    shape: Shape,
    /// This node's part of it. `None`: another node's alone.
    part: Option<Shape>,
    cost: u64,
    found: Found,
}

/// The shards of one request, locked in ascending order so that two requests never wait for each other.
struct Held<'a> {
    ids: SmallVec<[usize; 4]>,
    guards: SmallVec<[MutexGuard<'a, Shard>; 4]>,
}

impl MemoryStore {
    /// Room for `max_buckets` buckets, at least one. Memory is taken as they come.
    pub fn new(max_buckets: usize) -> Self {
        let max = max_buckets.max(1);
        let count = if max >= SHARDS { SHARDS } else { (max + 1).next_power_of_two() / 2 };
        let shards = (0..count).map(|_| Mutex::new(Shard::new(max / count))).collect();
        Self { shards, hasher: RandomState::new() }
    }

    /// Takes as [`Store::take`] does, at `now_us` of the monotonic clock, from this node's share of each limit. Who
    /// comes later than somebody with a later time takes at that time.
    pub fn take_at(&self, asks: &[Ask], units: u32, now_us: u64, share: Share) -> Grant {
        let charges = Charges::of(asks);
        let hashes: SmallVec<[u64; 4]> = charges.list.iter().map(|charge| self.hasher.hash_one(charge.key)).collect();
        let mut held = self.lock(&hashes);
        let now_us = held.advance(now_us);
        let places: SmallVec<[Place<'_>; 4]> = (charges.list.iter().zip(&hashes))
            .map(|(charge, hash)| Place::find(charge, *hash, held.shard(self.shard_of(*hash)), now_us, share))
            .collect();
        let granted = places.iter().map(|place| place.grants(units)).min().unwrap_or(units);
        let levels: SmallVec<[Level; 4]> = (places.iter())
            .map(|place| place.settle(held.shard(self.shard_of(place.hash)), granted, units, now_us))
            .collect();
        Grant { units: granted, levels: charges.spread(&levels), at_us: now_us }
    }

    /// Corrects as [`Store::adjust`] does, at `now_us` of the monotonic clock.
    pub fn adjust_at(&self, adjustments: &[Adjustment], now_us: u64) {
        for Adjustment { key, shape, change } in adjustments {
            let (key, shape) = (key.as_bytes(), *shape);
            let hash = self.hasher.hash_one(key);
            let mut shard = self.shards[self.shard_of(hash)].lock();
            let now_us = shard.advance(now_us);
            let found = shard.find(hash, key, shape, now_us);
            let (carried, kept) = (&found.carried, found.carried.kept);
            let after = match *change {
                Change::Owe(ticks) => carried.owe(ticks, shape.capacity()),
                Change::Charge(ticks) => carried.owe(ticks, MAX_TICKS),
                Change::GiveBack { ticks, taken_at_us } => match now_us.checked_sub(taken_at_us) {
                    Some(held_us) if carried.is_own() => {
                        Backlog { ticks: bucket::give_back(shape, kept.ticks, ticks, held_us), ..kept }
                    }
                    _ => kept,
                },
            };
            if after.ticks == 0 && kept.ticks > 0 {
                shard.forget(&found);
            } else if after != kept {
                shard.put(&found, hash, key, after, now_us);
            }
        }
    }

    /// Notes what the shared store last said of `ask`'s bucket, so that an outage starts from there. Time to full, unlike
    /// tokens, means the same under every share; but where the store keeps the bucket by a faster limit, that time is less
    /// than by this one, and what remains tells more.
    pub fn note(&self, ask: &Ask, level: &Level, now_us: u64) {
        let (key, shape) = (ask.key.as_bytes(), ask.shape);
        let hash = self.hasher.hash_one(key);
        let fitting = shape.charge(level.remaining.saturating_add(1));
        let said = shape.pace().ticks(level.reset_after_us).max((shape.usable() + 1).saturating_sub(fitting));
        let mut shard = self.shards[self.shard_of(hash)].lock();
        let found = shard.find(hash, key, shape, now_us);
        if said > found.carried.backlog {
            let said = Backlog { ticks: said.min(MAX_TICKS), pace: shape.pace() };
            shard.put(&found, hash, key, said, now_us);
        } else if found.carried.moved {
            shard.put(&found, hash, key, found.carried.kept, now_us);
        }
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

    /// By the high half of the hash: the low bits place the entry within its shard.
    fn shard_of(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.shards.len() - 1)
    }

    fn lock(&self, hashes: &[u64]) -> Held<'_> {
        let mut ids: SmallVec<[usize; 4]> = hashes.iter().map(|hash| self.shard_of(*hash)).collect();
        ids.sort_unstable();
        ids.dedup();
        let guards = ids.iter().map(|id| self.shards[*id].lock()).collect();
        Held { ids, guards }
    }
}

impl Store for MemoryStore {
    fn take<'a>(&'a self, asks: &'a [Ask], units: u32) -> BoxFuture<'a, Result<Grant, StoreError>> {
        Box::pin(ready(Ok(self.take_at(asks, units, clock::monotonic_micros(), Share::WHOLE))))
    }

    fn adjust<'a>(&'a self, adjustments: &'a [Adjustment]) -> BoxFuture<'a, Result<(), StoreError>> {
        self.adjust_at(adjustments, clock::monotonic_micros());
        Box::pin(ready(Ok(())))
    }

    /// It answers at once: this only bounds what waits for another call.
    fn timeout(&self) -> Duration {
        Duration::from_secs(1)
    }
}

impl Held<'_> {
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
    fn find(charge: &Charge<'a>, hash: u64, shard: &Shard, now_us: u64, share: Share) -> Self {
        let Charge { key, shape, cost, largest_cost } = *charge;
        let part = share.of(key, shape, largest_cost);
        Self { key, hash, shape, part, cost, found: shard.find(hash, key, shape, now_us) }
    }

    fn grants(&self, units: u32) -> u32 {
        self.part.map_or(0, |part| bucket::grants(part, self.found.carried.backlog, self.cost, units))
    }

    /// Charges `granted` units. A bucket that another place has inserted or moved meanwhile is looked up again.
    fn settle(&self, shard: &mut Shard, granted: u32, units: u32, now_us: u64) -> Level {
        let Some(part) = self.part else { return self.elsewhere(granted < units) };
        let carried = &self.found.carried;
        let taken = carried.settle(part, self.cost, granted, units);
        if granted > 0 || carried.moved {
            let found = shard.find(self.hash, self.key, self.shape, now_us);
            shard.put(&found, self.hash, self.key, carried.after(&taken), now_us);
        }
        Level { remaining: taken.remaining, retry_after_us: taken.retry_after_us, reset_after_us: taken.reset_after_us }
    }

    /// The limit is another node's as long as the store is away: nothing is left here, and a guess at when to come back is
    /// the time the limit takes to yield one such request.
    fn elsewhere(&self, denied: bool) -> Level {
        let wait = self.shape.micros(self.shape.charge(self.cost));
        Level { remaining: 0, retry_after_us: if denied { wait } else { 0 }, reset_after_us: wait }
    }
}

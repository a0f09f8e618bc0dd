//! One lock's worth of buckets: a bounded table that forgets without giving anything away.
//!
//! Guarantees a bound on its entries, and that no bucket ever has more tokens than it should: when a bucket that is not full
//! must make room, the shard remembers the time by which it would have been full (its *floor*), and every bucket it does
//! not know counts as full only from then on. That holds while the limit stands; a limit changed after its bucket was
//! evicted starts from the floor in time, not in tokens.
//! Time never moves back, whatever callers say it is. Refuses to know locks and shares.

use hashbrown::HashTable;

use crate::rate_limit::bucket::{MAX_TICKS, Pace, Shape};
use crate::rate_limit::carry::{Backlog, Carried};

/// Entries looked at for one to drop. Enough to find one among the soonest full, few enough to be cheap under the lock.
const PROBES: usize = 16;

pub(super) struct Shard {
    entries: Vec<Entry>,
    /// Places in `entries`.
    index: HashTable<u32>,
    capacity: usize,
    /// Where the next look for an entry to drop starts.
    cursor: usize,
    /// Microseconds: an unknown bucket may have been charged up to this time.
    floor_us: u64,
    /// The latest time that anybody came with.
    latest_us: u64,
}

struct Entry {
    key: Box<[u8]>,
    hash: u64,
    /// When the bucket is full again, in ticks since the clock's zero.
    full_at: u64,
    /// What those ticks are worth.
    pace: Pace,
}

/// A bucket as found.
pub(super) struct Found {
    slot: Option<usize>,
    pub carried: Carried,
}

impl Shard {
    pub fn new(capacity: usize) -> Self {
        Self {
            entries: Vec::new(),
            index: HashTable::new(),
            capacity: capacity.max(1),
            cursor: 0,
            floor_us: 0,
            latest_us: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The time by which all is done here for whoever read `now_us` and then waited for the lock: others may have come with a
    /// later one. Stored as of an earlier time, what flowed in between would flow in twice.
    pub fn time(&self, now_us: u64) -> u64 {
        now_us.max(self.latest_us)
    }

    /// No bucket is looked at or stored as of an earlier time from now on.
    pub fn advance(&mut self, now_us: u64) -> u64 {
        self.latest_us = self.time(now_us);
        self.latest_us
    }

    /// The bucket of `key` at `now_us`, as `shape` sees it. One that is not known lacks at most all of its tokens.
    pub fn find(&self, hash: u64, key: &[u8], shape: Shape, now_us: u64) -> Found {
        let now_us = self.time(now_us);
        let slot = self.slot(hash, key);
        if let Some(entry) = slot.map(|slot| &self.entries[slot]) {
            return Found { slot, carried: entry.backlog(now_us).carried(shape) };
        }
        let pace = shape.pace();
        let until_floor = pace.ticks(self.floor_us.saturating_sub(now_us));
        let mut carried = Backlog { ticks: until_floor.min(shape.capacity()), pace }.carried(shape);
        // A denial keeps the bucket then, or the floor of a slower limit would go on denying for as long as that takes.
        carried.moved = until_floor > shape.capacity();
        Found { slot, carried }
    }

    /// Stores `backlog` for what [`Self::find`] found. Nothing else may have touched the shard in between.
    pub fn put(&mut self, found: &Found, hash: u64, key: &[u8], backlog: Backlog, now_us: u64) {
        let now_us = self.advance(now_us);
        let Backlog { ticks, pace } = backlog;
        let full_at = pace.ticks(now_us).saturating_add(ticks);
        if let Some(entry) = found.slot.and_then(|slot| self.entries.get_mut(slot)) {
            (entry.full_at, entry.pace) = (full_at, pace);
            return;
        }
        if self.entries.len() >= self.capacity {
            self.make_room(now_us);
        }
        self.insert(Entry { key: key.into(), hash, full_at, pace });
    }

    /// Makes the bucket of `key` full in `full_in_us` at the latest, by the rate it is counted at. Says whether it is known.
    pub fn lower(&mut self, hash: u64, key: &[u8], full_in_us: u64, now_us: u64) -> bool {
        let full_at_us = self.advance(now_us).saturating_add(full_in_us);
        let Some(entry) = self.slot(hash, key).and_then(|slot| self.entries.get_mut(slot)) else { return false };
        entry.full_at = entry.full_at.min(entry.pace.ticks(full_at_us));
        true
    }

    /// Drops what [`Self::find`] found: the bucket is full. Nothing else may have touched the shard in between.
    pub fn forget(&mut self, found: &Found) {
        if let Some(slot) = found.slot.filter(|slot| *slot < self.entries.len()) {
            self.remove(slot);
        }
    }

    /// Drops all buckets that are full, which is what an unknown bucket is anyway, and gives memory back.
    pub fn sweep(&mut self, now_us: u64) {
        let now_us = self.advance(now_us);
        let mut slot = 0;
        while slot < self.entries.len() {
            if self.entries[slot].full_at_us() <= now_us { self.remove(slot) } else { slot += 1 }
        }
        if self.entries.len() < self.entries.capacity() / 4 {
            let room = self.entries.len() * 2;
            self.entries.shrink_to(room);
            let entries = &self.entries;
            self.index.shrink_to(room, |slot| entries[*slot as usize].hash);
        }
    }

    fn slot(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let same = |slot: &u32| self.entries.get(*slot as usize).is_some_and(|entry| *entry.key == *key);
        self.index.find(hash, same).map(|slot| *slot as usize)
    }

    fn insert(&mut self, entry: Entry) {
        let hash = entry.hash;
        let Ok(slot) = u32::try_from(self.entries.len()) else { return };
        self.entries.push(entry);
        let entries = &self.entries;
        self.index.insert_unique(hash, slot, |slot| entries[*slot as usize].hash);
    }

    /// Drops the full buckets among a few, or else the one that is full soonest, and raises the floor to that time.
    fn make_room(&mut self, now_us: u64) {
        let mut soonest: Option<(u64, usize)> = None;
        for _ in 0..PROBES.min(self.entries.len()) {
            self.cursor = if self.cursor + 1 < self.entries.len() { self.cursor + 1 } else { 0 };
            let full_at = self.entries[self.cursor].full_at_us();
            if full_at <= now_us {
                self.remove(self.cursor);
                return;
            }
            if soonest.is_none_or(|(earliest, _)| full_at < earliest) {
                soonest = Some((full_at, self.cursor));
            }
        }
        if let Some((full_at, slot)) = soonest {
            self.floor_us = self.floor_us.max(full_at);
            self.remove(slot);
        }
    }

    fn remove(&mut self, slot: usize) {
        let is = |place: usize| move |slot: &u32| *slot as usize == place;
        if let Ok(found) = self.index.find_entry(self.entries[slot].hash, is(slot)) {
            found.remove();
        }
        self.entries.swap_remove(slot);
        if let (Some(moved), Ok(new)) = (self.entries.get(slot), u32::try_from(slot))
            && let Some(place) = self.index.find_mut(moved.hash, is(self.entries.len()))
        {
            *place = new;
        }
    }
}

impl Entry {
    fn backlog(&self, now_us: u64) -> Backlog {
        let left = self.full_at.saturating_sub(self.pace.ticks(now_us));
        Backlog { ticks: left.min(MAX_TICKS), pace: self.pace }
    }

    fn full_at_us(&self) -> u64 {
        self.pace.micros(self.full_at)
    }
}

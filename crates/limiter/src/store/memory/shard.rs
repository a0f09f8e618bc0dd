//! The buckets under one lock: a bounded table that forgets without admitting too much.
//!
//! Guarantees a bound on its entries, and that no bucket ever has more tokens than it should: when
//! a bucket that is not full must make room, the shard remembers for its limit the time by which it
//! would have been full (the *floor*), and every bucket of that limit that it does not know counts
//! as full only from then on. Of windows it remembers the most tokens that were forgotten as well,
//! and every window it does not know has as many out. That holds while the limit stands; a limit
//! changed after its bucket was evicted starts from the floor in time, not in tokens, and one whose
//! algorithm changed starts anew. Room is made by the limit that has the most entries, and costs no
//! other limit. Time never moves back, whatever callers say it is.

use hashbrown::HashTable;

use crate::algorithm::quota::Quota;
use crate::algorithm::state::{QuotaState, StoredState};
use crate::algorithm::window::MAX_STEP_BACK_US;
use crate::store::memory::compact_state::CompactState;
use crate::store::memory::limit_usage::{LimitNumber, LimitUsages};

/// Entries looked at for one to drop. Enough to find one among the soonest full, few enough to be
/// cheap under the lock.
const PROBES: usize = 16;

pub(crate) struct Shard {
    entries: Vec<StoredBucket>,
    /// Places in `entries`.
    index: HashTable<u32>,
    capacity: usize,
    /// The part of each limit, and the most that a key of it may lack that has no entry.
    limits: LimitUsages,
    /// The latest time that anybody came with.
    latest_us: u64,
    /// The wall clock, in microseconds since 1970-01-01T00:00Z, when that time was 0.
    epoch_us: u64,
}

struct StoredBucket {
    key: Box<[u8]>,
    hash: ShortHash,
    limit: LimitNumber,
    stored: CompactState,
}

/// Half of a key's hash. The other half finds the shard; this one is enough within it.
#[derive(Clone, Copy)]
struct ShortHash(u32);

/// A key as found.
pub(crate) struct FoundBucket {
    slot: Option<usize>,
    pub state: QuotaState,
}

impl Shard {
    pub fn new(capacity: usize) -> Self {
        Self {
            entries: Vec::new(),
            index: HashTable::new(),
            capacity: capacity.max(1),
            limits: LimitUsages::default(),
            latest_us: 0,
            epoch_us: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The time that counts for a caller who read `now_us` and then waited for the lock: others may
    /// have come with a later time. A bucket stored at an earlier time would get the tokens that
    /// flowed in between twice.
    pub fn time(&self, now_us: u64) -> u64 {
        now_us.max(self.latest_us)
    }

    /// No bucket is looked at or stored as of an earlier time from now on.
    pub fn advance(&mut self, now_us: u64) -> u64 {
        self.latest_us = self.time(now_us);
        self.latest_us
    }

    /// The state of `key` at `now_us`, as `quota` counts it. An unknown bucket lacks at most all of
    /// its tokens.
    pub fn find(&self, hash: u64, key: &[u8], quota: Quota, now_us: u64) -> FoundBucket {
        let at = quota.timestamp(self.time(now_us), self.epoch_us);
        let slot = self.slot(hash, key);
        let state = match slot.map(|slot| &self.entries[slot]) {
            Some(entry) => entry.stored.at(at.now_us).read_as(quota, at),
            None => self.limits.unknown(key, quota, at),
        };
        FoundBucket { slot, state }
    }

    /// Keeps what has become of what [`Self::find`] found. Nothing else may have touched the shard
    /// in between.
    pub fn put(
        &mut self,
        found: &FoundBucket,
        hash: u64,
        key: &[u8],
        kept: StoredState,
        now_us: u64,
    ) {
        let now_us = self.advance(now_us);
        let stored = CompactState::new(kept, now_us);
        if let Some(entry) = found.slot.and_then(|slot| self.entries.get_mut(slot)) {
            entry.stored = stored;
            return;
        }
        if self.entries.len() >= self.capacity {
            self.make_room(key, now_us);
        }
        let limit = self.limits.add_entry(key);
        self.insert(StoredBucket {
            key: key.into(),
            hash: ShortHash::new(hash),
            limit,
            stored,
        });
    }

    /// Makes the bucket of `key` full in `full_in_us` at the latest, by the rate that it is stored
    /// with. `false`: there is none.
    pub fn lower(&mut self, hash: u64, key: &[u8], full_in_us: u64, now_us: u64) -> bool {
        let now_us = self.advance(now_us);
        let full_at_us = now_us.saturating_add(full_in_us);
        let Some(entry) = self
            .slot(hash, key)
            .and_then(|slot| self.entries.get_mut(slot))
        else {
            return false;
        };
        entry.stored.lower(full_at_us, now_us);
        true
    }

    /// Sets when the clock of all times here read 0. If the wall clock stepped back, windows end as
    /// much later.
    pub fn set_epoch(&mut self, epoch_us: u64) {
        let postponed_us = self.epoch_us.saturating_sub(epoch_us).min(MAX_STEP_BACK_US);
        self.epoch_us = epoch_us;
        if postponed_us > 0 {
            self.entries
                .iter_mut()
                .for_each(|entry| entry.stored.postpone(postponed_us));
            self.limits.postpone_floors(postponed_us);
        }
    }

    /// Drops all full buckets, since an unknown bucket counts as full anyway, and frees memory. A
    /// window that ended a moment ago stays: the clock may step back into it.
    pub fn sweep(&mut self, now_us: u64) {
        let now_us = self.advance(now_us);
        let mut slot = 0;
        while slot < self.entries.len() {
            if self.entries[slot].stored.kept_until_us() <= now_us {
                self.remove(slot)
            } else {
                slot += 1
            }
        }
        self.limits.sweep(now_us);
        if self.entries.len() < self.entries.capacity() / 4 {
            let room = self.entries.len() * 2;
            self.entries.shrink_to(room);
            let entries = &self.entries;
            self.index
                .shrink_to(room, |slot| entries[*slot as usize].hash.spread());
        }
    }

    fn slot(&self, hash: u64, key: &[u8]) -> Option<usize> {
        self.index
            .find(ShortHash::new(hash).spread(), |slot: &u32| {
                self.entries
                    .get(*slot as usize)
                    .is_some_and(|entry| *entry.key == *key)
            })
            .map(|slot| *slot as usize)
    }

    fn insert(&mut self, entry: StoredBucket) {
        let hash = entry.hash.spread();
        let Ok(slot) = u32::try_from(self.entries.len()) else {
            return;
        };
        self.entries.push(entry);
        let entries = &self.entries;
        self.index
            .insert_unique(hash, slot, |slot| entries[*slot as usize].hash.spread());
    }

    /// Drops a full bucket among a few. Is there none, the limit with the most entries makes room
    /// for `key`: of a few of its buckets the one that is full soonest and lacks least is dropped,
    /// and the floor of that limit is raised.
    fn make_room(&mut self, key: &[u8], now_us: u64) {
        let Some(largest) = self.limits.largest(key) else {
            return;
        };
        let mut cursor = *self.limits.cursor(largest);
        let mut soonest: Option<((u64, u64), usize)> = None;
        for probe in 0..self.entries.len() {
            // Further on only until the first of that limit: it has an even part of the entries at
            // least, and a cursor of its own that goes round, so this is short on average.
            if probe >= PROBES && soonest.is_some() {
                break;
            }
            cursor = if cursor + 1 < self.entries.len() {
                cursor + 1
            } else {
                0
            };
            let entry = &self.entries[cursor];
            let loss = entry.stored.loss();
            if loss.0 <= now_us {
                soonest = Some((loss, cursor));
                break;
            }
            if entry.limit == largest && soonest.is_none_or(|(least, _)| loss < least) {
                soonest = Some((loss, cursor));
            }
        }
        *self.limits.cursor(largest) = cursor;
        let Some(((full_at_us, _), slot)) = soonest else {
            return;
        };
        if full_at_us > now_us {
            self.limits
                .raise_floor(largest, &self.entries[slot].stored, now_us);
        }
        self.remove(slot);
    }

    fn remove(&mut self, slot: usize) {
        let hash = self.entries[slot].hash.spread();
        if let Ok(found) = self.index.find_entry(hash, |place| *place as usize == slot) {
            found.remove();
        }
        let removed = self.entries.swap_remove(slot);
        self.limits.remove_entry(removed.limit);
        if let (Some(moved), Ok(new)) = (self.entries.get(slot), u32::try_from(slot))
            && let Some(place) = self.index.find_mut(moved.hash.spread(), |place| {
                *place as usize == self.entries.len()
            })
        {
            *place = new;
        }
    }
}

impl ShortHash {
    fn new(hash: u64) -> Self {
        Self(hash as u32)
    }

    /// The hash that the index goes by, which looks at both ends of it.
    fn spread(self) -> u64 {
        u64::from(self.0) << 32 | u64::from(self.0)
    }
}

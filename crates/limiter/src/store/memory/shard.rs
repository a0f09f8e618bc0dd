//! The buckets under one lock: a bounded table that forgets without admitting too much.
//!
//! Guarantees a bound on its entries, and that no bucket ever has more tokens than it should: when a bucket that is not
//! full must make room, the shard remembers the time by which it would have been full (its *floor*), and every bucket
//! it does not know counts as full only from then on. Of windows it remembers the most tokens that were forgotten as
//! well, and every window it does not know has as many out. That holds while the limit stands; a limit changed after
//! its bucket was evicted starts from the floor in time, not in tokens, and one whose algorithm changed starts anew.
//! Time never moves back, whatever callers say it is.

use hashbrown::HashTable;

use crate::algorithm::conversion::Backlog;
use crate::algorithm::quota::Quota;
use crate::algorithm::state::{Kept, State};
use crate::algorithm::token_bucket::{MAX_TICKS, Pace};
use crate::algorithm::window::{Timestamp, WindowEntries};

/// Entries looked at for one to drop. Enough to find one among the soonest full, few enough to be cheap under the lock.
const PROBES: usize = 16;

pub(crate) struct Shard {
    entries: Vec<StoredBucket>,
    /// Places in `entries`.
    index: HashTable<u32>,
    capacity: usize,
    /// The position where the next search for an entry to drop starts.
    cursor: usize,
    /// Microseconds: an unknown bucket may have been charged up to this time.
    floor_us: u64,
    /// The tokens that an unknown window may have out, and until when.
    window_floor: Floor,
    /// The latest time that any caller had.
    latest_us: u64,
}

struct StoredBucket {
    key: Box<[u8]>,
    hash: u64,
    stored: StoredState,
}

/// A state that does not depend on the time at which it is read.
enum StoredState {
    Bucket {
        /// When the bucket is full again, in ticks since the clock's zero.
        full_at: u64,
        /// The worth of a tick.
        pace: Pace,
    },
    /// Boxed: most keys have buckets.
    Window(Box<WindowEntries>),
}

#[derive(Clone, Copy, Default)]
struct Floor {
    tokens: u64,
    until_us: u64,
}

/// The bucket of a key, as found.
pub(crate) struct FoundBucket {
    slot: Option<usize>,
    pub state: State,
}

impl Shard {
    pub fn new(capacity: usize) -> Self {
        Self {
            entries: Vec::new(),
            index: HashTable::new(),
            capacity: capacity.max(1),
            cursor: 0,
            floor_us: 0,
            window_floor: Floor::default(),
            latest_us: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The time that counts for a caller who read `now_us` and then waited for the lock: others may have come with a
    /// later time. A bucket stored at an earlier time would get the tokens that flowed in between twice.
    pub fn time(&self, now_us: u64) -> u64 {
        now_us.max(self.latest_us)
    }

    /// No bucket is looked at or stored as of an earlier time from now on.
    pub fn advance(&mut self, now_us: u64) -> u64 {
        self.latest_us = self.time(now_us);
        self.latest_us
    }

    /// The state of `key` at `now_us`, as `quota` counts it. An unknown bucket lacks at most all of its tokens.
    pub fn find(&self, hash: u64, key: &[u8], quota: Quota, now_us: u64, epoch_us: u64) -> FoundBucket {
        let at = quota.moment(self.time(now_us), epoch_us);
        let slot = self.slot(hash, key);
        let state = match slot.map(|slot| &self.entries[slot]) {
            Some(entry) => entry.stored.kept(at.now_us).seen(quota, at),
            None => self.unknown(quota, at),
        };
        FoundBucket { slot, state }
    }

    fn unknown(&self, quota: Quota, at: Timestamp) -> State {
        match quota {
            Quota::Bucket(shape) => {
                let pace = shape.pace();
                let until_floor = pace.ticks(self.floor_us.saturating_sub(at.now_us));
                let ticks = until_floor.min(shape.capacity());
                let state = Kept::Bucket(Backlog { ticks, pace }).seen(quota, at);
                // A denial then stores the bucket. Otherwise the floor of a slower limit would go on denying for so
                // long.
                if until_floor > shape.capacity() { state.changed() } else { state }
            }
            Quota::Window(window) if self.window_floor.until_us > at.now_us => {
                let Floor { tokens, until_us } = self.window_floor;
                Kept::Window(WindowEntries::of(tokens.min(window.quota()), until_us)).seen(quota, at)
            }
            Quota::Window(_) => Kept::full(quota).seen(quota, at),
        }
    }

    /// Stores the new state of a bucket that [`Self::find`] found. Nothing else may have touched the shard in between.
    pub fn put(&mut self, found: &FoundBucket, hash: u64, key: &[u8], kept: Kept, now_us: u64) {
        let now_us = self.advance(now_us);
        let stored = StoredState::new(kept, now_us);
        if let Some(entry) = found.slot.and_then(|slot| self.entries.get_mut(slot)) {
            entry.stored = stored;
            return;
        }
        if self.entries.len() >= self.capacity {
            self.make_room(now_us);
        }
        self.insert(StoredBucket { key: key.into(), hash, stored });
    }

    /// Makes the bucket of `key` full in `full_in_us` at the latest, by the rate that it is stored with. `false`: there
    /// is none.
    pub fn lower(&mut self, hash: u64, key: &[u8], full_in_us: u64, now_us: u64) -> bool {
        let now_us = self.advance(now_us);
        let full_at_us = now_us.saturating_add(full_in_us);
        let Some(entry) = self.slot(hash, key).and_then(|slot| self.entries.get_mut(slot)) else { return false };
        match &mut entry.stored {
            StoredState::Bucket { full_at, pace } => *full_at = (*full_at).min(pace.ticks(full_at_us)),
            StoredState::Window(ledger) => ledger.end_by(now_us, full_at_us),
        }
        true
    }

    /// Drops all full buckets, since an unknown bucket counts as full anyway, and frees memory.
    pub fn sweep(&mut self, now_us: u64) {
        let now_us = self.advance(now_us);
        let mut slot = 0;
        while slot < self.entries.len() {
            if self.entries[slot].stored.loss().0 <= now_us { self.remove(slot) } else { slot += 1 }
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

    fn insert(&mut self, entry: StoredBucket) {
        let hash = entry.hash;
        let Ok(slot) = u32::try_from(self.entries.len()) else { return };
        self.entries.push(entry);
        let entries = &self.entries;
        self.index.insert_unique(hash, slot, |slot| entries[*slot as usize].hash);
    }

    /// Drops a full bucket among a few, or else the one that is full soonest and lacks least, and raises the floor to
    /// that.
    fn make_room(&mut self, now_us: u64) {
        let mut soonest: Option<((u64, u64), usize)> = None;
        for _ in 0..PROBES.min(self.entries.len()) {
            self.cursor = if self.cursor + 1 < self.entries.len() { self.cursor + 1 } else { 0 };
            let loss = self.entries[self.cursor].stored.loss();
            if loss.0 <= now_us {
                self.remove(self.cursor);
                return;
            }
            if soonest.is_none_or(|(least, _)| loss < least) {
                soonest = Some((loss, self.cursor));
            }
        }
        let Some(((full_at_us, tokens), slot)) = soonest else { return };
        match self.entries[slot].stored {
            StoredState::Bucket { .. } => self.floor_us = self.floor_us.max(full_at_us),
            StoredState::Window(_) => self.window_floor.raise(tokens, full_at_us, now_us),
        }
        self.remove(slot);
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

impl Floor {
    fn raise(&mut self, tokens: u64, until_us: u64, now_us: u64) {
        let still = if self.until_us > now_us { self.tokens } else { 0 };
        *self = Self { tokens: still.max(tokens), until_us: self.until_us.max(until_us) };
    }
}

impl StoredState {
    fn new(kept: Kept, now_us: u64) -> Self {
        match kept {
            Kept::Bucket(Backlog { ticks, pace }) => {
                Self::Bucket { full_at: pace.ticks(now_us).saturating_add(ticks), pace }
            }
            Kept::Window(ledger) => Self::Window(Box::new(ledger)),
        }
    }

    fn kept(&self, now_us: u64) -> Kept {
        match self {
            Self::Bucket { full_at, pace } => {
                let left = full_at.saturating_sub(pace.ticks(now_us));
                Kept::Bucket(Backlog { ticks: left.min(MAX_TICKS), pace: *pace })
            }
            Self::Window(ledger) => Kept::Window(WindowEntries::clone(ledger)),
        }
    }

    /// The loss when this is forgotten: until when, and (of a window) how many tokens.
    fn loss(&self) -> (u64, u64) {
        match self {
            Self::Bucket { full_at, pace } => (pace.micros(*full_at), 0),
            Self::Window(ledger) => (ledger.last_us(), ledger.used()),
        }
    }
}

//! The part that each limit has of a shard's table: how many entries are its own, and the floor under those of its keys
//! that made room.
//!
//! Guarantees that keys of one limit lack nothing because keys of another were dropped, up to a bounded number of
//! limits; further ones share a floor. Costs nothing as long as the table has room.

use crate::algorithm::quota::Quota;
use crate::algorithm::state::{QuotaState, StoredState};
use crate::algorithm::window::Timestamp;
use crate::store::memory::compact_state::{CompactState, EvictionFloor};

/// Limits with a part of their own, over the life of the process. All beyond share the last.
const MAX_LIMITS: usize = 256;

/// The parts of all limits.
#[derive(Default)]
pub(crate) struct LimitUsages {
    /// Only grows, so that a number stays with its limit.
    usages: Vec<LimitUsage>,
    /// No floor reaches further: until the first entry is dropped, this look spares the search for the limit.
    floors_end_us: u64,
}

/// The number of a limit among [`LimitUsages`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct LimitNumber(u16);

struct LimitUsage {
    /// The beginning of its keys: its name and a colon, which names do not have.
    prefix: Box<[u8]>,
    entries: usize,
    /// The position where the next search for one of its entries to drop starts.
    cursor: usize,
    floor: EvictionFloor,
}

impl LimitUsages {
    /// Counts an entry more, of `key`.
    pub fn add_entry(&mut self, key: &[u8]) -> LimitNumber {
        let number = self.number(key);
        self.usages[usize::from(number.0)].entries += 1;
        number
    }

    pub fn remove_entry(&mut self, number: LimitNumber) {
        self.usages[usize::from(number.0)].entries -= 1;
    }

    /// The limit that makes room for `key`: the one with the most entries, `key` included. A limit that takes no more
    /// than its even part of the table makes no room for others.
    pub fn largest(&mut self, key: &[u8]) -> Option<LimitNumber> {
        let own = self.number(key);
        let numbered = (0..).map(LimitNumber).zip(&self.usages).filter(|(_, usage)| usage.entries > 0);
        let with_key =
            numbered.max_by_key(|(number, usage)| (usage.entries + usize::from(*number == own), *number == own));
        with_key.map(|(number, _)| number)
    }

    /// Where the search for an entry of this limit goes on.
    pub fn cursor(&mut self, number: LimitNumber) -> &mut usize {
        &mut self.usages[usize::from(number.0)].cursor
    }

    /// Covers an entry of this limit that is dropped before it is full.
    pub fn raise_floor(&mut self, number: LimitNumber, dropped: &CompactState, now_us: u64) {
        self.usages[usize::from(number.0)].floor.raise(dropped, now_us);
        self.floors_end_us = self.floors_end_us.max(dropped.loss().0);
    }

    /// Moves the end of windows that were dropped: the wall clock stepped back.
    pub fn postpone_floors(&mut self, by_us: u64) {
        self.usages.iter_mut().for_each(|usage| usage.floor.postpone(by_us));
        self.floors_end_us = self.floors_end_us.saturating_add(by_us);
    }

    /// The state of a key without an entry.
    pub fn unknown(&self, key: &[u8], quota: Quota, at: Timestamp) -> QuotaState {
        match self.find(key).filter(|_| self.floors_end_us > at.now_us) {
            Some(usage) => usage.floor.state(quota, at),
            None => StoredState::full(quota).read_as(quota, at),
        }
    }

    fn find(&self, key: &[u8]) -> Option<&LimitUsage> {
        let prefix = prefix(key);
        let own = self.usages.iter().find(|usage| *usage.prefix == *prefix);
        own.or_else(|| self.usages.get(MAX_LIMITS - 1))
    }

    fn number(&mut self, key: &[u8]) -> LimitNumber {
        let prefix = prefix(key);
        let known = self.usages.iter().position(|usage| *usage.prefix == *prefix);
        let place = known.unwrap_or_else(|| self.usages.len().min(MAX_LIMITS - 1));
        if place == self.usages.len() {
            let floor = EvictionFloor::default();
            self.usages.push(LimitUsage { prefix: prefix.into(), entries: 0, cursor: 0, floor });
        }
        LimitNumber(u16::try_from(place).unwrap_or(u16::MAX))
    }
}

/// The beginning of a key that its limit's keys share.
fn prefix(key: &[u8]) -> &[u8] {
    let colon = key.iter().position(|byte| *byte == b':');
    colon.map_or(&[], |colon| &key[..=colon])
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::algorithm::token_bucket::TokenBucket;

    fn bucket() -> Quota {
        let nonzero = |number| NonZeroU64::new(number).unwrap();
        TokenBucket::new(nonzero(1), nonzero(1_000_000), nonzero(5)).unwrap().into()
    }

    fn missing(usages: &LimitUsages, key: &str) -> u64 {
        5 - usages.unknown(key.as_bytes(), bucket(), bucket().timestamp(0, 0)).level(bucket(), 1).remaining
    }

    fn drop_empty(usages: &mut LimitUsages, key: &str) {
        let empty = StoredState::lacking(bucket(), 5, bucket().timestamp(0, 0));
        let number = usages.add_entry(key.as_bytes());
        usages.raise_floor(number, &CompactState::new(empty, 0), 0);
        usages.remove_entry(number);
    }

    #[test]
    fn a_floor_is_under_the_keys_of_its_limit_alone() {
        let mut usages = LimitUsages::default();
        drop_empty(&mut usages, "a:1");
        assert_eq!(["a:2", "b:2", "ab:2", "a"].map(|key| missing(&usages, key)), [5, 0, 0, 0]);
    }

    #[test]
    fn limits_beyond_the_bound_share_a_floor_and_take_no_more_memory() {
        let mut usages = LimitUsages::default();
        for number in 0..10 * MAX_LIMITS {
            let number = usages.add_entry(format!("l{number}:k").as_bytes());
            usages.remove_entry(number);
        }
        assert_eq!(usages.usages.len(), MAX_LIMITS);
        drop_empty(&mut usages, "l300:k");
        assert_eq!(["l301:k", "l254:k", "never seen:k"].map(|key| missing(&usages, key)), [5, 0, 5]);
    }

    #[test]
    fn the_limit_with_the_most_entries_makes_room_and_on_a_tie_the_newcomers_own() {
        let mut usages = LimitUsages::default();
        let a = usages.add_entry(b"a:1");
        let b = usages.add_entry(b"b:1");
        assert!(usages.largest(b"a:2") == Some(a) && usages.largest(b"b:2") == Some(b));
        usages.add_entry(b"b:2");
        assert!(usages.largest(b"a:2") == Some(a) && usages.largest(b"c:1") == Some(b));
        usages.add_entry(b"b:3");
        assert!(usages.largest(b"a:2") == Some(b));
    }
}

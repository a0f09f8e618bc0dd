//! The part that each limit has of a shard's table: how many entries are its own, and the floor
//! under those of its keys that made room.
//!
//! Guarantees that keys of one limit lack nothing because keys of another were dropped, up to a
//! bounded number of limits at a time; further ones share a floor. Costs nothing as long as the
//! table has room.

use std::collections::HashMap;

use crate::algorithm::quota::Quota;
use crate::algorithm::state::{QuotaState, StoredState};
use crate::algorithm::window::{MAX_STEP_BACK_US, Timestamp};
use crate::store::memory::compact_state::{CompactState, EvictionFloor};

/// Limits with a part of their own at a time. All beyond share the last: far more than one
/// application of policies may have.
const MAX_LIMITS: usize = 16_384;

/// The parts of all limits.
#[derive(Default)]
pub(crate) struct LimitUsages {
    /// A number stays with its limit for as long as that has entries or a floor.
    usages: Vec<LimitUsage>,
    /// By the beginning of a limit's keys: its name and a colon, which names do not have.
    numbers: HashMap<Box<[u8]>, LimitNumber>,
    /// Numbers that may be given to another limit.
    free: Vec<LimitNumber>,
    /// Whether limits share the last, since all were taken.
    is_shared: bool,
    /// No floor reaches further: until the first entry is dropped, this look spares the search for
    /// the limit.
    floors_end_us: u64,
}

/// The number of a limit among [`LimitUsages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitNumber(u16);

/// The one that limits share.
const LAST: LimitNumber = LimitNumber((MAX_LIMITS - 1) as u16);

#[derive(Default)]
struct LimitUsage {
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

    /// The limit that makes room for `key`: the one with the most entries, `key` included. A limit
    /// that takes no more than its even part of the table makes no room for others.
    pub fn largest(&mut self, key: &[u8]) -> Option<LimitNumber> {
        let own = self.number(key);
        let numbered = (0..)
            .map(LimitNumber)
            .zip(&self.usages)
            .filter(|(_, usage)| usage.entries > 0);
        let with_key = numbered.max_by_key(|(number, usage)| {
            (usage.entries + usize::from(*number == own), *number == own)
        });
        with_key.map(|(number, _)| number)
    }

    /// Where the search for an entry of this limit goes on.
    pub fn cursor(&mut self, number: LimitNumber) -> &mut usize {
        &mut self.usages[usize::from(number.0)].cursor
    }

    /// Covers an entry of this limit that is dropped before it is full.
    pub fn raise_floor(&mut self, number: LimitNumber, dropped: &CompactState, now_us: u64) {
        self.usages[usize::from(number.0)]
            .floor
            .raise(dropped, now_us);
        self.floors_end_us = self.floors_end_us.max(dropped.loss().0);
    }

    /// Moves the end of windows that were dropped: the wall clock stepped back.
    pub fn postpone_floors(&mut self, by_us: u64) {
        self.usages
            .iter_mut()
            .for_each(|usage| usage.floor.postpone(by_us));
        self.floors_end_us = self.floors_end_us.saturating_add(by_us);
    }

    /// The state of a key without an entry.
    pub fn unknown(&self, key: &[u8], quota: Quota, at: Timestamp) -> QuotaState {
        match self.find(key).filter(|_| self.floors_end_us > at.now_us) {
            Some(usage) => usage.floor.state(quota, at),
            None => StoredState::full(quota).read_as(quota, at),
        }
    }

    /// Takes numbers back from limits whose keys lack nothing, as far as is known here: they may be
    /// gone.
    pub fn sweep(&mut self, now_us: u64) {
        let Self {
            usages,
            numbers,
            free,
            is_shared,
            ..
        } = self;
        numbers.retain(|_, number| {
            let usage = &mut usages[usize::from(number.0)];
            let is_over = usage.is_over(now_us);
            if is_over {
                *usage = LimitUsage::default();
                free.push(*number);
            }
            !is_over
        });
        *is_shared &= !free.contains(&LAST);
    }

    fn find(&self, key: &[u8]) -> Option<&LimitUsage> {
        let own = self
            .numbers
            .get(prefix(key))
            .or_else(|| self.is_shared.then_some(&LAST));
        own.and_then(|number| self.usages.get(usize::from(number.0)))
    }

    fn number(&mut self, key: &[u8]) -> LimitNumber {
        let prefix = prefix(key);
        if let Some(known) = self.numbers.get(prefix) {
            return *known;
        }
        // The floor of the last may cover any limit that has none of its own.
        if self.is_shared {
            return LAST;
        }
        let next = u16::try_from(self.usages.len())
            .map(LimitNumber)
            .unwrap_or(LAST);
        let number = match self.free.pop() {
            Some(free) => free,
            None if self.usages.len() < MAX_LIMITS => {
                self.usages.push(LimitUsage::default());
                next
            }
            None => {
                self.is_shared = true;
                return LAST;
            }
        };
        self.numbers.insert(prefix.into(), number);
        number
    }
}

impl LimitUsage {
    /// Whether keys of this limit lack nothing.
    fn is_over(&self, now_us: u64) -> bool {
        let floor_end_us = self.floor.end_us().saturating_add(MAX_STEP_BACK_US);
        self.entries == 0 && floor_end_us <= now_us
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
        fn nonzero(number: u64) -> NonZeroU64 {
            NonZeroU64::new(number).unwrap()
        }
        TokenBucket::new(nonzero(1), nonzero(1_000_000), nonzero(5))
            .unwrap()
            .into()
    }

    fn missing(usages: &LimitUsages, key: &str) -> u64 {
        5 - usages
            .unknown(key.as_bytes(), bucket(), bucket().timestamp(0, 0))
            .level(1, 1)
            .remaining
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
        assert_eq!(
            ["a:2", "b:2", "ab:2", "a"].map(|key| missing(&usages, key)),
            [5, 0, 0, 0]
        );
    }

    #[test]
    fn limits_beyond_the_bound_share_a_floor_and_take_no_more_memory() {
        let mut usages = LimitUsages::default();
        for number in 0..10 * MAX_LIMITS {
            let number = usages.add_entry(format!("l{number}:k").as_bytes());
            usages.remove_entry(number);
        }
        assert_eq!(usages.usages.len(), MAX_LIMITS);
        drop_empty(&mut usages, &format!("l{MAX_LIMITS}:k"));
        let own = format!("l{}:k", MAX_LIMITS - 2);
        let beyond = format!("l{}:k", MAX_LIMITS + 1);
        assert_eq!(
            [&*beyond, &own, "never seen:k"].map(|key| missing(&usages, key)),
            [5, 0, 5]
        );
    }

    #[test]
    fn limits_whose_keys_lack_nothing_give_their_parts_back() {
        let mut usages = LimitUsages::default();
        let kept = usages.add_entry(b"kept:1");
        for number in 0..3 * MAX_LIMITS {
            let number = usages.add_entry(format!("gone{number}:k").as_bytes());
            usages.remove_entry(number);
            usages.sweep(MAX_STEP_BACK_US);
        }
        assert!(usages.usages.len() < 3 && usages.number(b"kept:2") == kept);
        drop_empty(&mut usages, "floor:1");
        usages.sweep(MAX_STEP_BACK_US);
        assert_eq!(missing(&usages, "floor:2"), 5, "it has a floor still");
    }

    #[test]
    fn limits_that_shared_a_floor_share_it_until_it_is_over() {
        let mut usages = LimitUsages::default();
        for number in 0..=MAX_LIMITS {
            let number = usages.add_entry(format!("l{number}:k").as_bytes());
            usages.remove_entry(number);
        }
        let beyond = format!("l{MAX_LIMITS}:k");
        drop_empty(&mut usages, &beyond);
        usages.sweep(MAX_STEP_BACK_US);
        let number = usages.add_entry(beyond.as_bytes());
        usages.remove_entry(number);
        assert_eq!((number, missing(&usages, &beyond)), (LAST, 5));
        usages.sweep(2 * MAX_STEP_BACK_US + 10_000_000);
        usages.add_entry(beyond.as_bytes());
        assert!(
            !usages.is_shared
                && usages
                    .numbers
                    .contains_key(beyond.split_inclusive(':').next().unwrap().as_bytes())
        );
        assert_eq!(missing(&usages, &beyond), 0);
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

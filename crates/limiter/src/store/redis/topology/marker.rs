//! Markers: what a server remembers of the batches of a node that it has made, and what the node
//! says it may forget.
//!
//! A marker is in the hash slot of the keys that it tells of, so that one script call reaches both.

use std::collections::HashMap;
use std::sync::LazyLock;

use fred::util::redis_keyslot;
use parking_lot::Mutex;

/// `!` starts no limit's name, so no bucket has such a key.
const MARKERS: &str = "!charged:";
const FULL_NOTES: &str = "!full:";

/// Batches that a call asks the marker to forget, at most. Another call asks for the rest.
const FORGOTTEN_BY_A_CALL: usize = 64;

/// Hash slots of a cluster, by its specification.
const HASH_SLOTS: usize = 16_384;

/// For each hash slot a number that, written in braces, places a key there. Some milliseconds of
/// work, once.
pub(crate) static HASH_TAGS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut tags = vec![None; HASH_SLOTS];
    let mut missing = HASH_SLOTS;
    for number in 0_u32.. {
        let slot = tags.get_mut(usize::from(redis_keyslot(number.to_string().as_bytes())));
        if let Some(tag @ None) = slot {
            *tag = Some(number);
            missing -= 1;
        }
        if missing == 0 {
            break;
        }
    }
    tags.into_iter().flatten().collect()
});

/// Batches that were answered, by hash slot, until the marker there has forgotten them.
#[derive(Default)]
pub(crate) struct AnsweredBatches(Mutex<HashMap<MarkerPlace, Vec<u64>>>);

/// A node's marker in a hash slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct MarkerPlace {
    pub node: u64,
    pub hash_slot: u16,
}

impl MarkerPlace {
    /// The name of its key.
    pub fn name(self, in_cluster: bool) -> String {
        let Self { node, hash_slot } = self;
        format!("{}{node:016x}", placed(MARKERS, hash_slot, in_cluster))
    }
}

/// The beginning of the notes of when debts found a bucket full. The bucket's key follows.
pub(crate) fn full_note_prefix(hash_slot: u16, in_cluster: bool) -> String {
    placed(FULL_NOTES, hash_slot, in_cluster)
}

/// The beginning of keys in this hash slot.
fn placed(begin: &str, hash_slot: u16, in_cluster: bool) -> String {
    let tag = if in_cluster {
        HASH_TAGS.get(usize::from(hash_slot))
    } else {
        None
    };
    tag.map_or_else(|| begin.to_owned(), |tag| format!("{begin}{{{tag}}}:"))
}

impl AnsweredBatches {
    /// Numbers that the marker may forget, with a call of the batch `number`.
    pub fn at(&self, marker: MarkerPlace, number: u64) -> Vec<u64> {
        let answered = self.0.lock();
        let others = answered
            .get(&marker)
            .into_iter()
            .flatten()
            .copied()
            .filter(|other| *other != number);
        others.take(FORGOTTEN_BY_A_CALL).collect()
    }

    /// The marker has forgotten these.
    pub fn forgot(&self, marker: MarkerPlace, numbers: &[u64]) {
        if let Some(all) = self.0.lock().get_mut(&marker) {
            all.retain(|number| !numbers.contains(number));
        }
    }

    pub fn answer(&self, marker: MarkerPlace, number: u64) {
        let mut answered = self.0.lock();
        let numbers = answered.entry(marker).or_default();
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hash_slot_has_a_tag_that_places_a_marker_there() {
        assert_eq!(HASH_TAGS.len(), HASH_SLOTS);
        for slot in 0..HASH_SLOTS {
            let key = format!(
                "tollgate:{}",
                MarkerPlace {
                    node: 255,
                    hash_slot: u16::try_from(slot).unwrap()
                }
                .name(true)
            );
            assert_eq!(usize::from(redis_keyslot(key.as_bytes())), slot);
        }
    }

    #[test]
    fn a_number_is_kept_until_the_marker_has_forgotten_it() {
        let answered = AnsweredBatches::default();
        let marker = MarkerPlace {
            node: 1,
            hash_slot: 7,
        };
        (1..=70).for_each(|number| answered.answer(marker, number));
        let forget = answered.at(marker, 71);
        assert_eq!(
            (forget.len(), answered.at(marker, 71)),
            (FORGOTTEN_BY_A_CALL, forget.clone())
        );
        answered.forgot(marker, &forget);
        assert_eq!(
            answered.at(marker, 67),
            [65, 66, 68, 69, 70],
            "a batch does not forget itself"
        );
        assert_eq!(
            answered.at(
                MarkerPlace {
                    hash_slot: 8,
                    ..marker
                },
                71
            ),
            [0_u64; 0]
        );
    }
}

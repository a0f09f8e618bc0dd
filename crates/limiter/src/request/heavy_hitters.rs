//! The keys that are counted most, in bounded room: the algorithm Space-Saving (Metwally, Agrawal
//! and El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams", 2005).
//!
//! Guarantees that a count is never too low, and too high by its `error` at most, and that each key
//! with more than one in [`CAPACITY`] of all that was counted is there. Counting a key that is
//! there allocates nothing.

use crate::limit::key::Key;

/// Keys of one sketch. By thirty-two, a key that makes up three in a hundred is never missed.
pub const CAPACITY: usize = 32;

/// A sketch of the keys that were counted most.
#[derive(Debug, Default)]
pub struct HeavyHitters {
    /// The highest count first.
    hitters: Vec<HeavyHitter>,
    /// By place: equal for equal keys, and seldom for others. All of them lie in four lines of a
    /// cache.
    tags: Vec<u64>,
    total: u64,
}

/// A key and how often it was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeavyHitter {
    pub key: Key,
    /// At least as often as it was.
    pub count: u64,
    /// The part of `count` that may be of keys which are gone.
    pub error: u64,
}

impl HeavyHitters {
    /// Counts `key` once.
    pub fn count(&mut self, key: &Key) {
        self.total += 1;
        let tag = tag(key.as_bytes());
        let at = match self.find(tag, key) {
            Some(at) => at,
            None if self.hitters.len() < CAPACITY => {
                self.hitters.push(HeavyHitter {
                    key: key.clone(),
                    count: 0,
                    error: 0,
                });
                self.tags.push(tag);
                self.hitters.len() - 1
            }
            None => self.displace(tag, key),
        };
        self.hitters[at].count += 1;
        // The new place is that of the first with a lower count, which has the same count as all in
        // between.
        let count = self.hitters[at].count;
        let place = self.hitters[..at].partition_point(|before| before.count >= count);
        if place < at {
            self.hitters.swap(place, at);
            self.tags.swap(place, at);
        }
    }

    /// The keys, the highest count first.
    pub fn hitters(&self) -> &[HeavyHitter] {
        &self.hitters
    }

    /// How often any key was counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    fn find(&self, tag: u64, key: &Key) -> Option<usize> {
        let mut from = 0;
        loop {
            let at = from + self.tags[from..].iter().position(|known| *known == tag)?;
            if self.hitters[at].key == *key {
                return Some(at);
            }
            from = at + 1;
        }
    }

    /// Puts `key` in place of that with the lowest count, which it inherits: it may have been
    /// counted as often before.
    fn displace(&mut self, tag: u64, key: &Key) -> usize {
        let last = self.hitters.len() - 1;
        let hitter = &mut self.hitters[last];
        hitter.error = hitter.count;
        hitter.key.clone_from(key);
        self.tags[last] = tag;
        last
    }
}

/// The end of a key, where most differ, and its length.
fn tag(bytes: &[u8]) -> u64 {
    let end = bytes.last_chunk().map_or(0, |end| u64::from_le_bytes(*end));
    end ^ (bytes.len() as u64).rotate_right(8)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn counted(keys: impl IntoIterator<Item = String>) -> (HeavyHitters, HashMap<String, u64>) {
        let mut sketch = HeavyHitters::default();
        let mut exact = HashMap::new();
        for key in keys {
            sketch.count(&Key::from(key.as_str()));
            *exact.entry(key).or_default() += 1;
        }
        (sketch, exact)
    }

    fn text(hitter: &HeavyHitter) -> String {
        String::from_utf8(hitter.key.as_bytes().to_vec()).unwrap()
    }

    /// Checks the promises of Space-Saving.
    fn check(sketch: &HeavyHitters, exact: &HashMap<String, u64>) {
        let total: u64 = exact.values().sum();
        assert_eq!(sketch.total(), total);
        assert!(sketch.hitters().len() <= CAPACITY && sketch.tags.len() == sketch.hitters().len());
        assert!(
            sketch
                .hitters()
                .is_sorted_by(|one, other| one.count >= other.count)
        );
        assert_eq!(
            sketch
                .hitters()
                .iter()
                .map(|hitter| hitter.count)
                .sum::<u64>(),
            total
        );
        for hitter in sketch.hitters() {
            let really = exact[&text(hitter)];
            assert!(
                hitter.count >= really && hitter.count - hitter.error <= really,
                "{hitter:?}, and it was {really}"
            );
        }
        let known: Vec<_> = sketch.hitters().iter().map(text).collect();
        for (key, count) in exact {
            let is_heavy = *count > total / CAPACITY as u64;
            assert!(
                !is_heavy || known.contains(key),
                "{key} was counted {count} times of {total}"
            );
        }
    }

    proptest! {
        /// Few keys are frequent, as of clients.
        #[test]
        fn its_counts_are_as_right_as_promised(numbers in prop::collection::vec((0_u32..12, any::<u32>()), 0..3_000)) {
            let (sketch, exact) = counted(numbers.into_iter().map(|(magnitude, number)| format!("per-client:203.0.{}", number % (1 << magnitude))));
            check(&sketch, &exact);
        }

        /// Short keys and such with the same end share a tag.
        #[test]
        fn keys_with_one_tag_are_told_apart(numbers in prop::collection::vec(0_u32..60, 0..1_000)) {
            let (sketch, exact) = counted(numbers.into_iter().map(|number| if number < 30 { format!("{number:03}") } else { format!("{number}:the-same-end") }));
            check(&sketch, &exact);
        }
    }

    #[test]
    fn a_few_keys_are_counted_exactly() {
        let keys =
            (0..100).flat_map(|round| (0..CAPACITY).filter(move |key| round % (key + 1) == 0));
        let (sketch, exact) = counted(keys.map(|key| key.to_string()));
        assert_eq!(sketch.hitters().len(), CAPACITY);
        for hitter in sketch.hitters() {
            assert_eq!((hitter.count, hitter.error), (exact[&text(hitter)], 0));
        }
    }

    #[test]
    fn a_flood_of_keys_does_not_hide_the_one_that_is_counted_most() {
        let flood = (0..100_000).map(|number| {
            if number % 20 == 0 {
                "heavy".into()
            } else {
                format!("k{number}")
            }
        });
        let (sketch, _) = counted(flood);
        let heaviest = &sketch.hitters()[0];
        assert_eq!(text(heaviest), "heavy");
        assert!(
            heaviest.count - heaviest.error <= 5_000 && heaviest.count >= 5_000,
            "{heaviest:?}"
        );
    }
}

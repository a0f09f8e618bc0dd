//! A bounded table by key, for all workers of a node: a few places for each set of keys, and a lock
//! per set.
//!
//! Guarantees its bound by construction, and that no operation looks at more than one set's places.
//! The caller says which value is worth most, and gets the value that was displaced.

use std::hash::{BuildHasher, RandomState};

use parking_lot::{Mutex, MutexGuard};

use crate::limit::key::Key;

/// Places of a set.
const WAYS: usize = 8;

type Set<V> = Vec<(Key, V)>;

pub(crate) struct BoundedTable<V> {
    /// A power of two of them.
    sets: Box<[Mutex<Set<V>>]>,
    /// Seeded: clients choose their keys.
    hasher: RandomState,
}

impl<V> BoundedTable<V> {
    /// Room for `places`, or a little more. Memory is taken as they fill.
    pub fn new(places: usize) -> Self {
        let sets = places.div_ceil(WAYS).next_power_of_two();
        Self {
            sets: (0..sets).map(|_| Mutex::new(Vec::new())).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Lets `look` see the value of `key`.
    pub fn with<R>(&self, key: &Key, look: impl FnOnce(Option<&mut V>) -> R) -> R {
        let mut set = self.set(key);
        look(
            set.iter_mut()
                .find(|(known, _)| known == key)
                .map(|(_, value)| value),
        )
    }

    /// Lets `change` work on the value of `key`, or on `new` in its place. The value that is
    /// `worth` least makes room, and is returned.
    pub fn upsert<R>(
        &self,
        key: &Key,
        new: impl FnOnce() -> V,
        worth: impl Fn(&V) -> u64,
        change: impl FnOnce(&mut V) -> R,
    ) -> (R, Option<V>) {
        let mut set = self.set(key);
        if let Some((_, value)) = set.iter_mut().find(|(known, _)| known == key) {
            return (change(value), None);
        }
        let mut value = new();
        let result = change(&mut value);
        if set.len() < WAYS {
            set.push((key.clone(), value));
            return (result, None);
        }
        let least = set.iter_mut().min_by_key(|(_, known)| worth(known));
        let displaced = least.map(|place| std::mem::replace(place, (key.clone(), value)).1);
        (result, displaced)
    }

    /// Replaces the value of `key`, or else the one that is `worth` least, unless that is worth
    /// more than `value`.
    pub fn offer(&self, key: Key, value: V, worth: impl Fn(&V) -> u64) {
        let mut set = self.set(&key);
        if let Some((_, known)) = set.iter_mut().find(|(known, _)| *known == key) {
            *known = value;
        } else if set.len() < WAYS {
            set.push((key, value));
        } else if let Some(least) = set.iter_mut().min_by_key(|(_, known)| worth(known))
            && worth(&least.1) <= worth(&value)
        {
            *least = (key, value);
        }
    }

    pub fn remove(&self, key: &Key) -> Option<V> {
        let mut set = self.set(key);
        let place = set.iter().position(|(known, _)| known == key)?;
        Some(set.swap_remove(place).1)
    }

    /// Takes out values whose key is `wanted`, a set at a time, until there are `enough`. It begins
    /// at the set `from`, visits each once, and returns the set to go on from.
    pub fn extract(
        &self,
        from: usize,
        enough: usize,
        wanted: impl Fn(&Key) -> bool,
    ) -> (Vec<(Key, V)>, usize) {
        let mut taken = Vec::new();
        for visited in 0..self.sets.len() {
            let next = (from + visited) % self.sets.len();
            if taken.len() >= enough {
                return (taken, next);
            }
            let mut set = self.sets[next].lock();
            taken.extend(set.extract_if(.., |(key, _)| wanted(key)));
        }
        (taken, from % self.sets.len())
    }

    pub fn is_empty(&self) -> bool {
        self.sets.iter().all(|set| set.lock().is_empty())
    }

    /// Values in the table.
    pub fn len(&self) -> usize {
        self.sets.iter().map(|set| set.lock().len()).sum()
    }

    /// Drops values that `keep` rejects, a set at a time.
    pub fn retain(&self, keep: impl Fn(&V) -> bool) {
        for set in &self.sets {
            set.lock().retain(|(_, value)| keep(value));
        }
    }

    fn set(&self, key: &Key) -> MutexGuard<'_, Set<V>> {
        let hash = self.hasher.hash_one(key.as_bytes());
        self.sets[hash as usize & (self.sets.len() - 1)].lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_no_more_than_its_places_and_drops_the_value_worth_least() {
        let table = BoundedTable::new(8);
        for n in 0..8_u64 {
            assert_eq!(
                table
                    .upsert(&Key::from(&*n.to_string()), || n, |n| *n, |_| ())
                    .1,
                None
            );
        }
        assert_eq!(
            table.upsert(&Key::from("8"), || 8, |n| *n, |_| ()).1,
            Some(0)
        );
        assert_eq!(table.with(&Key::from("0"), |found| found.copied()), None);
        assert_eq!(table.with(&Key::from("8"), |found| found.copied()), Some(8));
        assert_eq!(
            (table.remove(&Key::from("3")), table.remove(&Key::from("3"))),
            (Some(3), None)
        );
    }

    #[test]
    fn a_value_worth_less_than_all_others_is_not_kept() {
        let table = BoundedTable::new(8);
        fn offer(table: &BoundedTable<u64>, name: &str, value: u64) -> Option<u64> {
            table.offer(Key::from(name), value, |value| *value);
            table.with(&Key::from(name), |found| found.copied())
        }
        for n in 10..18 {
            assert_eq!(offer(&table, &n.to_string(), n), Some(n));
        }
        assert_eq!(offer(&table, "low", 9), None);
        assert_eq!(offer(&table, "same", 10), Some(10));
        assert_eq!(
            offer(&table, "11", 3),
            Some(3),
            "what is there is replaced, whatever it is worth"
        );
    }

    #[test]
    fn rejected_values_leave_the_table_and_draining_empties_it() {
        let table = BoundedTable::new(64);
        fn key(n: u64) -> Key {
            Key::from(&*n.to_string())
        }
        for n in 0..20_u64 {
            table.offer(key(n), n, |n| *n);
        }
        table.retain(|n| *n >= 15);
        assert_eq!(table.with(&key(14), |found| found.copied()), None);
        let (drained, _) = table.extract(0, 64, |_| true);
        let mut values: Vec<u64> = drained.into_iter().map(|(_, n)| n).collect();
        values.sort_unstable();
        assert_eq!(values, [15, 16, 17, 18, 19]);
        let (left, _) = table.extract(0, 64, |_| true);
        assert!(left.is_empty());
    }
}

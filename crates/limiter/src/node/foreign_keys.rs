//! Keys that hold a value which is not Tollgate's, so that no call need be spent on them for a
//! while.
//!
//! Guarantees a bound on their number, one load for a node that knows of none, and that the log
//! tells of them once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::limit::key::Key;
use crate::node::bounded_table::BoundedTable;

/// Keys remembered at most.
const CAPACITY: usize = 1_024;

/// How long a key is remembered. Then the store is asked again: the value may be gone.
const MEMORY_US: u64 = 1_000_000;

/// A node has one.
pub struct ForeignKeys {
    /// Until when each counts, in microseconds of the monotonic clock.
    table: BoundedTable<u64>,
    /// Keys in the table, or a few more.
    count: AtomicUsize,
    logged: AtomicBool,
}

impl Default for ForeignKeys {
    fn default() -> Self {
        Self {
            table: BoundedTable::new(CAPACITY),
            count: AtomicUsize::new(0),
            logged: AtomicBool::new(false),
        }
    }
}

impl ForeignKeys {
    /// Whether no key is known: then no clock need be read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Whether the store said so a moment ago.
    #[inline]
    pub fn contains(&self, key: &Key, now_us: u64) -> bool {
        !self.is_empty()
            && self.table.with(key, |until_us| {
                until_us.is_some_and(|until_us| *until_us > now_us)
            })
    }

    /// Remembers that the store said so at `now_us`.
    pub fn remember(&self, key: &Key, now_us: u64) {
        self.table
            .offer(key.clone(), now_us.saturating_add(MEMORY_US), |until_us| {
                *until_us
            });
        self.count.fetch_add(1, Ordering::AcqRel);
        if !self.logged.swap(true, Ordering::AcqRel) {
            tracing::warn!(
                "keys of limits hold values in Redis that are not Tollgate's: their limits are enforced by each node \
                 alone. Is another program using keys with this store's key_prefix? Give one of them another prefix, or \
                 delete those keys"
            );
        }
    }

    /// Forgets the keys whose time is over.
    pub fn sweep(&self, now_us: u64) {
        if self.count.load(Ordering::Acquire) > 0 {
            // Keys that come meanwhile are counted twice, never missed.
            self.count.store(0, Ordering::Release);
            self.table.retain(|until_us| *until_us > now_us);
            self.count.fetch_add(self.table.len(), Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_key_is_remembered_for_a_second() {
        let keys = ForeignKeys::default();
        let key = Key::from("k");
        assert!(!keys.contains(&key, 0));
        keys.remember(&key, 5);
        assert!(keys.contains(&key, MEMORY_US) && !keys.contains(&key, MEMORY_US + 5));
        assert!(!keys.contains(&Key::from("other"), 5));
        keys.sweep(5);
        assert!(keys.contains(&key, 6));
        keys.sweep(MEMORY_US + 5);
        assert_eq!(
            (keys.count.load(Ordering::Relaxed), keys.table.len()),
            (0, 0)
        );
    }

    #[test]
    fn any_number_of_foreign_keys_takes_bounded_room() {
        let keys = ForeignKeys::default();
        (0..10_000).for_each(|n| keys.remember(&Key::from(&*n.to_string()), 0));
        assert!(keys.table.len() <= CAPACITY);
        keys.sweep(0);
        assert_eq!(keys.count.load(Ordering::Relaxed), keys.table.len());
    }
}

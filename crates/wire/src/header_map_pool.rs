//! Header maps, kept by each thread for its next message: a new map takes two allocations, a
//! cleared map takes none.
//!
//! Guarantees that a map from the pool is empty, and that the pool has few maps, all of them small.

use std::cell::RefCell;

use http::HeaderMap;

/// Capacity of a new map: the fields of most messages and those that a gateway adds.
const FIELDS: usize = 24;
/// Maps that one thread keeps.
const MAX_KEPT: usize = 64;
/// Largest capacity of a map that is kept.
const LARGEST: usize = 4 * FIELDS;

thread_local! {
    static POOL: RefCell<Vec<HeaderMap>> = const { RefCell::new(Vec::new()) };
}

/// An empty map with room for the fields of most messages.
pub fn take() -> HeaderMap {
    POOL.with_borrow_mut(Vec::pop)
        .unwrap_or_else(|| HeaderMap::with_capacity(FIELDS))
}

/// Gives a map back to the pool. Its fields are dropped.
pub fn give_back(mut map: HeaderMap) {
    if map.capacity() == 0 || map.capacity() > LARGEST {
        return;
    }
    // Clearing comes before the pool is borrowed: dropping a value may run any code.
    map.clear();
    POOL.with_borrow_mut(|pool| {
        if pool.len() < MAX_KEPT {
            pool.push(map);
        }
    });
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::HOST;

    use super::*;

    #[test]
    fn a_map_comes_back_empty_and_with_its_capacity() {
        let mut map = take();
        map.append(HOST, HeaderValue::from_static("a"));
        map.append(HOST, HeaderValue::from_static("b"));
        let capacity = map.capacity();
        give_back(map);
        let again = take();
        assert_eq!((again.len(), again.capacity()), (0, capacity));
        assert!(!again.contains_key(HOST));
    }

    #[test]
    fn large_maps_and_surplus_maps_are_not_kept() {
        give_back(HeaderMap::with_capacity(10 * LARGEST));
        (0..2 * MAX_KEPT).for_each(|_| give_back(HeaderMap::with_capacity(FIELDS)));
        POOL.with_borrow(|pool| {
            assert_eq!(pool.len(), MAX_KEPT);
            assert!(pool.iter().all(|map| map.capacity() <= LARGEST));
        });
    }
}

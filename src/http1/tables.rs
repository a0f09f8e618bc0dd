//! Tables of header fields, kept by each thread for the next message: to make one takes two allocations, to clear one none.
//!
//! Guarantees that a table which is taken is empty, and that few are kept, none of them large.

use std::cell::RefCell;

use http::HeaderMap;

/// Fields that a new table has room for: those of most messages, with what a gateway adds.
const FIELDS: usize = 24;
/// What one thread keeps, and the room that one of them may have.
const KEPT: usize = 64;
const LARGEST: usize = 4 * FIELDS;

thread_local! {
    static TABLES: RefCell<Vec<HeaderMap>> = const { RefCell::new(Vec::new()) };
}

/// An empty table with room for the fields of most messages.
pub fn take() -> HeaderMap {
    TABLES.with_borrow_mut(Vec::pop).unwrap_or_else(|| HeaderMap::with_capacity(FIELDS))
}

/// Leaves a table to others. What it contains is forgotten.
pub fn give(mut table: HeaderMap) {
    if table.capacity() == 0 || table.capacity() > LARGEST {
        return;
    }
    // Before the others are looked at: dropping what is in it may be anything.
    table.clear();
    TABLES.with_borrow_mut(|tables| {
        if tables.len() < KEPT {
            tables.push(table);
        }
    });
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::HOST;

    use super::*;

    #[test]
    fn a_table_comes_back_empty_and_with_its_room() {
        let mut table = take();
        table.append(HOST, HeaderValue::from_static("a"));
        table.append(HOST, HeaderValue::from_static("b"));
        let room = table.capacity();
        give(table);
        let again = take();
        assert_eq!((again.len(), again.capacity()), (0, room));
        assert!(!again.contains_key(HOST));
    }

    #[test]
    fn large_ones_and_too_many_are_not_kept() {
        give(HeaderMap::with_capacity(10 * LARGEST));
        (0..2 * KEPT).for_each(|_| give(HeaderMap::with_capacity(FIELDS)));
        TABLES.with_borrow(|tables| {
            assert_eq!(tables.len(), KEPT);
            assert!(tables.iter().all(|table| table.capacity() <= LARGEST));
        });
    }
}

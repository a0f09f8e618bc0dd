//! Removes fields from a header or trailer section.
//!
//! Guarantees that the work grows with the number of fields, and not with its square: a peer
//! chooses how many there are.

use http::{HeaderMap, HeaderName};
use smallvec::SmallVec;

/// Removes the fields with the names for which `is_removed` holds.
pub fn remove(fields: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) {
    let mut removed = SmallVec::<[HeaderName; 8]>::new();
    for name in fields.keys() {
        if is_removed(name) {
            removed.push(name.clone());
        }
    }
    for name in removed {
        fields.remove(name);
    }
}

//! The key in Redis of a limit's permits for requests in flight.

use crate::limit::key::Key;

/// `!` starts no limit's name, so no bucket has such a key: a limit that counted tokens may count
/// requests in flight now.
const PREFIX: &str = "!in-flight:";

/// The key of the permits of a limit's key.
pub(super) fn new(key: &Key) -> Vec<u8> {
    [PREFIX.as_bytes(), key.as_bytes()].concat()
}

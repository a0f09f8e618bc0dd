//! The keys in Redis of permits for requests in flight, and of the fleet that claims them.

use fred::types::Key as RedisKey;

use crate::limit::key::Key;

/// The set of nodes. `!` starts no limit's name, so no bucket has this key.
pub(super) const NODES_KEY: &str = "!nodes";

/// `!` starts no limit's name, so no bucket has such a key: a limit that counted tokens may count
/// requests in flight now.
const PREFIX: &str = "!in-flight:";

/// The key of the permits of a limit's key.
pub(super) fn new(key: &Key) -> Vec<u8> {
    [PREFIX.as_bytes(), key.as_bytes()].concat()
}

/// The time since which there has always been a node to claim permits: in the hash slot of the set
/// of nodes.
pub(super) fn since(prefix: &str) -> RedisKey {
    RedisKey::from(format!("{prefix}{{{prefix}{NODES_KEY}}}:since"))
}

//! Where buckets live.

use std::sync::Arc;
use std::time::Duration;

/// How to reach the shared store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisSpec {
    /// `redis://` or `rediss://`, credentials included: never print it.
    pub url: Arc<str>,
    /// The longest a decision may wait for the store.
    pub timeout: Duration,
    /// Prefix of every key written.
    pub key_prefix: Arc<str>,
    /// Nodes to assume until the store has told how many there are.
    pub expected_nodes: u32,
}

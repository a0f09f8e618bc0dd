//! API keys in a hash of the store, as data.

use std::sync::Arc;
use std::time::Duration;

use tollgate_limiter::algorithm::token_bucket::TokenBucket;

/// API keys in a hash of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredKeySpec {
    /// The name of the hash, behind the prefix of the store's keys.
    pub hash: Arc<str>,
    /// How long a key that was read is not read again.
    pub remember: Duration,
    /// How long a key is taken after that while the store is away.
    pub grace: Duration,
    /// The unknown keys of a client address that are looked up.
    pub failed_attempts: TokenBucket,
}

//! Users and their passwords as data.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tollgate_limiter::algorithm::token_bucket::TokenBucket;

/// Users of `Authorization: Basic`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicSpec {
    /// The file that has their names and the hashes of their passwords.
    pub users: PathBuf,
    /// Without quotes and backslashes.
    pub realm: Arc<str>,
    /// How long a password that was right is not hashed again.
    pub remember: Duration,
    /// The attempts of a client address and at a user name that may fail.
    pub failed_attempts: TokenBucket,
}

//! The servers of a store, each of which can fail while the others decide.

use crate::algorithm::share::fnv1a;
use crate::store::StoreError;

/// A server of a store: the same number for the same server, for every worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(u64);

/// A call that a server did not answer as it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct StoreFailure {
    pub server: ServerId,
    pub error: StoreError,
}

impl ServerId {
    /// The server of a store that has one.
    pub const ONLY: Self = Self(0);

    /// The server of this name, one of several.
    pub fn from_name(name: &str) -> Self {
        Self(fnv1a(name.as_bytes()).max(1))
    }
}

/// A failure of the only server.
impl From<StoreError> for StoreFailure {
    fn from(error: StoreError) -> Self {
        Self {
            server: ServerId::ONLY,
            error,
        }
    }
}

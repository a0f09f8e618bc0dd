//! The verdict on a credential, for clients and for operators who count.

use std::sync::Arc;

use http::HeaderMap;
use tollgate_limiter::limit::key::CallerIdentity;

use tollgate_wire::error::{Failure, RelayedAnswer};

/// The client of a request, or why its credential is not accepted.
pub type AuthenticationResult = Result<VerifiedClient, AuthenticationRefusal>;

/// A client as an authenticator knows it.
#[derive(Clone)]
pub struct VerifiedClient {
    pub identity: Arc<CallerIdentity>,
    /// Fields that its requests get.
    pub fields: Option<Box<HeaderMap>>,
}

impl From<Arc<CallerIdentity>> for VerifiedClient {
    fn from(identity: Arc<CallerIdentity>) -> Self {
        Self {
            identity,
            fields: None,
        }
    }
}

/// Why a credential is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthenticationRefusal {
    /// The credential is wrong: 401.
    Invalid(&'static str),
    /// The credential is right, but not enough: 403.
    Forbidden(&'static str),
    /// Too many credentials have failed: no other is checked for these seconds. 429.
    TooManyAttempts(u64),
    /// The answer of the service that was asked.
    Answered(Arc<RelayedAnswer>),
    /// The request itself has a fault that keeps it from being asked about.
    Faulty(Failure),
    /// There is too much to check, or the answer is of no use: 503, and the client pays for the
    /// work.
    Undecided(&'static str),
    /// The credential cannot be checked now: 503.
    Unavailable(&'static str),
}

//! The verdict on a credential, for clients and for operators who count.

use std::sync::Arc;

use http::HeaderMap;
use tollgate_limiter::limit::key::CallerIdentity;

use crate::error::{Failure, RelayedAnswer};

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
    /// It is wrong: 401.
    Invalid(&'static str),
    /// It is right, but not enough: 403.
    Forbidden(&'static str),
    /// Too many have failed, so it is not checked for these seconds: 429.
    TooManyAttempts(u64),
    /// It is as the service says that was asked.
    Answered(Arc<RelayedAnswer>),
    /// The request itself is at fault: nobody can be asked about it.
    Faulty(Failure),
    /// There is too much to check, or the answer about it is of no use: 503, and the client pays
    /// for the work.
    Undecided(&'static str),
    /// It cannot be checked now: 503.
    Unavailable(&'static str),
}

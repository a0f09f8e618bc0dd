//! Why a credential is not accepted, for clients and for operators who count.

/// Why a credential is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthenticationRefusal {
    /// It is wrong: 401.
    Invalid(&'static str),
    /// It is right, but not enough: 403.
    Forbidden(&'static str),
    /// Too many have failed, so it is not checked for these seconds: 429.
    TooManyAttempts(u64),
    /// It cannot be checked now: 503.
    Unavailable(&'static str),
}

//! Why something about accounts cannot be done.

use crate::database::DatabaseError;

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PeopleError {
    #[error("this would leave nobody who may do everything: make somebody else an admin first")]
    LastAdmin,
    #[error("there is no account {0}")]
    Unknown(String),
    #[error("somebody else has changed the account {0} meanwhile")]
    Changed(String),
    #[error("meanwhile this sign-in or token has ended")]
    SignedOut,
    #[error("there is an account {0} already")]
    Exists(String),
    #[error("{0}")]
    Invalid(String),
    #[error("a token may not do more than its account: take away what that may not do")]
    BeyondRights,
    #[error("the account {0} is disabled")]
    Disabled(String),
    #[error("this machine gives no random numbers")]
    NoRandomness,
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

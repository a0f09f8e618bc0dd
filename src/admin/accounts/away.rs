//! The answers to strangers when the database of accounts or the provider cannot be asked.
//!
//! Guarantees that only the log says where these are and how they refuse, and that strangers do not
//! fill it.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_policies::database::DatabaseError;
use tollgate_policies::people::PeopleError;

use crate::admin::problem_details::ProblemDetails;
use crate::clock;
use crate::identity::openid::fault::OpenIdFault;

/// When one of these was last logged, in seconds of the process. One a second is enough to know.
static LOGGED: AtomicU64 = AtomicU64::new(0);

impl ProblemDetails {
    /// 503: nobody can be told apart without the database of accounts.
    pub fn database_for_strangers(error: &DatabaseError) -> Self {
        if is_logged() {
            tracing::error!(%error, "the database of accounts cannot be asked");
        }
        Self::database_away("the database of accounts cannot be asked: the gateway's log says why")
    }

    /// Why somebody who has not signed in yet gets no session.
    pub fn people_for_strangers(error: &PeopleError) -> Self {
        match error {
            PeopleError::Database(error) => Self::database_for_strangers(error),
            other => Self::people(other),
        }
    }

    /// 503: nobody signs in at the provider.
    pub fn provider_for_strangers(issuer: &str, fault: &OpenIdFault) -> Self {
        if is_logged() {
            tracing::warn!(issuer, %fault, "nobody can sign in at the provider");
        }
        Self::provider_away("the provider is away: the gateway's log says why")
    }
}

fn is_logged() -> bool {
    let now = clock::monotonic_micros() / 1_000_000 + 1;
    LOGGED.swap(now, Ordering::Relaxed) != now
}

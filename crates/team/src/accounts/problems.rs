//! Why something about accounts cannot be done.
//!
//! Guarantees that strangers, who are not signed in, do not learn where the database and the
//! provider are and how they refuse: only the log says so, and strangers do not fill it.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_policies::database::DatabaseError;
use tollgate_policies::people::PeopleError;

use tollgate_admin::problem_details::ProblemDetails;
use tollgate_identity::openid::fault::OpenIdFault;
use tollgate_limiter::clock;

/// When a failure was last logged, in seconds of the process: one a second is enough to know.
static LOGGED: AtomicU64 = AtomicU64::new(0);

/// Why something about accounts cannot be done.
pub fn people(error: &PeopleError) -> ProblemDetails {
    match error {
        PeopleError::Database(error) => ProblemDetails::database_away(error.to_string()),
        PeopleError::SignedOut => ProblemDetails::unauthenticated(error.to_string()),
        PeopleError::Unknown(_) => ProblemDetails::not_found(&error.to_string()),
        PeopleError::Changed(_) => ProblemDetails::conflicting(error.to_string()),
        other => ProblemDetails::bad_request(other.to_string()),
    }
}

/// 503: callers are known by the database of accounts alone.
pub fn database_for_strangers(error: &DatabaseError) -> ProblemDetails {
    if is_logged() {
        tracing::error!(%error, "the database of accounts cannot be asked");
    }
    ProblemDetails::database_away(
        "the database of accounts cannot be asked: the gateway's log says why",
    )
}

/// Why somebody who has not signed in yet gets no session.
pub fn people_for_strangers(error: &PeopleError) -> ProblemDetails {
    match error {
        PeopleError::Database(error) => database_for_strangers(error),
        other => people(other),
    }
}

/// 503: nobody signs in at the provider.
pub fn provider_for_strangers(issuer: &str, fault: &OpenIdFault) -> ProblemDetails {
    if is_logged() {
        tracing::warn!(issuer, %fault, "nobody can sign in at the provider");
    }
    ProblemDetails::provider_away("the provider is away: the gateway's log says why")
}

fn is_logged() -> bool {
    let now = clock::monotonic_micros() / 1_000_000 + 1;
    LOGGED.swap(now, Ordering::Relaxed) != now
}

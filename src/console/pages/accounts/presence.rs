//! Proof that an account's owner is in front of the console, for forms whose effect outlives the session.
//!
//! Guarantees that whoever comes by an open browser, or by the cookie of one, makes no lasting way in: no token, no account, no
//! password and no role in the fleet.

use std::net::SocketAddr;
use std::time::Duration;

use tollgate_policies::people::UserAccount;

use crate::admin::accounts::AccountService;
use crate::admin::caller::Caller;
use crate::admin::problem_details::ProblemDetails;
use crate::console::forms::ConsoleForm;

/// How long after signing in somebody without a password counts as present.
const RECENT: Duration = Duration::from_secs(600);

/// The account of the caller, who has just proven to be its owner: by the field `current` of the form, or without a password by
/// having just signed in.
///
/// # Errors
/// When they have not, too many passwords were wrong, or the database is away.
pub async fn check_presence(
    accounts: &AccountService,
    caller: &Caller,
    form: &ConsoleForm,
    peer: SocketAddr,
) -> Result<UserAccount, ProblemDetails> {
    let found = accounts.people.session(caller.session()).await.map_err(|error| ProblemDetails::database(&error))?;
    let (account, session) = found.ok_or_else(|| ProblemDetails::bad_request("the session has ended"))?;
    if account.has_password {
        return check_current_password(accounts, caller, form, peer).await;
    }
    match session.read_at <= session.begun_at.after(RECENT) {
        true => Ok(account),
        false => Err(ProblemDetails::bad_request("you have signed in too long ago for this")
            .hint("sign out and in again, then do it within ten minutes")),
    }
}

/// The account of the caller, whose password the field `current` of the form has.
///
/// # Errors
/// As [`check_presence`].
pub async fn check_current_password(
    accounts: &AccountService,
    caller: &Caller,
    form: &ConsoleForm,
    peer: SocketAddr,
) -> Result<UserAccount, ProblemDetails> {
    let checked = accounts.check_password(&caller.name, form.exact_field("current"), peer.ip()).await;
    checked.map_err(|problem| {
        // Not 401: somebody is signed in.
        if problem.is_of_strangers() { ProblemDetails::bad_request("the current password is wrong") } else { problem }
    })
}

/// Whether forms of this caller's pages ask for the password.
///
/// # Errors
/// When the database is away.
pub async fn asks_password(accounts: &AccountService, caller: &Caller) -> Result<bool, ProblemDetails> {
    let account = accounts.people.account(&caller.name).await.map_err(|error| ProblemDetails::database(&error))?;
    Ok(account.is_some_and(|account| account.has_password))
}

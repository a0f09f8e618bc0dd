//! Proof that an account's owner is in front of the console, for forms whose effect outlives the
//! session.
//!
//! Guarantees that an open browser, or a stolen cookie, makes no lasting way into the admin port:
//! no token, no account, no password and no role. API keys of an application lead to its routes,
//! and are made without.

use std::net::SocketAddr;
use tollgate_team::database_problem::database_problem;

use tollgate_policies::people::{PeopleChange, UserAccount};

use crate::forms::ConsoleForm;
use crate::pages::encode;
use crate::shell::Visitor;
use crate::state::ConsoleState;
use tollgate_admin::problem_details::ProblemDetails;
use tollgate_team::accounts::{AccountService, problems};
use tollgate_team::caller::Caller;

/// The account of the caller, who has just proven to be its owner: by the field `current` of the
/// form, or without a password by having been asked by the provider within ten minutes.
///
/// # Errors
/// When they have not, too many passwords were wrong, or the database is away.
pub async fn check_presence(
    accounts: &AccountService,
    caller: &Caller,
    form: &ConsoleForm,
    peer: SocketAddr,
) -> Result<UserAccount, ProblemDetails> {
    let found = accounts
        .people
        .session(caller.session())
        .await
        .map_err(database_problem)?;
    let Some((account, _)) = found else {
        return Err(ProblemDetails::bad_request("the session has ended"));
    };
    if account.has_password {
        return check_current_password(accounts, caller, form, peer).await;
    }
    // The beginning of the session is no proof: the provider may have asked nothing then, in a
    // browser that somebody left open.
    if accounts.was_asked_lately(caller.session()) {
        return Ok(account);
    }
    let problem = "the provider has not asked you lately who you are";
    Err(ProblemDetails::bad_request(problem)
        .hint("choose \"Prove that it is you\" on this page, and do this within ten minutes"))
}

/// Begins a change of people by a caller.
///
/// # Errors
/// When their session has ended, or the database is away.
pub async fn begin<'a>(
    accounts: &'a AccountService,
    caller: &'a Caller,
) -> Result<PeopleChange<'a>, ProblemDetails> {
    let Some(author) = caller.author() else {
        return Err(ProblemDetails::unauthenticated("this needs an account"));
    };
    let begun = accounts.people.begin(&author).await;
    begun.map_err(|error| problems::people(&error))
}

/// The account of the caller, whose password the field `current` of the form has.
///
/// # Errors
/// Like [`check_presence`].
pub async fn check_current_password(
    accounts: &AccountService,
    caller: &Caller,
    form: &ConsoleForm,
    peer: SocketAddr,
) -> Result<UserAccount, ProblemDetails> {
    let checked = accounts
        .check_password(&caller.name, form.exact_field("current"), peer.ip())
        .await;
    checked.map_err(|problem| {
        // Not 401: somebody is signed in.
        if problem.is_of_strangers() {
            ProblemDetails::bad_request("the current password is wrong")
        } else {
            problem
        }
    })
}

/// The proof that forms of a page ask for, for the template `parts/presence.html`.
pub struct PresencePart {
    pub asks_password: bool,
    /// Where somebody without a password proves that it is them. Empty: they need not, or cannot.
    pub href: String,
}

impl PresencePart {
    /// # Errors
    /// When the database is away.
    pub async fn new(console: &ConsoleState, visitor: &Visitor) -> Result<Self, ProblemDetails> {
        let accounts = console.accounts()?;
        let caller = visitor.caller()?;
        let account = accounts
            .people
            .account(&caller.name)
            .await
            .map_err(database_problem)?;
        let asks_password = account.is_some_and(|account| account.has_password);
        let may_prove = !asks_password
            && accounts.provider().is_ok()
            && !accounts.was_asked_lately(caller.session());
        let href = format!(
            "/console/sign-in/provider?prove=true&page={}",
            encode(visitor.page())
        );
        Ok(Self {
            asks_password,
            href: if may_prove { href } else { String::new() },
        })
    }
}

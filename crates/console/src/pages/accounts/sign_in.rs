//! `/console/sign-in` and `/console/sign-out`.
//!
//! Guarantees that a session is always a new one: a secret that a browser brought along is never
//! taken over, and one that is left is ended in the database.

use std::net::SocketAddr;
use tollgate_team::database_problem::database_problem;

use askama::Template;
use axum::extract::{ConnectInfo, Query, State};
use axum::http::HeaderValue;
use axum::http::header::SET_COOKIE;
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use tollgate_policies::people::Deed;

use super::presence::begin;
use crate::forms::{ConsoleForm, page_of_console};
use crate::pages::encode;
use crate::shell::{Shell, Visitor, page, page_with};
use crate::state::ConsoleState;
use tollgate_admin::problem_details::ProblemDetails;
use tollgate_team::accounts::{AccountService, problems};
use tollgate_team::caller::CallerProof;

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    shell: Shell,
    problem: Option<ProblemDetails>,
    name: String,
    /// Where to go then.
    next: String,
    next_encoded: String,
    /// Whether people may also sign in at a provider.
    by_provider: bool,
}

/// Where to go after signing in.
#[derive(Deserialize)]
pub struct NextPage {
    #[serde(default)]
    page: String,
    /// Whether somebody is to prove that it is them.
    #[serde(default)]
    prove: bool,
}

impl NextPage {
    pub fn page(&self) -> &str {
        &self.page
    }

    pub const fn proves(&self) -> bool {
        self.prove
    }
}

/// `GET /console/sign-in`
pub async fn show(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    Query(next): Query<NextPage>,
) -> Response {
    let next = page_of_console(&next.page);
    let accounts = match console.accounts() {
        Ok(accounts) => accounts,
        Err(problem) => return console.refuse(&visitor, &problem),
    };
    if visitor.caller.is_some() {
        return Redirect::to(&next).into_response();
    }
    match accounts.has_accounts().await {
        Ok(true) => page(&SignInPage::new(&console, &visitor, next)),
        Ok(false) | Err(_) => console.refuse(&visitor, &accounts.unknown_caller().await),
    }
}

/// `POST /console/sign-in`
pub async fn submit(
    State(console): State<ConsoleState>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    form: ConsoleForm,
) -> Response {
    let next = page_of_console(form.field("page"));
    match sign_in(&console, &form, peer).await {
        Ok(cookie) => ([(SET_COOKIE, cookie)], Redirect::to(&next)).into_response(),
        Err(problem) => {
            let head = problem.head();
            let mut shown = SignInPage::new(&console, &form.visitor, next);
            shown.name = form.field("name").to_owned();
            shown.problem = Some(problem);
            page_with(&shown, Some(head))
        }
    }
}

/// `POST /console/sign-out`
pub async fn sign_out(State(console): State<ConsoleState>, form: ConsoleForm) -> Response {
    match end(&console, &form.visitor).await {
        Ok(cookie) => ([(SET_COOKIE, cookie)], Redirect::to("/console/sign-in")).into_response(),
        Err(problem) => console.refuse(&form.visitor, &problem),
    }
}

/// The cookie of a new session.
async fn sign_in(
    console: &ConsoleState,
    form: &ConsoleForm,
    peer: SocketAddr,
) -> Result<HeaderValue, ProblemDetails> {
    let accounts = console.accounts()?;
    let account = accounts
        .check_password(form.field("name"), form.exact_field("password"), peer.ip())
        .await?;
    if form
        .visitor
        .caller
        .as_ref()
        .is_some_and(|caller| caller.by == CallerProof::Session)
    {
        end(console, &form.visitor).await?;
    }
    accounts
        .new_session(&account, peer.ip(), "by password")
        .await
}

/// Ends the visitor's session in the database. The cookie that takes the cookie of it away.
async fn end(console: &ConsoleState, visitor: &Visitor) -> Result<HeaderValue, ProblemDetails> {
    let accounts = console.accounts()?;
    let caller = visitor.caller()?;
    let mut change = begin(accounts, caller).await?;
    let ended = change.end_session(caller.session()).await;
    ended.map_err(database_problem)?;
    let deed = Deed {
        action: "sign_out",
        object: &format!("account {}", caller.name),
        detail: "",
    };
    let committed = accounts.commit_session(change, &caller.name, &deed).await;
    committed.map_err(|error| problems::people(&error))?;
    accounts
        .cookies
        .end()
        .ok_or_else(|| ProblemDetails::bad_request("the session cannot be ended"))
}

impl SignInPage {
    fn new(console: &ConsoleState, visitor: &Visitor, next: String) -> Self {
        Self {
            shell: visitor.shell(console, "", "Sign in"),
            problem: None,
            name: String::new(),
            next_encoded: encode(&next),
            next,
            by_provider: match console.accounts() {
                Ok(accounts) => accounts.provider().is_ok(),
                Err(_) => false,
            },
        }
    }
}

impl ConsoleState {
    /// # Errors
    /// When there are none.
    pub fn accounts(&self) -> Result<&AccountService, ProblemDetails> {
        self.team.accounts.as_deref().ok_or_else(|| {
            ProblemDetails::not_found("page for accounts")
                .hint("accounts come with a database: policies.database in the file")
        })
    }
}

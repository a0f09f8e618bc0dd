//! `/console/account`: the password and the tokens of the visitor.

use std::net::SocketAddr;
use std::time::Duration;
use tollgate_team::database_problem::database_problem;

use askama::Template;
use axum::extract::{ConnectInfo, State};
use axum::http::HeaderValue;
use axum::http::header::SET_COOKIE;
use axum::response::{IntoResponse, Redirect, Response};
use tollgate_policies::people::{
    ApiToken, ApplicationRole, Deed, FleetRole, HashedPassword, NewToken, Rights,
};

use super::presence::{PresencePart, begin, check_current_password, check_presence};
use super::words::{and_tokens, earlier_tokens, show_rights};
use crate::forms::{ConsoleForm, WrittenForm};
use crate::numbers::short_time;
use crate::shell::{Shell, Visitor, page, page_with};
use crate::state::ConsoleState;
use tollgate_admin::problem_details::ProblemDetails;
use tollgate_team::accounts::problems;

/// The longest time that a token may last: ten years.
const MOST_DAYS: u64 = 3_650;

#[derive(Template)]
#[template(path = "account.html")]
struct AccountPage {
    shell: Shell,
    problem: Option<ProblemDetails>,
    rights: String,
    /// A notice of what was done.
    done: String,
    /// The secret of a token, which is shown once.
    secret: String,
    tokens: Vec<TokenRow>,
    written: WrittenForm,
    presence: PresencePart,
}

struct TokenRow {
    id: String,
    label: String,
    scope: String,
    created: String,
    expires: String,
    is_revoked: bool,
}

/// The outcome of a form.
#[derive(Default)]
struct AccountOutcome {
    done: String,
    secret: String,
    cookie: Option<HeaderValue>,
}

/// `GET /console/account`
pub async fn show(State(console): State<ConsoleState>, visitor: Visitor) -> Response {
    answer(&console, &visitor, AccountOutcome::default()).await
}

/// `POST /console/account`
pub async fn submit(
    State(console): State<ConsoleState>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut form: ConsoleForm,
) -> Response {
    if form.field("action") == "sign_out" {
        return sign_out_everywhere(&console, &form).await;
    }
    let outcome = match form.field("action") {
        "password" => change_password(&console, &mut form, peer).await,
        "token" => create_token(&console, &form, peer).await,
        "revoke" => revoke_token(&console, &form).await,
        _ => Err(ProblemDetails::bad_request(
            "the form asks for nothing that there is",
        )),
    };
    match outcome {
        Ok(outcome) => answer(&console, &form.visitor, outcome).await,
        Err(problem) => refuse(&console, &form, problem).await,
    }
}

/// Ends all sessions of the account, this one too: a cookie that somebody else has is of no use
/// then.
async fn sign_out_everywhere(console: &ConsoleState, form: &ConsoleForm) -> Response {
    match end_sessions(console, form).await {
        Ok(cookie) => ([(SET_COOKIE, cookie)], Redirect::to("/console/sign-in")).into_response(),
        Err(problem) => refuse(console, form, problem).await,
    }
}

/// Ends all sessions of the visitor, and returns the cookie that takes this session's away.
async fn end_sessions(
    console: &ConsoleState,
    form: &ConsoleForm,
) -> Result<HeaderValue, ProblemDetails> {
    let accounts = console.accounts()?;
    let caller = form.visitor.caller()?;
    console.tokens.spend(form.token)?;
    let mut change = begin(accounts, caller).await?;
    let ended = change.end_sessions(&caller.name).await;
    let ended = ended.map_err(database_problem)?;
    let deed = Deed {
        action: "sign_out",
        object: &format!("account {}", caller.name),
        detail: &format!("everywhere: {ended} sessions"),
    };
    let committed = accounts.commit_session(change, &caller.name, &deed).await;
    committed.map_err(|error| problems::people(&error))?;
    accounts
        .cookies
        .end()
        .ok_or_else(|| ProblemDetails::bad_request("the cookie cannot be taken away"))
}

async fn answer(console: &ConsoleState, visitor: &Visitor, outcome: AccountOutcome) -> Response {
    let mut response = match AccountPage::new(console, visitor, &outcome, None).await {
        Ok(shown) => page(&shown),
        Err(problem) => return console.refuse(visitor, &problem),
    };
    if let Some(cookie) = outcome.cookie {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

/// The page again, with why a form of it was not taken.
async fn refuse(console: &ConsoleState, form: &ConsoleForm, problem: ProblemDetails) -> Response {
    let head = Some(problem.head());
    let written = WrittenForm::from(form);
    let outcome = AccountOutcome::default();
    match AccountPage::new(console, &form.visitor, &outcome, Some(problem)).await {
        Ok(found) => page_with(&AccountPage { written, ..found }, head),
        Err(problem) => console.refuse(&form.visitor, &problem),
    }
}

/// Ends every session of the account, and begins this one anew.
async fn change_password(
    console: &ConsoleState,
    form: &mut ConsoleForm,
    peer: SocketAddr,
) -> Result<AccountOutcome, ProblemDetails> {
    let accounts = console.accounts()?;
    let caller = form.visitor.caller()?.clone();
    let new = form.exact_field("new");
    if new != form.exact_field("again") {
        return Err(ProblemDetails::bad_request(
            "the new password was not written twice alike",
        ));
    }
    let account = check_current_password(accounts, &caller, form, peer).await?;
    let password = HashedPassword::new(new).await;
    let password = password.map_err(|error| problems::people(&error))?;
    console.tokens.spend(form.token)?;
    let tokens = earlier_tokens(form);
    let mut change = begin(accounts, &caller).await?;
    let changed = change.set_password(&account, &password, tokens).await;
    let account = changed.map_err(|error| problems::people(&error))?;
    let deed = Deed {
        action: "password",
        object: &format!("account {}", caller.name),
        detail: &format!("their own{}", and_tokens(tokens)),
    };
    let committed = accounts.commit(change, &deed).await;
    committed.map_err(|error| problems::people(&error))?;
    let secret = accounts
        .begin_session(&account, peer.ip(), "after a change of the password")
        .await?;
    form.visitor.caller = Some(caller.in_session(secret.expose()));
    let done = format!(
        "Your password was changed. Your other sessions have ended{}.",
        and_tokens(tokens)
    );
    Ok(AccountOutcome {
        done,
        cookie: accounts.cookies.begin(&secret),
        ..AccountOutcome::default()
    })
}

async fn create_token(
    console: &ConsoleState,
    form: &ConsoleForm,
    peer: SocketAddr,
) -> Result<AccountOutcome, ProblemDetails> {
    let accounts = console.accounts()?;
    let caller = form.visitor.caller()?;
    let days = match form.field("days").parse::<u64>() {
        Ok(days) if days <= MOST_DAYS => days,
        Ok(_) | Err(_) => {
            return Err(ProblemDetails::bad_request(format!(
                "a token lasts 0 to {MOST_DAYS} days"
            )));
        }
    };
    let scope = match form.field("scope") {
        "all" => caller.rights.clone(),
        "view" => only_looking(&caller.rights),
        _ => {
            return Err(ProblemDetails::bad_request(
                "a token may do all that you may, or look",
            ));
        }
    };
    let expires_in = if days > 0 {
        Some(Duration::from_secs(days * 86_400))
    } else {
        None
    };
    let new = NewToken {
        label: form.field("label").to_owned(),
        scope,
        expires_in,
    };
    let account = check_presence(accounts, caller, form, peer).await?;
    console.tokens.spend(form.token)?;
    let mut change = begin(accounts, caller).await?;
    let made = change.create_token(&account, &new).await;
    let (secret, token) = made.map_err(|error| problems::people(&error))?;
    let deed = Deed {
        action: "token_create",
        object: &format!("token {}", token.id),
        detail: &format!("{}: {}", token.label, show_rights(&token.scope)),
    };
    let committed = accounts.commit(change, &deed).await;
    committed.map_err(|error| problems::people(&error))?;
    Ok(AccountOutcome {
        secret: secret.expose().to_owned(),
        ..AccountOutcome::default()
    })
}

async fn revoke_token(
    console: &ConsoleState,
    form: &ConsoleForm,
) -> Result<AccountOutcome, ProblemDetails> {
    let accounts = console.accounts()?;
    let caller = form.visitor.caller()?;
    let id = form.field("id");
    console.tokens.spend(form.token)?;
    let mut change = begin(accounts, caller).await?;
    let revoked = change.revoke_token(&caller.name, id).await;
    if !revoked.map_err(database_problem)? {
        return Err(ProblemDetails::not_found(
            "such token of yours, or it was revoked before",
        ));
    }
    let deed = Deed {
        action: "token_revoke",
        object: &format!("token {id}"),
        detail: "",
    };
    let committed = accounts.commit(change, &deed).await;
    committed.map_err(|error| problems::people(&error))?;
    Ok(AccountOutcome {
        done: "The token was revoked.".to_owned(),
        ..AccountOutcome::default()
    })
}

/// The rights with a viewer's role in place of each role.
fn only_looking(rights: &Rights) -> Rights {
    let mut viewing = rights.clone();
    if let Some(role) = &mut viewing.fleet {
        *role = FleetRole::Viewer;
    }
    for role in viewing.applications.values_mut() {
        *role = ApplicationRole::Viewer;
    }
    viewing
}

impl AccountPage {
    async fn new(
        console: &ConsoleState,
        visitor: &Visitor,
        outcome: &AccountOutcome,
        problem: Option<ProblemDetails>,
    ) -> Result<Self, ProblemDetails> {
        let accounts = console.accounts()?;
        let caller = visitor.caller()?;
        let tokens = accounts
            .people
            .tokens(&caller.name)
            .await
            .map_err(database_problem)?;
        Ok(Self {
            shell: visitor.shell(console, "Account", "Your account"),
            problem,
            rights: show_rights(&caller.rights),
            done: outcome.done.clone(),
            secret: outcome.secret.clone(),
            tokens: tokens.into_iter().map(TokenRow::from).collect(),
            written: WrittenForm::default(),
            presence: PresencePart::new(console, visitor).await?,
        })
    }
}

impl From<ApiToken> for TokenRow {
    fn from(token: ApiToken) -> Self {
        Self {
            scope: show_rights(&token.scope),
            created: short_time(&token.created_at.to_string()),
            expires: match token.expires_at {
                Some(at) => short_time(&at.to_string()),
                None => "never".to_owned(),
            },
            is_revoked: token.revoked,
            id: token.id,
            label: token.label,
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_policies::model::ObjectKind;
    use tollgate_policies::people::{Operation, may};

    use super::*;

    #[test]
    fn a_token_that_only_looks_is_within_the_rights_of_its_account() {
        let rights = Rights {
            fleet: Some(FleetRole::Admin),
            ..Rights::new("shop", ApplicationRole::Owner)
        };
        let scope = only_looking(&rights);
        assert!(scope.is_within(&rights) && may(&scope, Operation::ViewFleet, ""));
        for changing in [
            Operation::ActOnFleet,
            Operation::Change(ObjectKind::Strategy),
            Operation::ManageRights,
        ] {
            assert!(!may(&scope, changing, "shop"), "{changing:?}");
        }
        assert_eq!(only_looking(&Rights::default()), Rights::default());
    }
}

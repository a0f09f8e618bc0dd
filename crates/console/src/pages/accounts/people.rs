//! `/console/people`: the accounts, for admins, and for operators and owners to look at.

use std::net::SocketAddr;
use tollgate_team::database_problem::database_problem;

use askama::Template;
use axum::extract::{ConnectInfo, State};
use axum::response::{IntoResponse, Redirect, Response};
use tollgate_policies::people::{Deed, HashedPassword, NewAccount, Operation, Rights};

use super::presence::{PresencePart, begin, check_presence};
use super::words::{chosen_fleet_role, show_rights};
use crate::forms::{ConsoleForm, WrittenForm};
use crate::pages::encode;
use crate::shell::{Shell, Visitor, page_with};
use crate::state::ConsoleState;
use tollgate_admin::problem_details::ProblemDetails;
use tollgate_team::accounts::problems;
use tollgate_team::caller::Caller;

#[derive(Template)]
#[template(path = "people.html")]
struct PeoplePage {
    shell: Shell,
    problem: Option<ProblemDetails>,
    rows: Vec<PersonRow>,
    /// Whether the visitor may make accounts.
    may_create: bool,
    written: WrittenForm,
    presence: PresencePart,
}

struct PersonRow {
    name: String,
    href: String,
    display_name: String,
    rights: String,
    is_disabled: bool,
}

/// `GET /console/people`
pub async fn list(State(console): State<ConsoleState>, visitor: Visitor) -> Response {
    answer(&console, &visitor, WrittenForm::default(), None).await
}

/// `POST /console/people`: a new account.
pub async fn create(
    State(console): State<ConsoleState>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    form: ConsoleForm,
) -> Response {
    match make(&console, &form, peer).await {
        Ok(name) => Redirect::to(&format!("/console/people/{}", encode(&name))).into_response(),
        Err(problem) => {
            let written = WrittenForm::from(&form);
            answer(&console, &form.visitor, written, Some(problem)).await
        }
    }
}

async fn answer(
    console: &ConsoleState,
    visitor: &Visitor,
    written: WrittenForm,
    problem: Option<ProblemDetails>,
) -> Response {
    let head = problem.as_ref().map(ProblemDetails::head);
    match PeoplePage::new(console, visitor, problem).await {
        Ok(found) => page_with(&PeoplePage { written, ..found }, head),
        Err(problem) => console.refuse(visitor, &problem),
    }
}

async fn make(
    console: &ConsoleState,
    form: &ConsoleForm,
    peer: SocketAddr,
) -> Result<String, ProblemDetails> {
    let accounts = console.accounts()?;
    let caller = form.visitor.caller()?;
    caller.may(Operation::ManageAccounts, "")?;
    let password = form.exact_field("password");
    let name = form.field("name");
    let mut display_name = form.field("display_name");
    if display_name.is_empty() {
        display_name = name;
    }
    let rights = Rights {
        fleet: chosen_fleet_role(form.field("fleet"))?,
        ..Rights::default()
    };
    check_presence(accounts, caller, form, peer).await?;
    let password = if password.is_empty() {
        None
    } else {
        let hashed = HashedPassword::new(password).await;
        Some(hashed.map_err(|error| problems::people(&error))?)
    };
    let new = NewAccount {
        name: name.to_owned(),
        display_name: display_name.to_owned(),
        password,
        subject: None,
        rights,
    };
    console.tokens.spend(form.token)?;
    let mut change = begin(accounts, caller).await?;
    // The visitor may have lost the role while the password was checked.
    caller
        .with(change.rights())
        .may(Operation::ManageAccounts, "")?;
    let made = change.create(&new).await;
    let made = made.map_err(|error| problems::people(&error))?;
    let deed = Deed {
        action: "account_create",
        object: &format!("account {}", made.name),
        detail: &show_rights(&made.rights),
    };
    let committed = accounts.commit(change, &deed).await;
    committed.map_err(|error| problems::people(&error))?;
    Ok(made.name)
}

/// The rights of an account as far as somebody may see them: operators see all, owners see the
/// rights in their applications.
pub fn visible_rights(caller: &Caller, rights: &Rights) -> Rights {
    if caller.may(Operation::ViewFleet, "").is_ok() {
        return rights.clone();
    }
    let mut visible = Rights::default();
    for (name, role) in &rights.applications {
        if caller.may(Operation::ManageRights, name).is_ok() {
            visible.applications.insert(name.clone(), *role);
        }
    }
    visible
}

/// Whether somebody may see who there is: operators, and owners, who give roles.
///
/// # Errors
/// When not.
pub fn may_see_people(caller: &Caller) -> Result<(), ProblemDetails> {
    let mut applications = caller.rights.applications.keys();
    if applications.any(|name| caller.may(Operation::ManageRights, name).is_ok()) {
        Ok(())
    } else {
        caller.may(Operation::ViewFleet, "")
    }
}

impl PeoplePage {
    async fn new(
        console: &ConsoleState,
        visitor: &Visitor,
        problem: Option<ProblemDetails>,
    ) -> Result<Self, ProblemDetails> {
        let accounts = console.accounts()?;
        let caller = visitor.caller()?;
        may_see_people(caller)?;
        let all = accounts.people.accounts().await.map_err(database_problem)?;
        let mut rows = Vec::with_capacity(all.len());
        for account in all {
            rows.push(PersonRow {
                href: format!("/console/people/{}", encode(&account.name)),
                rights: show_rights(&visible_rights(caller, &account.rights)),
                display_name: account.display_name,
                is_disabled: account.disabled,
                name: account.name,
            });
        }
        Ok(Self {
            shell: visitor.shell(console, "People", "People"),
            problem,
            rows,
            may_create: caller.may(Operation::ManageAccounts, "").is_ok(),
            written: WrittenForm::default(),
            presence: PresencePart::new(console, visitor).await?,
        })
    }
}

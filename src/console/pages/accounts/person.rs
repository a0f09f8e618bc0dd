//! `/console/people/{name}`: somebody's roles, and for admins their password and their account.

use std::collections::BTreeSet;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use tollgate_policies::people::{AccountChange, AuditOutcome, Operation, PeopleError, Rights, RoleChange, UserAccount};
use tollgate_policies::time::UnixTime;

use super::people::{may_see_people, visible_rights};
use super::words::{and_tokens, chosen_fleet_role, chosen_role, earlier_tokens, show_rights};
use crate::admin::caller::fleet_word;
use crate::admin::problem_details::ProblemDetails;
use crate::console::forms::ConsoleForm;
use crate::console::numbers::short_time;
use crate::console::pages::encode;
use crate::console::shell::{Shell, Visitor, page};
use crate::console::state::ConsoleState;

#[derive(Template)]
#[template(path = "person.html")]
struct PersonPage {
    shell: Shell,
    problem: Option<ProblemDetails>,
    name: String,
    action: String,
    /// What there is to know, and its value.
    facts: Vec<(&'static str, String)>,
    /// The applications whose roles the visitor gives. Empty for an admin: there is none yet.
    owned: Vec<String>,
    fleet: &'static str,
    is_disabled: bool,
    manages_accounts: bool,
    /// When the account was made: by the time of a form, another one may have its name.
    made_at: i64,
}

/// `GET /console/people/{name}`
pub async fn show(State(console): State<ConsoleState>, visitor: Visitor, Path(name): Path<String>) -> Response {
    answer(&console, &visitor, &name, None).await
}

/// `POST /console/people/{name}`
pub async fn change(State(console): State<ConsoleState>, Path(name): Path<String>, form: ConsoleForm) -> Response {
    match carry_out(&console, &name, &form).await {
        Ok(next) => Redirect::to(&next).into_response(),
        Err(problem) => answer(&console, &form.visitor, &name, Some(problem)).await,
    }
}

async fn answer(console: &ConsoleState, visitor: &Visitor, name: &str, problem: Option<ProblemDetails>) -> Response {
    let status = problem.as_ref().map(ProblemDetails::status_code);
    match PersonPage::of(console, visitor, name, problem).await {
        Ok(shown) => {
            let mut response = page(&shown);
            if let Some(status) = status {
                *response.status_mut() = status;
            }
            response
        }
        Err(problem) => console.refuse(visitor, &problem),
    }
}

async fn find(console: &ConsoleState, name: &str) -> Result<UserAccount, ProblemDetails> {
    let found = console.accounts()?.people.account(name).await.map_err(|error| ProblemDetails::database(&error))?;
    found.ok_or_else(|| ProblemDetails::not_found("such account"))
}

/// Does what a form asks for. The page to go on to.
async fn carry_out(console: &ConsoleState, name: &str, form: &ConsoleForm) -> Result<String, ProblemDetails> {
    let (people, caller) = (&console.accounts()?.people, form.visitor.caller()?);
    let (action, application) = (form.field("action"), form.field("application"));
    match action {
        // Of no application: there is none with this name, and nobody owns it.
        "role" if application.is_empty() => return Err(ProblemDetails::bad_request("the form names no application")),
        "role" => caller.may(Operation::ManageRights, application)?,
        _ => caller.may(Operation::ManageAccounts, "")?,
    }
    let wrong = |error| ProblemDetails::people(&error);
    let mut detail = String::new();
    let mut change = AccountChange { made_at: Some(made_at(form)?), ..AccountChange::default() };
    match action {
        "role" => {
            let role = chosen_role(form.field("role"))?;
            change.roles.push(RoleChange::Application(application.to_owned(), role));
        }
        "fleet" => change.roles.push(RoleChange::Fleet(chosen_fleet_role(form.field("role"))?)),
        "disable" => change.disabled = Some(true),
        "enable" => change.disabled = Some(false),
        "password" | "remove" => {}
        _ => return Err(ProblemDetails::bad_request("the form asks for nothing that there is")),
    }
    let account = find(console, name).await?;
    if change.made_at != Some(account.created_at) {
        return Err(wrong(PeopleError::Changed(name.to_owned())));
    }
    console.tokens.spend(form.token)?;
    match action {
        "password" => {
            let tokens = earlier_tokens(form);
            people.set_password(&account, form.exact_field("password"), tokens).await.map_err(wrong)?;
            detail = format!("a new password{}", and_tokens(tokens));
        }
        "remove" => people.remove(name).await.map_err(wrong)?,
        _ => {
            let changed = people.change(name, &change).await.map_err(wrong)?;
            if !change.roles.is_empty() {
                detail = show_rights(&changed.rights);
            }
        }
    }
    caller.record(&format!("account_{action}"), &format!("account {name}"), AuditOutcome::Done, &detail).await;
    Ok(if action == "remove" { "/console/people".to_owned() } else { format!("/console/people/{}", encode(name)) })
}

impl PersonPage {
    async fn of(
        console: &ConsoleState,
        visitor: &Visitor,
        name: &str,
        problem: Option<ProblemDetails>,
    ) -> Result<Self, ProblemDetails> {
        let caller = visitor.caller()?;
        may_see_people(caller)?;
        let account = find(console, name).await?;
        let rights = visible_rights(caller, &account.rights);
        let manages_accounts = caller.may(Operation::ManageAccounts, "").is_ok();
        let owned = if manages_accounts {
            applications(console, &account.rights).await?
        } else {
            caller.rights.applications.keys().cloned().collect()
        };
        let owned = owned.into_iter().filter(|name| caller.may(Operation::ManageRights, name).is_ok());
        let facts = [
            ("Name", account.display_name),
            ("Roles", show_rights(&rights)),
            ("Signs in by", sign_in(account.has_password, account.subject.is_some()).to_owned()),
            ("State", if account.disabled { "disabled" } else { "active" }.to_owned()),
            ("Made", short_time(&account.created_at.to_string())),
            ("Changed", short_time(&account.changed_at.to_string())),
        ];
        Ok(Self {
            shell: visitor.shell(console, "People", name),
            problem,
            name: name.to_owned(),
            action: format!("/console/people/{}", encode(name)),
            facts: facts.into_iter().filter(|(_, value)| !value.is_empty()).collect(),
            owned: owned.collect(),
            fleet: account.rights.fleet.map_or("none", fleet_word),
            is_disabled: account.disabled,
            manages_accounts,
            made_at: account.created_at.millis(),
        })
    }

    /// Whether the visitor gives roles at all.
    fn gives_roles(&self) -> bool {
        self.manages_accounts || !self.owned.is_empty()
    }
}

/// Those that there are, and those that somebody still has a role in.
async fn applications(console: &ConsoleState, rights: &Rights) -> Result<BTreeSet<String>, ProblemDetails> {
    let mut names: BTreeSet<String> = rights.applications.keys().cloned().collect();
    if let Some(policies) = &console.admin.policies {
        names.extend(policies.database.state(None).await?.applications().into_iter().map(str::to_owned));
    }
    Ok(names)
}

/// When the account was made that a form is about.
fn made_at(form: &ConsoleForm) -> Result<UnixTime, ProblemDetails> {
    let made_at = form.field("made_at").parse().map(UnixTime::from_millis);
    made_at
        .map_err(|_| ProblemDetails::bad_request("the form does not say whom it is about").hint("load the page anew"))
}

fn sign_in(has_password: bool, has_subject: bool) -> &'static str {
    match (has_password, has_subject) {
        (true, true) => "password or OpenID Connect",
        (true, false) => "password",
        (false, true) => "OpenID Connect",
        (false, false) => "nothing yet: it has no password",
    }
}

//! `/console/people/{name}`: the roles of an account, and for admins its password and its state.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use tollgate_team::database_problem::database_problem;

use askama::Template;
use axum::extract::{ConnectInfo, Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use tollgate_policies::people::{
    AccountChange, Deed, HashedPassword, Operation, PeopleChange, PeopleError, Rights, RoleChange,
    UserAccount,
};
use tollgate_policies::time::UnixTime;

use super::people::{may_see_people, visible_rights};
use super::presence::{PresencePart, begin, check_presence};
use super::words::{
    and_tokens, chosen_fleet_role, chosen_role, earlier_tokens, show_rights, show_role_change,
};
use crate::forms::{ConsoleForm, WrittenForm};
use crate::numbers::short_time;
use crate::pages::encode;
use crate::shell::{Shell, Visitor, page, page_with};
use crate::state::ConsoleState;
use tollgate_admin::problem_details::ProblemDetails;
use tollgate_team::accounts::problems;
use tollgate_team::accounts::role_words::fleet_word;
use tollgate_team::caller::Caller;

#[derive(Template)]
#[template(path = "person.html")]
struct PersonPage {
    shell: Shell,
    problem: Option<ProblemDetails>,
    name: String,
    action: String,
    /// The facts about the account: the name of each, and its value.
    facts: Vec<(&'static str, String)>,
    /// The applications whose roles the visitor gives. Empty for an admin: there is none yet.
    owned: Vec<String>,
    fleet: &'static str,
    is_disabled: bool,
    manages_accounts: bool,
    /// Whether it is the visitor's own.
    is_own: bool,
    written: WrittenForm,
    presence: PresencePart,
    /// When the account was made: by the time of a form, another one may have its name.
    made_at: i64,
}

/// `GET /console/people/{name}`
pub async fn show(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Response {
    match PersonPage::new(&console, &visitor, &name, None).await {
        Ok(shown) => page(&shown),
        Err(problem) => console.refuse(&visitor, &problem),
    }
}

/// `POST /console/people/{name}`
pub async fn change(
    State(console): State<ConsoleState>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(name): Path<String>,
    form: ConsoleForm,
) -> Response {
    match carry_out(&console, &name, &form, peer).await {
        Ok(next) => Redirect::to(&next).into_response(),
        Err(problem) => refuse(&console, &form, &name, problem).await,
    }
}

/// The page again, with why a form of it was not taken.
async fn refuse(
    console: &ConsoleState,
    form: &ConsoleForm,
    name: &str,
    problem: ProblemDetails,
) -> Response {
    let head = Some(problem.head());
    let written = WrittenForm::from(form);
    match PersonPage::new(console, &form.visitor, name, Some(problem)).await {
        Ok(found) => page_with(&PersonPage { written, ..found }, head),
        Err(problem) => console.refuse(&form.visitor, &problem),
    }
}

async fn find(console: &ConsoleState, name: &str) -> Result<UserAccount, ProblemDetails> {
    let found = console
        .accounts()?
        .people
        .account(name)
        .await
        .map_err(database_problem)?;
    found.ok_or_else(|| ProblemDetails::not_found("such account"))
}

/// Makes the change of a form, and returns the page to go on to.
async fn carry_out(
    console: &ConsoleState,
    name: &str,
    form: &ConsoleForm,
    peer: SocketAddr,
) -> Result<String, ProblemDetails> {
    let accounts = console.accounts()?;
    let caller = form.visitor.caller()?;
    let action = form.field("action");
    check_role(caller, form)?;
    let wanted = requested_change(form)?;
    if action == "password" && name == caller.name {
        return Err(ProblemDetails::bad_request(
            "your own password is changed on the page of your account",
        )
        .hint("open it by your name in the head of each page"));
    }
    // A role, a password and an enabled account let somebody in, and the session may be somebody
    // else's by now.
    let gives_role = action == "role" && form.field("role") != "none";
    if gives_role || ["password", "fleet", "enable"].contains(&action) {
        check_presence(accounts, caller, form, peer).await?;
    }
    let password = match action {
        "password" => Some(HashedPassword::new(form.exact_field("password")).await),
        _ => None,
    };
    let password = password
        .transpose()
        .map_err(|error| problems::people(&error))?;
    console.tokens.spend(form.token)?;
    let mut change = begin(accounts, caller).await?;
    // The visitor may have lost the role while the password was checked.
    check_role(&caller.with(change.rights()), form)?;
    let person = PersonChange {
        name,
        wanted,
        password,
    };
    let applied = person.apply(&mut change, form).await;
    let deed = Deed {
        action: &format!("account_{action}"),
        object: &format!("account {name}"),
        detail: &applied.map_err(|error| problems::people(&error))?,
    };
    let committed = accounts.commit(change, &deed).await;
    committed.map_err(|error| problems::people(&error))?;
    Ok(if action == "remove" {
        "/console/people".to_owned()
    } else {
        format!("/console/people/{}", encode(name))
    })
}

/// Whether the visitor has the role that a form takes.
fn check_role(caller: &Caller, form: &ConsoleForm) -> Result<(), ProblemDetails> {
    match (form.field("action"), form.field("application")) {
        // No application has this name, and nobody owns it.
        ("role", "") => Err(ProblemDetails::bad_request("the form names no application")),
        ("role", application) => caller.may(Operation::ManageRights, application),
        _ => caller.may(Operation::ManageAccounts, ""),
    }
}

/// The change that a form asks for. A password and a removal are no changes of this kind: the
/// result is empty then.
fn requested_change(form: &ConsoleForm) -> Result<AccountChange, ProblemDetails> {
    let mut change = AccountChange {
        made_at: Some(made_at(form)?),
        ..AccountChange::default()
    };
    match form.field("action") {
        "role" => {
            let role = chosen_role(form.field("role"))?;
            change.roles.push(RoleChange::Application(
                form.field("application").to_owned(),
                role,
            ));
        }
        "fleet" => change
            .roles
            .push(RoleChange::Fleet(chosen_fleet_role(form.field("role"))?)),
        "disable" => change.disabled = Some(true),
        "enable" => change.disabled = Some(false),
        "password" | "remove" => {}
        _ => {
            return Err(ProblemDetails::bad_request(
                "the form asks for nothing that there is",
            ));
        }
    }
    Ok(change)
}

/// The change that a form asks for.
struct PersonChange<'a> {
    name: &'a str,
    wanted: AccountChange,
    /// In place of the account's own.
    password: Option<HashedPassword>,
}

impl PersonChange<'_> {
    /// Changes the account, and returns the details for the audit log.
    async fn apply(
        &self,
        change: &mut PeopleChange<'_>,
        form: &ConsoleForm,
    ) -> Result<String, PeopleError> {
        let before = change.account(self.name).await?;
        if self.wanted.made_at != Some(before.created_at) {
            return Err(PeopleError::Changed(self.name.to_owned()));
        }
        if let Some(password) = &self.password {
            let tokens = earlier_tokens(form);
            change.set_password(self.name, password, tokens).await?;
            return Ok(format!("a new password{}", and_tokens(tokens)));
        }
        if form.field("action") == "remove" {
            change.remove(self.name).await?;
            return Ok(String::new());
        }
        let changed = change.change(self.name, &self.wanted).await?;
        let mut changes = Vec::new();
        for role in &self.wanted.roles {
            changes.push(show_role_change(role, &before.rights, &changed.rights));
        }
        Ok(changes.join("; "))
    }
}

impl PersonPage {
    async fn new(
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
        let mut owned = if manages_accounts {
            applications(console, &account.rights).await?
        } else {
            caller.rights.applications.keys().cloned().collect()
        };
        owned.retain(|name| caller.may(Operation::ManageRights, name).is_ok());
        let state = if account.disabled {
            "disabled"
        } else {
            "active"
        };
        let mut facts = vec![
            ("Name", account.display_name),
            ("Roles", show_rights(&rights)),
            (
                "Signs in by",
                sign_in(account.has_password, account.subject.is_some()).to_owned(),
            ),
            ("State", state.to_owned()),
            ("Made", short_time(&account.created_at.to_string())),
            ("Changed", short_time(&account.changed_at.to_string())),
        ];
        facts.retain(|(_, value)| !value.is_empty());
        Ok(Self {
            shell: visitor.shell(console, "People", name),
            problem,
            name: name.to_owned(),
            action: format!("/console/people/{}", encode(name)),
            facts,
            owned: owned.into_iter().collect(),
            fleet: account.rights.fleet.map_or("none", fleet_word),
            is_disabled: account.disabled,
            manages_accounts,
            is_own: name == caller.name,
            written: WrittenForm::default(),
            presence: PresencePart::new(console, visitor).await?,
            made_at: account.created_at.millis(),
        })
    }

    /// Whether the visitor gives roles at all.
    fn gives_roles(&self) -> bool {
        self.manages_accounts || !self.owned.is_empty()
    }
}

/// The applications that there are, and those that somebody still has a role in.
async fn applications(
    console: &ConsoleState,
    rights: &Rights,
) -> Result<BTreeSet<String>, ProblemDetails> {
    let mut names: BTreeSet<String> = rights.applications.keys().cloned().collect();
    if let Some(policies) = &console.team.policies {
        let state = policies
            .database
            .state(None)
            .await
            .map_err(database_problem)?;
        names.extend(state.applications().into_iter().map(str::to_owned));
    }
    Ok(names)
}

/// The time at which the account of a form was made.
fn made_at(form: &ConsoleForm) -> Result<UnixTime, ProblemDetails> {
    match form.field("made_at").parse() {
        Ok(millis) => Ok(UnixTime::from_millis(millis)),
        Err(_) => {
            let problem = ProblemDetails::bad_request("the form does not say whom it is about");
            Err(problem.hint("load the page anew"))
        }
    }
}

fn sign_in(has_password: bool, has_subject: bool) -> &'static str {
    match (has_password, has_subject) {
        (true, true) => "password or OpenID Connect",
        (true, false) => "password",
        (false, true) => "OpenID Connect",
        (false, false) => "nothing yet: it has no password",
    }
}

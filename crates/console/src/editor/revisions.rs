//! `/console/revisions`: the history of policies, a revision with what it changed, and taking it
//! back.

use askama::Template;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use tollgate_policies::database::Page;
use tollgate_policies::model::{ObjectChange, ObjectKind};
use tollgate_policies::people::Operation;

use super::shown::{ShownChanges, ShownRevision, service};
use crate::forms::ConsoleForm;
use crate::pages::list::encode;
use crate::shell::{Shell, Visitor, page, page_with};
use crate::state::ConsoleState;
use tollgate_admin::problem_details::ProblemDetails;
use tollgate_team::api::extract::ShapedQuery;
use tollgate_team::api::reading::PolicyReader;
use tollgate_team::api::revisions::{find, find_page};
use tollgate_team::caller::Caller;
use tollgate_team::changes::proposal::{Proposal, undoing};
use tollgate_team::views::policies::RevisionView;

#[derive(Template)]
#[template(path = "revisions.html")]
struct RevisionsPage {
    shell: Shell,
    revisions: Vec<ShownRevision>,
    before: Option<u64>,
}

#[derive(Template)]
#[template(path = "revision.html")]
struct RevisionPage {
    shell: Shell,
    revision: ShownRevision,
    changes: ShownChanges,
    /// The revision that this node runs.
    running: u64,
    problem: Option<ProblemDetails>,
    is_done: bool,
    /// The application that it changed, where there still is one to go on with.
    application: Option<Link>,
    may_undo: bool,
}

struct Link {
    name: String,
    href: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PageQuery {
    before: Option<u64>,
}

/// `GET /console/revisions`
pub async fn list(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    caller: Caller,
    ShapedQuery(query): ShapedQuery<PageQuery>,
) -> Response {
    let asked = async {
        let found = find_page(
            service(&console)?,
            &caller,
            Page {
                before: query.before,
                limit: 50,
            },
        )
        .await?;
        let shell = visitor.shell(&console, "History", "History");
        let revisions = found.revisions.iter().map(Into::into).collect();
        Ok(RevisionsPage {
            shell,
            revisions,
            before: found.before,
        })
    };
    match asked.await {
        Ok(found) => page(&found),
        Err(problem) => console.refuse(&visitor, &problem),
    }
}

/// `GET /console/revisions/{revision}`
pub async fn show(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    caller: Caller,
    Path(number): Path<u64>,
    RawQuery(query): RawQuery,
) -> Response {
    let notice = FormNotice {
        is_done: query.as_deref() == Some("done"),
        problem: None,
    };
    match answer(&console, &visitor, &caller, number, notice).await {
        Ok(shown) => shown,
        Err(problem) => console.refuse(&visitor, &problem),
    }
}

/// The outcome of a form, for the page that comes after it.
struct FormNotice {
    is_done: bool,
    problem: Option<ProblemDetails>,
}

/// The page of a revision.
async fn answer(
    console: &ConsoleState,
    visitor: &Visitor,
    caller: &Caller,
    number: u64,
    notice: FormNotice,
) -> Result<Response, ProblemDetails> {
    let console = console.clone();
    let visitor = visitor.clone();
    let reader = PolicyReader::new(&console.team, caller)?;
    reader
        .answer(async move |reader| {
            let found = RevisionPage::find(&console, &visitor, &reader.caller, number).await?;
            let head = notice.problem.as_ref().map(ProblemDetails::head);
            let shown = RevisionPage {
                is_done: notice.is_done,
                problem: notice.problem,
                ..found
            };
            Ok(page_with(&shown, head))
        })
        .await
}

/// `POST /console/revisions/{revision}`: takes it back.
pub async fn undo(
    State(console): State<ConsoleState>,
    caller: Caller,
    Path(number): Path<u64>,
    form: ConsoleForm,
) -> Response {
    let problem = match take_back(&console, &caller, &form, number).await {
        Ok(made) => {
            return Redirect::to(&format!("/console/revisions/{made}?done")).into_response();
        }
        Err(problem) => problem,
    };
    let notice = FormNotice {
        is_done: false,
        problem: Some(problem.clone()),
    };
    match answer(&console, &form.visitor, &caller, number, notice).await {
        Ok(shown) => shown,
        Err(_) => console.refuse(&form.visitor, &problem),
    }
}

/// The number of the revision that undoes it.
async fn take_back(
    console: &ConsoleState,
    caller: &Caller,
    form: &ConsoleForm,
    number: u64,
) -> Result<u64, ProblemDetails> {
    let policies = service(console)?;
    let reason = form.field("reason").to_owned();
    if reason.is_empty() {
        return Err(
            ProblemDetails::bad_request("a change wants a reason").hint("say why it is taken back")
        );
    }
    find(policies, caller, number).await?;
    let edits = undoing(policies, number).await?;
    console.tokens.spend(form.token)?;
    let accepted = Proposal {
        edits,
        reason,
        dry_run: false,
    }
    .submit(policies, caller)
    .await?;
    Ok(accepted.revision.map_or(number, |revision| revision.number))
}

impl RevisionPage {
    async fn find(
        console: &ConsoleState,
        visitor: &Visitor,
        caller: &Caller,
        number: u64,
    ) -> Result<Self, ProblemDetails> {
        let policies = service(console)?;
        let (revision, changes) = find(policies, caller, number).await?;
        let edits = undoing(policies, number).await;
        let may_undo = match edits {
            Ok(edits) => edits.iter().all(|edit| {
                let operation = Operation::new(edit);
                caller.may(operation, edit.id.belongs_to()).is_ok()
            }),
            Err(_) => false,
        };
        Ok(Self {
            shell: visitor.shell(console, "History", &format!("Revision {number}")),
            revision: ShownRevision::from(&RevisionView::from(revision)),
            changes: changes.as_slice().into(),
            running: policies.running().revision,
            problem: None,
            is_done: false,
            application: changes.iter().find_map(application_of),
            may_undo,
        })
    }
}

fn application_of(change: &ObjectChange) -> Option<Link> {
    if change.id.kind() == ObjectKind::Application && change.after.is_none() {
        return None;
    }
    let name = change.id.belongs_to();
    Some(Link {
        name: name.to_owned(),
        href: format!("/console/applications/{}", encode(name)),
    })
}

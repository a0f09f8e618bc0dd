//! `/console/applications`: the applications that the caller may look at.

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;
use serde_json::Value as Json;
use tollgate_policies::model::{ObjectKind, PolicyState};
use tollgate_policies::people::Operation;
use tollgate_team::database_problem::database_problem;

use super::shown::service;
use crate::numbers::short_time;
use crate::pages::list::{ListQuery, Paging, encode};
use crate::shell::{Shell, Visitor, page};
use crate::state::ConsoleState;
use tollgate_admin::problem_details::ProblemDetails;
use tollgate_team::caller::Caller;

#[derive(Template)]
#[template(path = "applications.html")]
struct ApplicationsPage {
    shell: Shell,
    rows: Vec<ApplicationRow>,
    paging: Paging,
    revision: u64,
    running: u64,
    may_add: bool,
}

struct ApplicationRow {
    name: String,
    href: String,
    description: String,
    strategies: usize,
    clients: usize,
    changed: String,
}

/// `GET /console/applications`
pub async fn list(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> Response {
    match find(&console, &visitor, &caller, &query).await {
        Ok(found) => page(&found),
        Err(problem) => console.refuse(&visitor, &problem),
    }
}

impl ApplicationRow {
    fn new(state: &PolicyState, name: &str) -> Self {
        let mut row = Self {
            href: format!("/console/applications/{}", encode(name)),
            description: String::new(),
            strategies: state.of(ObjectKind::Strategy, name).count(),
            clients: state.of(ObjectKind::Assignment, name).count(),
            changed: String::new(),
            name: name.to_owned(),
        };
        let mut applications = state.of_kind(ObjectKind::Application);
        if let Some(own) = applications.find(|object| object.id.name() == name) {
            let time = short_time(&own.changed_at.to_string());
            row.changed = format!("{}, {time}", own.changed_by);
            if let Some(Json::String(description)) = own.body.get("description") {
                row.description.clone_from(description);
            }
        }
        row
    }
}

async fn find(
    console: &ConsoleState,
    visitor: &Visitor,
    caller: &Caller,
    query: &ListQuery,
) -> Result<ApplicationsPage, ProblemDetails> {
    let policies = service(console)?;
    let state = policies
        .database
        .state(None)
        .await
        .map_err(database_problem)?;
    let mut names = Vec::from_iter(state.applications());
    names.retain(|name| caller.may(Operation::View, name).is_ok());
    let (names, paging) = query.select("/console/applications", names, |name| name);
    let mut rows = Vec::new();
    for name in names {
        rows.push(ApplicationRow::new(&state, name));
    }
    Ok(ApplicationsPage {
        rows,
        paging,
        revision: state.revision(),
        running: policies.running().revision,
        may_add: caller.rights.is_admin(),
        shell: visitor.shell(console, "Applications", "Applications"),
    })
}

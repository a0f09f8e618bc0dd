//! `/console/applications`: the applications that the caller may look at.

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;
use tollgate_policies::model::ObjectKind;
use tollgate_policies::people::Operation;

use super::shown::service;
use crate::admin::problem_details::ProblemDetails;
use crate::console::numbers::short_time;
use crate::console::pages::list::{ListQuery, Paging, encode};
use crate::console::shell::{Shell, Visitor, page};
use crate::console::state::ConsoleState;
use crate::team::caller::Caller;

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

async fn find(
    console: &ConsoleState,
    visitor: &Visitor,
    caller: &Caller,
    query: &ListQuery,
) -> Result<ApplicationsPage, ProblemDetails> {
    let policies = service(console)?;
    let state = policies.database.state(None).await?;
    let names = state
        .applications()
        .into_iter()
        .filter(|name| caller.may(Operation::View, name).is_ok());
    let (names, paging) = query.select("/console/applications", names.collect(), |name| name);
    let rows = names.into_iter().map(|name| {
        let own = state
            .of_kind(ObjectKind::Application)
            .find(|object| object.id.name() == name);
        let description =
            own.and_then(|object| object.body.get("description")?.as_str().map(str::to_owned));
        ApplicationRow {
            href: format!("/console/applications/{}", encode(name)),
            description: description.unwrap_or_default(),
            strategies: state.of(ObjectKind::Strategy, name).count(),
            clients: state.of(ObjectKind::Assignment, name).count(),
            changed: own.map_or_else(String::new, |object| {
                format!(
                    "{}, {}",
                    object.changed_by,
                    short_time(&object.changed_at.to_string())
                )
            }),
            name: name.to_owned(),
        }
    });
    Ok(ApplicationsPage {
        rows: rows.collect(),
        paging,
        revision: state.revision(),
        running: policies.running().revision,
        may_add: caller.rights.is_admin(),
        shell: visitor.shell(console, "Applications", "Applications"),
    })
}

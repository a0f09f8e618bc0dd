//! `/console/applications/{application}`: all that an application has, and who made and changed it.

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use serde_json::Value as Json;
use tollgate_policies::model::{Object, ObjectId, ObjectKind, PolicyState};
use tollgate_policies::people::Operation;
use tollgate_team::database_problem::database_problem;

use super::fields::in_one_line;
use super::shown::service;
use crate::numbers::short_time;
use crate::pages::list::{ListQuery, encode};
use crate::shell::{Shell, Visitor, page};
use crate::state::ConsoleState;
use tollgate_admin::problem_details::ProblemDetails;
use tollgate_team::api::request::may_see;
use tollgate_team::caller::Caller;

/// The sections of the page: kind, title, one of its objects, and what that is.
const SECTIONS: [(ObjectKind, &str, &str, &str); 4] = [
    (
        ObjectKind::Resource,
        "Resources",
        "resource",
        "Routes of the file, or parts of them.",
    ),
    (
        ObjectKind::Strategy,
        "Strategies",
        "strategy",
        "Limits, and the resources that each counts.",
    ),
    (
        ObjectKind::Plan,
        "Plans",
        "plan",
        "Other rates for some clients.",
    ),
    (
        ObjectKind::ApiKey,
        "API keys",
        "key",
        "Those that its routes take. Of each, only the hash is kept.",
    ),
];

/// Objects of a kind that the page shows. Of keys there may be very many.
const MOST_ROWS: usize = 1_000;

/// Bytes of a value in a row, and names of limits: an object may have 64 KiB.
const MOST_OF_VALUE: usize = 256;
const MOST_NAMES: usize = 8;

#[derive(Template)]
#[template(path = "application.html")]
struct ApplicationPage {
    shell: Shell,
    name: String,
    description: String,
    /// The people who made and changed the application itself.
    stamps: Vec<(&'static str, String)>,
    edit: String,
    sections: Vec<ObjectSection>,
    clients: ClientSection,
}

struct ObjectSection {
    title: &'static str,
    one: &'static str,
    lead: &'static str,
    id: &'static str,
    rows: Vec<ObjectRow>,
    /// Objects that are not among the rows.
    more: usize,
    /// Empty: the caller may add none.
    add: String,
}

struct ObjectRow {
    name: String,
    href: String,
    what: String,
    created: String,
    changed: String,
}

/// The clients of an application that have a plan: there may be very many.
struct ClientSection {
    rows: Vec<ObjectRow>,
    q: String,
    path: String,
    page: usize,
    pages: usize,
    found: usize,
    all: usize,
    add: String,
}

/// `GET /console/applications/{application}`
pub async fn show(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    caller: Caller,
    Path(application): Path<String>,
    Query(query): Query<ListQuery>,
) -> Response {
    match find(&console, &visitor, &caller, &application, &query).await {
        Ok(found) => page(&found),
        Err(problem) => console.refuse(&visitor, &problem),
    }
}

async fn find(
    console: &ConsoleState,
    visitor: &Visitor,
    caller: &Caller,
    name: &str,
    query: &ListQuery,
) -> Result<ApplicationPage, ProblemDetails> {
    caller.may(Operation::View, name)?;
    let state = service(console)?
        .database
        .state(None)
        .await
        .map_err(database_problem)?;
    if !state.applications().contains(name) {
        return Err(ProblemDetails::unknown_policy(format!(
            "there is no application \"{}\"",
            name.escape_debug()
        ))
        .hint("the page Applications has those that there are"));
    }
    let own = match ObjectId::of_application(name) {
        Ok(id) => state.get(&id),
        Err(_) => None,
    };
    let mut description = "";
    let mut stamps = Vec::new();
    if let Some(own) = own {
        description = own.body["description"].as_str().unwrap_or_default();
        stamps = vec![("Created", created(own)), ("Changed", changed(own))];
    }
    let mut sections = Vec::new();
    for (kind, title, one, lead) in SECTIONS {
        if may_see(caller, kind, name).is_ok() {
            sections.push(ObjectSection {
                title,
                one,
                lead,
                id: ObjectKind::plural(kind),
                rows: state
                    .of(kind, name)
                    .take(MOST_ROWS)
                    .map(|object| ObjectRow::new(object))
                    .collect(),
                more: state.of(kind, name).skip(MOST_ROWS).count(),
                add: add_path(caller, kind, name),
            });
        }
    }
    let itself = ObjectKind::Application;
    Ok(ApplicationPage {
        name: name.to_owned(),
        description: description.to_owned(),
        stamps,
        edit: if may_edit(caller, itself, name) {
            edit_path(name, itself, name)
        } else {
            String::new()
        },
        sections,
        clients: ClientSection::new(&state, caller, name, query),
        shell: visitor.shell(console, "Applications", name),
    })
}

impl ClientSection {
    fn new(state: &PolicyState, caller: &Caller, name: &str, query: &ListQuery) -> Self {
        let clients: Vec<_> = state.of(ObjectKind::Assignment, name).collect();
        let (found, paging) = query.select("", clients, |object| object.id.name());
        Self {
            rows: found
                .into_iter()
                .map(|object| ObjectRow::new(object))
                .collect(),
            path: format!("/console/applications/{}", encode(name)),
            q: paging.q,
            page: paging.page,
            pages: paging.pages,
            found: paging.found,
            all: paging.all,
            add: add_path(caller, ObjectKind::Assignment, name),
        }
    }

    /// The address of another page of the list.
    fn page_path(&self, page: &usize) -> String {
        format!("{}?q={}&page={page}#clients", self.path, encode(&self.q))
    }
}

impl ObjectRow {
    fn new(object: &Object) -> Self {
        let id = &object.id;
        Self {
            what: summary(object),
            href: edit_path(id.belongs_to(), id.kind(), id.name()),
            name: id.name().to_owned(),
            created: created(object),
            changed: changed(object),
        }
    }
}

/// An object in a few words.
fn summary(object: &Object) -> String {
    let body = &object.body;
    match object.id.kind() {
        ObjectKind::Resource if has(body, "match") => format!("a part of {}", text(body, "route")),
        ObjectKind::Resource => text(body, "route"),
        ObjectKind::Strategy => {
            let holds = if has(body, "limit") {
                limit_summary(body, "limit")
            } else {
                "no limit".to_owned()
            };
            if has(body, "candidate") {
                format!(
                    "{holds}; tried out on {}: {}",
                    text(body, "candidate.on"),
                    limit_summary(body, "candidate.limit")
                )
            } else {
                holds
            }
        }
        ObjectKind::Assignment => text(body, "plan"),
        ObjectKind::ApiKey if has(body, "client") => text(body, "client"),
        ObjectKind::ApiKey => object.id.name().to_owned(),
        ObjectKind::Application | ObjectKind::Plan => match body["limits"].as_object() {
            Some(limits) => shown_of(limits.keys().map(String::as_str)),
            None => String::new(),
        },
    }
}

fn limit_summary(body: &Json, at: &str) -> String {
    let rate = text(body, &format!("{at}.rate"));
    let key = text(body, &format!("{at}.key"));
    format!("{rate} by {key}")
}

/// The value at a path with dots.
fn find_value<'a>(body: &'a Json, path: &str) -> Option<&'a Json> {
    path.split('.').try_fold(body, |body, step| body.get(step))
}

fn has(body: &Json, path: &str) -> bool {
    find_value(body, path).is_some_and(|found| !found.is_null())
}

fn text(body: &Json, path: &str) -> String {
    find_value(body, path).map_or_else(String::new, short)
}

/// A value in a line. A longer value is only there.
fn short(value: &Json) -> String {
    let length = value
        .as_str()
        .map_or_else(|| value.to_string().len(), str::len);
    if length > MOST_OF_VALUE {
        "…".to_owned()
    } else {
        in_one_line(value)
    }
}

/// The first of these names.
fn shown_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.take(MOST_NAMES + 1).collect();
    let shown = names
        .iter()
        .take(MOST_NAMES)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > MOST_NAMES {
        format!("{shown}, …")
    } else {
        shown
    }
}

fn created(object: &Object) -> String {
    format!(
        "{}, {}",
        object.created_by,
        short_time(&object.created_at.to_string())
    )
}

fn changed(object: &Object) -> String {
    format!(
        "{}, {}",
        object.changed_by,
        short_time(&object.changed_at.to_string())
    )
}

fn may_edit(caller: &Caller, kind: ObjectKind, application: &str) -> bool {
    caller.may(Operation::Change(kind), application).is_ok()
}

/// Where another object is made. Empty: the caller may not.
fn add_path(caller: &Caller, kind: ObjectKind, application: &str) -> String {
    if may_edit(caller, kind, application) {
        edit_path(application, kind, "")
    } else {
        String::new()
    }
}

/// Where an object is edited. Without a name: where a new one is made.
pub fn edit_path(application: &str, kind: ObjectKind, name: &str) -> String {
    let name = if name.is_empty() {
        String::new()
    } else {
        format!("&name={}", encode(name))
    };
    format!(
        "/console/edit?application={}&kind={}{name}",
        encode(application),
        kind.word()
    )
}

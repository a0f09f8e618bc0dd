//! `/policies/applications`: each object by itself, with who made and changed it.

use crate::database_problem::database_problem;
use axum::extract::{Path, State};
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use tollgate_policies::database::Page;
use tollgate_policies::model::{ObjectEdit, ObjectId, ObjectKind, PolicyState};
use tollgate_policies::people::Operation;

use super::reading::PolicyReader;
use super::request::{self, ChangeRequest, may_see, service};
use crate::Team;
use crate::api::extract::{JsonBody, ShapedQuery};
use crate::caller::Caller;
use crate::changes::proposal::Proposal;
use crate::views::policies::{
    ObjectHistoryView, PolicyChangeView, PolicyObjectView, RevisionChangesView,
};
use tollgate_admin::problem_details::{PrettyJson, ProblemDetails};

/// Objects on a page of a list at most.
const MOST_LISTED: usize = 1_000;

/// The query of a list of objects.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ObjectsQuery {
    at: Option<u64>,
    /// A part of the name.
    q: String,
    /// The last name of the page before.
    after: String,
    limit: Option<usize>,
}

/// The query of an object.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ObjectQuery {
    at: Option<u64>,
}

/// The query of a history.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HistoryQuery {
    before: Option<u64>,
    limit: Option<u32>,
}

impl From<HistoryQuery> for Page {
    fn from(query: HistoryQuery) -> Self {
        Self {
            before: query.before,
            limit: query.limit.unwrap_or(Self::default().limit),
        }
    }
}

/// `GET /policies/applications`: the applications
#[utoipa::path(
    get, path = "/policies/applications", operation_id = "listApplications", tag = "policies",
    params(("at" = Option<u64>, Query, description = "A revision; the newest if left out")),
    responses((status = 200, body = Vec<PolicyObjectView>, description = "Those that the caller may look at, by name"))
)]
pub async fn applications(
    State(team): State<Team>,
    caller: Caller,
    ShapedQuery(query): ShapedQuery<ObjectQuery>,
) -> Result<Response, ProblemDetails> {
    let reader = PolicyReader::new(&team, &caller)?;
    reader
        .answer(async move |reader| {
            let found = reader.visible(query.at).await?;
            let mut shown = Vec::new();
            for object in found.of_kind(ObjectKind::Application) {
                shown.push(PolicyObjectView::new(object));
            }
            Ok(PrettyJson(shown).into_response())
        })
        .await
}

/// `GET /policies/applications/{application}/{kind}`: objects of a kind
#[utoipa::path(
    get, path = "/policies/applications/{application}/{kind}", operation_id = "listObjects", tag = "policies",
    params(
        ("application" = String, Path, description = "The application's name"),
        ("kind" = String, Path, description = "resources, strategies, plans, assignments or api_keys"),
        ("at" = Option<u64>, Query, description = "A revision; the newest if left out"),
        ("q" = Option<String>, Query, description = "A part of the name"),
        ("after" = Option<String>, Query, description = "The last name of the page before"),
        ("limit" = Option<usize>, Query, maximum = 1000, description = "How many; 1000 if left out")
    ),
    responses((status = 200, body = Vec<PolicyObjectView>, description = "By name"))
)]
pub async fn list(
    State(team): State<Team>,
    caller: Caller,
    Path((application, plural)): Path<(String, String)>,
    ShapedQuery(query): ShapedQuery<ObjectsQuery>,
) -> Result<Response, ProblemDetails> {
    let reader = PolicyReader::new(&team, &caller)?;
    caller.may(Operation::View, &application)?;
    let kind = request::kind(&plural)?;
    may_see(&caller, kind, &application)?;
    reader
        .answer(async move |reader| {
            let found = reader.state(query.at).await?;
            check_application(&found, &application)?;
            let limit = query.limit.unwrap_or(MOST_LISTED).min(MOST_LISTED);
            let mut shown = Vec::new();
            for object in found.of(kind, &application) {
                let name = object.id.name();
                if name > query.after.as_str() && name.contains(&query.q) {
                    shown.push(PolicyObjectView::new(object));
                }
                if shown.len() == limit {
                    break;
                }
            }
            Ok(PrettyJson(shown).into_response())
        })
        .await
}

/// Whether there is an application, or what is left of one.
fn check_application(found: &PolicyState, application: &str) -> Result<(), ProblemDetails> {
    let own = request::id(application, None)?;
    let mut kinds = ObjectKind::ALL.into_iter();
    if found.get(&own).is_some() || kinds.any(|kind| found.of(kind, application).next().is_some()) {
        return Ok(());
    }
    let absent = format!("there is no {own} at revision {}", found.revision());
    Err(ProblemDetails::unknown_policy(absent).hint("GET /policies/applications lists them"))
}

/// An object that a path names: of an application, or the application itself.
#[derive(Debug, Deserialize)]
pub struct ObjectPath {
    application: String,
    kind: Option<String>,
    name: Option<String>,
}

impl ObjectPath {
    fn id(&self) -> Result<ObjectId, ProblemDetails> {
        request::id(
            &self.application,
            self.kind.as_deref().zip(self.name.as_deref()),
        )
    }
}

/// `GET /policies/applications/{application}/{kind}/{name}`: an object
#[utoipa::path(
    get, path = "/policies/applications/{application}/{kind}/{name}", operation_id = "readObject", tag = "policies",
    params(
        ("application" = String, Path, description = "The application's name"),
        ("kind" = String, Path, description = "resources, strategies, plans, assignments or api_keys"),
        ("name" = String, Path, description = "The object's name; of an assignment, the client"),
        ("at" = Option<u64>, Query, description = "A revision; the newest if left out")
    ),
    responses((status = 200, body = PolicyObjectView, description = "Its ETag is for a change that is made upon it"))
)]
pub async fn show(
    State(team): State<Team>,
    caller: Caller,
    Path(path): Path<ObjectPath>,
    ShapedQuery(query): ShapedQuery<ObjectQuery>,
) -> Result<Response, ProblemDetails> {
    let reader = PolicyReader::new(&team, &caller)?;
    let id = path.id()?;
    may_see(&caller, id.kind(), id.belongs_to())?;
    if query.at.is_none() {
        return object(&reader.state(None).await?, &id);
    }
    // A former revision is read as a whole for one of its objects.
    reader
        .answer(async move |reader| object(&reader.state(query.at).await?, &id))
        .await
}

fn object(found: &PolicyState, id: &ObjectId) -> Result<Response, ProblemDetails> {
    let object = found.get(id).ok_or_else(|| {
        ProblemDetails::unknown_policy(format!("there is no {id} at revision {}", found.revision()))
            .hint(format!(
                "GET /policies/applications lists them; its history: …/{}/history",
                id.name()
            ))
    })?;
    let etag = format!("\"{}\"", object.version());
    Ok(([(ETAG, etag)], PrettyJson(PolicyObjectView::new(object))).into_response())
}

/// `PUT /policies/applications/{application}/{kind}/{name}`: makes or changes an object
#[utoipa::path(
    put, path = "/policies/applications/{application}/{kind}/{name}", operation_id = "writeObject", tag = "policies",
    params(
        ("application" = String, Path, description = "The application's name"),
        ("kind" = String, Path, description = "resources, strategies, plans, assignments or api_keys"),
        ("name" = String, Path, description = "The object's name; of an assignment, the client"),
        ("If-Match" = Option<String>, Header, description = "The ETag that was seen; *: whatever there is"),
        ("If-None-Match" = Option<String>, Header, description = "*: it is new"),
        ("reason" = Option<String>, Query, description = "Why, for the history; also as X-Tollgate-Reason"),
        ("dry_run" = Option<bool>, Query, description = "Checks it and says what would change, and changes nothing")
    ),
    request_body(content = Object, description = "Its body, in the words of the file"),
    responses(
        (status = 200, body = RevisionChangesView, description = "The new revision and its changes"),
        (status = 409, body = ProblemDetails, content_type = "application/problem+json", description = "Somebody else was faster"),
        (status = 413, body = ProblemDetails, content_type = "application/problem+json", description = "The body is longer than is read"),
        (status = 422, body = ProblemDetails, content_type = "application/problem+json", description = "The policies would not work: every mistake"),
        (status = 428, body = ProblemDetails, content_type = "application/problem+json", description = "It does not say what it is made upon")
    )
)]
pub async fn write(
    State(team): State<Team>,
    caller: Caller,
    Path(path): Path<ObjectPath>,
    request: ChangeRequest,
    JsonBody(body): JsonBody<Value>,
) -> Result<PrettyJson<RevisionChangesView>, ProblemDetails> {
    change(&team, &caller, &path, &request, Some(body)).await
}

/// `DELETE /policies/applications/{application}/{kind}/{name}`: takes an object away
#[utoipa::path(
    delete, path = "/policies/applications/{application}/{kind}/{name}", operation_id = "deleteObject", tag = "policies",
    params(
        ("application" = String, Path, description = "The application's name"),
        ("kind" = String, Path, description = "resources, strategies, plans, assignments or api_keys"),
        ("name" = String, Path, description = "The object's name; of an assignment, the client"),
        ("If-Match" = String, Header, description = "The ETag that was seen; *: whatever there is"),
        ("reason" = Option<String>, Query, description = "Why, for the history; also as X-Tollgate-Reason"),
        ("dry_run" = Option<bool>, Query, description = "Checks it and says what would change, and changes nothing")
    ),
    responses(
        (status = 200, body = RevisionChangesView, description = "The new revision and its changes"),
        (status = 409, body = ProblemDetails, content_type = "application/problem+json", description = "Somebody else was faster"),
        (status = 422, body = ProblemDetails, content_type = "application/problem+json", description = "Something else still needs it")
    )
)]
pub async fn remove(
    State(team): State<Team>,
    caller: Caller,
    Path(path): Path<ObjectPath>,
    request: ChangeRequest,
) -> Result<PrettyJson<RevisionChangesView>, ProblemDetails> {
    change(&team, &caller, &path, &request, None).await
}

async fn change(
    team: &Team,
    caller: &Caller,
    path: &ObjectPath,
    ChangeRequest { query, headers }: &ChangeRequest,
    body: Option<Value>,
) -> Result<PrettyJson<RevisionChangesView>, ProblemDetails> {
    let policies = service(team)?;
    let edit = ObjectEdit {
        id: path.id()?,
        expected: request::expected(headers)?,
        body,
    };
    let proposal = Proposal {
        edits: vec![edit],
        reason: query.reason(headers),
        dry_run: query.dry_run,
    };
    Ok(PrettyJson(proposal.submit(policies, caller).await?.into()))
}

/// `GET /policies/applications/{application}/{kind}/{name}/history`: what became of an object
#[utoipa::path(
    get, path = "/policies/applications/{application}/{kind}/{name}/history", operation_id = "objectHistory", tag = "policies",
    params(
        ("application" = String, Path, description = "The application's name"),
        ("kind" = String, Path, description = "resources, strategies, plans, assignments or api_keys"),
        ("name" = String, Path, description = "The object's name; of an assignment, the client"),
        ("before" = Option<u64>, Query, description = "The last revision of the page before"),
        ("limit" = Option<u32>, Query, maximum = 500, description = "How many; 50 if left out")
    ),
    responses((status = 200, body = Vec<ObjectHistoryView>, description = "Newest first"))
)]
pub async fn history(
    State(team): State<Team>,
    caller: Caller,
    Path(path): Path<ObjectPath>,
    ShapedQuery(query): ShapedQuery<HistoryQuery>,
) -> Result<Response, ProblemDetails> {
    let reader = PolicyReader::new(&team, &caller)?;
    let id = path.id()?;
    may_see(&caller, id.kind(), id.belongs_to())?;
    reader
        .answer(async move |reader| {
            let found = reader.policies.database.history_of(&id, query.into()).await;
            let found = found.map_err(database_problem)?;
            let mut shown = Vec::with_capacity(found.len());
            for entry in found {
                shown.push(ObjectHistoryView {
                    change: PolicyChangeView::new(&entry.change),
                    revision: entry.revision.into(),
                });
            }
            Ok(PrettyJson(shown).into_response())
        })
        .await
}

/// `GET /policies/applications/{application}`: the object of an application
#[utoipa::path(
    get, path = "/policies/applications/{application}", operation_id = "readApplication", tag = "policies",
    params(
        ("application" = String, Path, description = "The application's name"),
        ("at" = Option<u64>, Query, description = "A revision; the newest if left out")
    ),
    responses((status = 200, body = PolicyObjectView, description = "Its ETag is for a change that is made upon it"))
)]
pub async fn show_application(
    team: State<Team>,
    caller: Caller,
    path: Path<ObjectPath>,
    query: ShapedQuery<ObjectQuery>,
) -> Result<Response, ProblemDetails> {
    show(team, caller, path, query).await
}

/// `PUT /policies/applications/{application}`: makes or changes an application
#[utoipa::path(
    put, path = "/policies/applications/{application}", operation_id = "writeApplication", tag = "policies",
    params(
        ("application" = String, Path, description = "The application's name"),
        ("If-Match" = Option<String>, Header, description = "The ETag that was seen; *: whatever there is"),
        ("If-None-Match" = Option<String>, Header, description = "*: it is new"),
        ("reason" = Option<String>, Query, description = "Why, for the history; also as X-Tollgate-Reason"),
        ("dry_run" = Option<bool>, Query, description = "Checks it and says what would change, and changes nothing")
    ),
    request_body(content = Object, description = "Its body, in the words of the file"),
    responses(
        (status = 200, body = RevisionChangesView, description = "The new revision and its changes"),
        (status = 409, body = ProblemDetails, content_type = "application/problem+json", description = "Somebody else was faster"),
        (status = 413, body = ProblemDetails, content_type = "application/problem+json", description = "The body is longer than is read"),
        (status = 422, body = ProblemDetails, content_type = "application/problem+json", description = "The policies would not work: every mistake"),
        (status = 428, body = ProblemDetails, content_type = "application/problem+json", description = "It does not say what it is made upon")
    )
)]
pub async fn write_application(
    team: State<Team>,
    caller: Caller,
    path: Path<ObjectPath>,
    request: ChangeRequest,
    body: JsonBody<Value>,
) -> Result<PrettyJson<RevisionChangesView>, ProblemDetails> {
    write(team, caller, path, request, body).await
}

/// `DELETE /policies/applications/{application}`: takes an application away, which must have
/// nothing left
#[utoipa::path(
    delete, path = "/policies/applications/{application}", operation_id = "deleteApplication", tag = "policies",
    params(
        ("application" = String, Path, description = "The application's name"),
        ("If-Match" = String, Header, description = "The ETag that was seen; *: whatever there is"),
        ("reason" = Option<String>, Query, description = "Why, for the history; also as X-Tollgate-Reason"),
        ("dry_run" = Option<bool>, Query, description = "Checks it and says what would change, and changes nothing")
    ),
    responses(
        (status = 200, body = RevisionChangesView, description = "The new revision and its changes"),
        (status = 409, body = ProblemDetails, content_type = "application/problem+json", description = "Somebody else was faster"),
        (status = 422, body = ProblemDetails, content_type = "application/problem+json", description = "Something else still needs it")
    )
)]
pub async fn remove_application(
    team: State<Team>,
    caller: Caller,
    path: Path<ObjectPath>,
    request: ChangeRequest,
) -> Result<PrettyJson<RevisionChangesView>, ProblemDetails> {
    remove(team, caller, path, request).await
}

//! `/policies/revisions`: changes with their authors and reasons; and changes of several objects at
//! once.

use crate::database_problem::database_problem;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tollgate_policies::database::Page;
use tollgate_policies::model::{ObjectChange, ObjectEdit, Revision};

use super::objects::HistoryQuery;
use super::reading::PolicyReader;
use super::request::{ChangeQuery, service, visible_changes};
use crate::Team;
use crate::apart::apart;
use crate::api::extract::{JsonBody, RevisionNumber, ShapedQuery};
use crate::caller::Caller;
use crate::changes::proposal::{Proposal, reverting, undoing};
use crate::policies::service::PolicyService;
use crate::views::policies::{PolicyChangeView, RevisionChangesView, RevisionsView};
use tollgate_admin::problem_details::{PrettyJson, ProblemDetails};

/// Edits that become one revision.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WrittenDraft {
    /// Each with `id` (`kind`, `application`, `name`), `expected` (the revision of the object that
    /// was seen, `"absent"` or `"any"`) and `body` (`null` takes the object away).
    #[schema(value_type = Vec<Object>)]
    edits: Vec<ObjectEdit>,
}

/// The query of a comparison.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiffQuery {
    from: u64,
    to: Option<u64>,
}

/// Revisions of one page for somebody who sees only part of them.
const MOST_COMPARED: u32 = 50;

/// `GET /policies/revisions`: the history, newest first
#[utoipa::path(
    get, path = "/policies/revisions", operation_id = "listRevisions", tag = "policies",
    params(
        ("before" = Option<u64>, Query, description = "The last revision of the page before"),
        ("limit" = Option<u32>, Query, maximum = 500, description = "How many; 50 if left out, and at most for somebody without a role in the fleet")
    ),
    responses((status = 200, body = RevisionsView, description = "Those that changed something that the caller may look at"))
)]
pub async fn list(
    State(team): State<Team>,
    caller: Caller,
    ShapedQuery(query): ShapedQuery<HistoryQuery>,
) -> Result<PrettyJson<RevisionsView>, ProblemDetails> {
    find_page(service(&team)?, &caller, query.into())
        .await
        .map(PrettyJson)
}

/// A page of the history, as far as the caller may look at it.
///
/// # Errors
/// When the database cannot be asked.
pub async fn find_page(
    policies: &PolicyService,
    caller: &Caller,
    page: Page,
) -> Result<RevisionsView, ProblemDetails> {
    let all = sees_everything(caller);
    // For others each revision is compared with the one before, to find what they may look at: few
    // at a time.
    let _place = if all {
        None
    } else {
        Some(policies.place_for_reading(&caller.name, false).await?)
    };
    let page = if all {
        page
    } else {
        Page {
            limit: page.limit.min(MOST_COMPARED),
            ..page
        }
    };
    let found = policies
        .database
        .history(page)
        .await
        .map_err(database_problem)?;
    let last = found
        .last()
        .map(|revision| revision.number)
        .filter(|number| *number > 1);
    let mut shown: Vec<Revision> = Vec::new();
    for revision in found {
        // A revision of what the caller may not look at is left out with its reason.
        if all
            || !changes_of(policies, caller, revision.number)
                .await?
                .is_empty()
        {
            shown.push(revision);
        }
    }
    Ok(RevisionsView {
        revisions: shown.into_iter().map(Into::into).collect(),
        before: last,
    })
}

fn sees_everything(caller: &Caller) -> bool {
    caller.rights.fleet.is_some()
}

async fn changes_of(
    policies: &PolicyService,
    caller: &Caller,
    number: u64,
) -> Result<Vec<ObjectChange>, ProblemDetails> {
    Ok(visible_changes(
        caller,
        policies
            .database
            .diff(number.saturating_sub(1), number)
            .await
            .map_err(database_problem)?,
    ))
}

/// `POST /policies/revisions`: changes several objects at once
#[utoipa::path(
    post, path = "/policies/revisions", operation_id = "commitDraft", tag = "policies",
    params(
        ("reason" = Option<String>, Query, description = "Why, for the history; also as X-Tollgate-Reason"),
        ("dry_run" = Option<bool>, Query, description = "Checks it and says what would change, and changes nothing")
    ),
    request_body(content = WrittenDraft),
    responses(
        (status = 200, body = RevisionChangesView, description = "The new revision and its changes"),
        (status = 409, body = ProblemDetails, content_type = "application/problem+json", description = "Somebody else was faster"),
        (status = 413, body = ProblemDetails, content_type = "application/problem+json", description = "The body is longer than is read"),
        (status = 422, body = ProblemDetails, content_type = "application/problem+json", description = "The policies would not work: every mistake")
    )
)]
pub async fn commit(
    State(team): State<Team>,
    caller: Caller,
    ShapedQuery(query): ShapedQuery<ChangeQuery>,
    headers: HeaderMap,
    JsonBody(draft): JsonBody<WrittenDraft>,
) -> Result<PrettyJson<RevisionChangesView>, ProblemDetails> {
    submit(&team, &caller, draft.edits, &query, &headers).await
}

/// `GET /policies/revisions/{revision}`: a revision and its changes
#[utoipa::path(
    get, path = "/policies/revisions/{revision}", operation_id = "readRevision", tag = "policies",
    params(("revision" = u64, Path, description = "Its number")),
    responses((status = 200, body = RevisionChangesView, description = "As far as the caller may look at it"))
)]
pub async fn show(
    State(team): State<Team>,
    caller: Caller,
    RevisionNumber(number): RevisionNumber,
) -> Result<Response, ProblemDetails> {
    let reader = PolicyReader::new(&team, &caller)?;
    reader
        .answer(async move |reader| {
            let (revision, changes) = find(&reader.policies, &reader.caller, number).await?;
            let shown = RevisionChangesView {
                revision: Some(revision.into()),
                changes: changes.iter().map(PolicyChangeView::new).collect(),
            };
            Ok(PrettyJson(shown).into_response())
        })
        .await
}

/// A revision and its changes, as far as the caller may look at them.
///
/// # Errors
/// When there is none, or nothing of it is for the caller.
pub async fn find(
    policies: &PolicyService,
    caller: &Caller,
    number: u64,
) -> Result<(Revision, Vec<ObjectChange>), ProblemDetails> {
    let revision = policies
        .database
        .revision(number)
        .await
        .map_err(database_problem)?;
    let changes = changes_of(policies, caller, number).await?;
    if changes.is_empty() && !sees_everything(caller) {
        return Err(ProblemDetails::unknown_policy(format!(
            "there is no revision {number} of what you may look at"
        )));
    }
    Ok((revision, changes))
}

/// `GET /policies/diff`: what differs between two revisions
#[utoipa::path(
    get, path = "/policies/diff", operation_id = "diffRevisions", tag = "policies",
    params(
        ("from" = u64, Query, description = "A revision; 0: before the first"),
        ("to" = Option<u64>, Query, description = "A revision; the newest if left out")
    ),
    responses((status = 200, body = Vec<PolicyChangeView>, description = "As far as the caller may look at it"))
)]
pub async fn diff(
    State(team): State<Team>,
    caller: Caller,
    ShapedQuery(query): ShapedQuery<DiffQuery>,
) -> Result<Response, ProblemDetails> {
    let reader = PolicyReader::new(&team, &caller)?;
    reader
        .answer(async move |reader| {
            let to = match query.to {
                Some(to) => to,
                None => reader.head().await?,
            };
            let changes = reader.changes(query.from, to).await?;
            let shown: Vec<_> = changes.iter().map(PolicyChangeView::new).collect();
            Ok(PrettyJson(shown).into_response())
        })
        .await
}

/// `POST /policies/revisions/{revision}/undo`: takes back what one revision changed
#[utoipa::path(
    post, path = "/policies/revisions/{revision}/undo", operation_id = "undoRevision", tag = "policies",
    params(
        ("revision" = u64, Path, description = "Its number"),
        ("reason" = Option<String>, Query, description = "Why, for the history; also as X-Tollgate-Reason"),
        ("dry_run" = Option<bool>, Query, description = "Checks it and says what would change, and changes nothing")
    ),
    responses(
        (status = 200, body = RevisionChangesView, description = "The new revision and its changes"),
        (status = 409, body = ProblemDetails, content_type = "application/problem+json", description = "Something of it was changed since")
    )
)]
pub async fn undo(
    State(team): State<Team>,
    caller: Caller,
    RevisionNumber(number): RevisionNumber,
    ShapedQuery(query): ShapedQuery<ChangeQuery>,
    headers: HeaderMap,
) -> Result<PrettyJson<RevisionChangesView>, ProblemDetails> {
    let policies = service(&team)?;
    find(policies, &caller, number).await?;
    let edits = undoing(policies, number).await?;
    submit(&team, &caller, edits, &query, &headers).await
}

/// `POST /policies/revisions/{revision}/revert`: makes the policies what they were at a revision
#[utoipa::path(
    post, path = "/policies/revisions/{revision}/revert", operation_id = "revertToRevision", tag = "policies",
    params(
        ("revision" = u64, Path, description = "Its number"),
        ("reason" = Option<String>, Query, description = "Why, for the history; also as X-Tollgate-Reason"),
        ("dry_run" = Option<bool>, Query, description = "Checks it and says what would change, and changes nothing")
    ),
    responses(
        (status = 200, body = RevisionChangesView, description = "The new revision and its changes"),
        (status = 409, body = ProblemDetails, content_type = "application/problem+json", description = "Somebody else was faster")
    )
)]
pub async fn revert(
    State(team): State<Team>,
    caller: Caller,
    RevisionNumber(number): RevisionNumber,
    ShapedQuery(query): ShapedQuery<ChangeQuery>,
    headers: HeaderMap,
) -> Result<PrettyJson<RevisionChangesView>, ProblemDetails> {
    find(service(&team)?, &caller, number).await?;
    let reader = PolicyReader::new(&team, &caller)?;
    let edits = apart("the look at the revision", async move || {
        let newest = reader.state(None).await?;
        Ok(reverting(&newest, &reader.state(Some(number)).await?))
    });
    submit(&team, &caller, edits.await?, &query, &headers).await
}

async fn submit(
    team: &Team,
    caller: &Caller,
    edits: Vec<ObjectEdit>,
    query: &ChangeQuery,
    headers: &HeaderMap,
) -> Result<PrettyJson<RevisionChangesView>, ProblemDetails> {
    let proposal = Proposal {
        edits,
        reason: query.reason(headers),
        dry_run: query.dry_run,
    };
    Ok(PrettyJson(
        proposal.submit(service(team)?, caller).await?.into(),
    ))
}

//! `/policies`: all policies as one document, out and in.

use crate::database_problem::database_problem;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use tokio::task::spawn_blocking;
use tollgate_policies::model::PolicyState;

use super::request::{reading_place, service, visible};
use crate::Team;
use crate::api::extract::{JsonBody, ShapedQuery};
use crate::caller::Caller;
use crate::changes::document::{self, ImportMode};
use crate::changes::proposal::Proposal;
use crate::views::policies::RevisionChangesView;
use tollgate_admin::browser_guard::REASON;
use tollgate_admin::problem_details::{PrettyJson, ProblemDetails};
use tollgate_admin::server::answers::count_until_sent;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DocumentQuery {
    at: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ImportQuery {
    mode: ImportMode,
    reason: String,
    dry_run: bool,
    upon: Option<String>,
}

/// `GET /policies`: all policies as one document, at a revision
#[utoipa::path(
    get, path = "/policies", operation_id = "exportPolicies", tag = "policies",
    params(("at" = Option<u64>, Query, description = "A revision; the newest if left out")),
    responses((status = 200, body = Object, description = "Applications that the caller may look at; the ETag is the revision and its mark"))
)]
pub async fn export(
    State(team): State<Team>,
    caller: Caller,
    ShapedQuery(query): ShapedQuery<DocumentQuery>,
) -> Result<Response, ProblemDetails> {
    let place = reading_place(&team, &caller).await?;
    let found = service(&team)?
        .database
        .state(query.at)
        .await
        .map_err(database_problem)?;
    let etag = format!("\"{}\"", found.position());
    let answer = (
        [(ETAG, etag)],
        PrettyJson(document::of_state(&visible(&caller, &found))),
    )
        .into_response();
    Ok(count_until_sent(answer, place))
}

/// `POST /policies`: makes the policies what a document says
#[utoipa::path(
    post, path = "/policies", operation_id = "importPolicies", tag = "policies",
    params(
        ("mode" = Option<String>, Query, description = "merge: what the document does not have stays; replace: it goes"),
        ("upon" = Option<String>, Query, description = "The ETag of the export that the document was made from, without quotes: what differs from that is changed, and what somebody else has changed since is a conflict"),
        ("reason" = Option<String>, Query, description = "Why, for the history; also as X-Tollgate-Reason"),
        ("dry_run" = Option<bool>, Query, description = "Checks it and says what would change, and changes nothing")
    ),
    request_body(content = Object, description = "What GET /policies answers with"),
    responses(
        (status = 200, body = RevisionChangesView, description = "The new revision and its changes"),
        (status = 409, body = ProblemDetails, content_type = "application/problem+json", description = "Somebody else was faster"),
        (status = 413, body = ProblemDetails, content_type = "application/problem+json", description = "The body is longer than is read"),
        (status = 422, body = ProblemDetails, content_type = "application/problem+json", description = "The policies would not work: every mistake")
    )
)]
pub async fn import(
    State(team): State<Team>,
    caller: Caller,
    ShapedQuery(query): ShapedQuery<ImportQuery>,
    headers: HeaderMap,
    JsonBody(written): JsonBody<Value>,
) -> Result<PrettyJson<RevisionChangesView>, ProblemDetails> {
    let policies = service(&team)?;
    // An application that the caller does not see is not theirs to take away.
    let newest = visible(
        &caller,
        &policies
            .database
            .state(None)
            .await
            .map_err(database_problem)?,
    );
    let base = match &query.upon {
        Some(seen) => Some(visible(&caller, &exported(&team, seen, &caller).await?)),
        None => None,
    };
    // A document of all policies would keep the other pages waiting.
    let edits =
        spawn_blocking(move || document::edits_upon(&written, base.as_ref(), &newest, query.mode))
            .await;
    let edits = edits.unwrap_or_else(|_| {
        Err(ProblemDetails::policies_away(
            "the reading of the document broke off",
        ))
    })?;
    let header = headers
        .get(REASON)
        .and_then(|reason| reason.to_str().ok())
        .unwrap_or_default();
    let reason = if query.reason.is_empty() {
        header.to_owned()
    } else {
        query.reason
    };
    let proposal = Proposal {
        edits,
        reason,
        dry_run: query.dry_run,
    };
    Ok(PrettyJson(proposal.submit(policies, &caller).await?.into()))
}

/// The policies as they were exported, at the revision that is `seen`: `12-5f3a` as the ETag has
/// it, or its number alone.
async fn exported(team: &Team, seen: &str, caller: &Caller) -> Result<PolicyState, ProblemDetails> {
    let number = seen.split_once('-').map_or(seen, |(number, _)| number);
    let Ok(number) = number.parse::<u64>() else {
        return Err(ProblemDetails::bad_request(
            "upon is the ETag of an export, such as 12-5f3a, or the number of a revision",
        ));
    };
    let _place = reading_place(team, caller).await?;
    let policies = service(team)?
        .database
        .state(Some(number))
        .await
        .map_err(database_problem)?;
    if seen.contains('-') && policies.position().to_string() != seen {
        let detail = format!(
            "revision {number} is not the one that was exported: the database was restored, or is another"
        );
        return Err(ProblemDetails::conflicting(detail));
    }
    Ok(policies)
}

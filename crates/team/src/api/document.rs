//! `/policies`: all policies as one document, out and in.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use tollgate_policies::model::PolicyState;

use super::reading::PolicyReader;
use super::request::service;
use crate::Team;
use crate::apart::apart;
use crate::api::extract::{JsonBody, ShapedQuery};
use crate::caller::Caller;
use crate::changes::document::{self, ImportMode};
use crate::changes::proposal::Proposal;
use crate::views::policies::RevisionChangesView;
use tollgate_admin::browser_guard::REASON;
use tollgate_admin::problem_details::{PrettyJson, ProblemDetails};

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
    let reader = PolicyReader::new(&team, &caller)?;
    reader
        .answer(async move |reader| {
            let found = reader.visible(query.at).await?;
            let etag = format!("\"{}\"", found.position());
            let document = PrettyJson(document::of_state(&found));
            Ok(([(ETAG, etag)], document).into_response())
        })
        .await
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
    let reader = PolicyReader::new(&team, &caller)?;
    let ImportQuery { mode, upon, .. } = query;
    // A document of all policies would keep the other pages waiting.
    let edits = apart("the reading of the document", async move || {
        // An application that the caller does not see is not theirs to take away.
        let newest = reader.visible(None).await?;
        let base = match &upon {
            Some(seen) => Some(exported(&reader, seen).await?),
            None => None,
        };
        document::edits_upon(&written, base.as_ref(), &newest, mode)
    })
    .await?;
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

/// The policies as they were exported to the caller, at the revision that is `seen`: `12-5f3a` as
/// the ETag has it, or its number alone.
async fn exported(reader: &PolicyReader, seen: &str) -> Result<PolicyState, ProblemDetails> {
    let number = seen.split_once('-').map_or(seen, |(number, _)| number);
    let Ok(number) = number.parse::<u64>() else {
        return Err(ProblemDetails::bad_request(
            "upon is the ETag of an export, such as 12-5f3a, or the number of a revision",
        ));
    };
    let _place = reader.place().await?;
    let policies = reader.visible(Some(number)).await?;
    if seen.contains('-') && policies.position().to_string() != seen {
        let detail = format!(
            "revision {number} is not the one that was exported: the database was restored, or is another"
        );
        return Err(ProblemDetails::conflicting(detail));
    }
    Ok(policies)
}

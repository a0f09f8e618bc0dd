//! The end of a strategy's candidate, as people ask for it: it becomes the limit, or it is taken
//! away.

use axum::extract::{Path, State};
use tollgate_policies::model::{Expected, ObjectEdit};
use tollgate_policies::people::Operation;

use super::reading::PolicyReader;
use super::request::{self, ChangeRequest};
use crate::Team;
use crate::caller::Caller;
use crate::changes::proposal::Proposal;
use crate::policies::candidate::CandidateEnd;
use crate::views::policies::RevisionChangesView;
use tollgate_admin::problem_details::{PrettyJson, ProblemDetails};

/// The application, the plural of the kind, and the name of a strategy.
type StrategyPath = Path<(String, String, String)>;

/// `POST /policies/applications/{application}/{kind}/{name}/promote`: makes a candidate the limit
#[utoipa::path(
    post, path = "/policies/applications/{application}/{kind}/{name}/promote", operation_id = "promoteCandidate",
    tag = "policies",
    params(
        ("application" = String, Path, description = "The application's name"),
        ("kind" = String, Path, description = "strategies"),
        ("name" = String, Path, description = "The strategy's name"),
        ("reason" = Option<String>, Query, description = "Why, for the history; also as X-Tollgate-Reason"),
        ("dry_run" = Option<bool>, Query, description = "Checks it and says what would change, and changes nothing")
    ),
    responses(
        (status = 200, body = RevisionChangesView, description = "The new revision and its changes"),
        (status = 409, body = ProblemDetails, content_type = "application/problem+json", description = "Somebody else was faster"),
        (status = 422, body = ProblemDetails, content_type = "application/problem+json", description = "The policies would not work: every mistake")
    )
)]
pub async fn promote(
    State(team): State<Team>,
    caller: Caller,
    path: StrategyPath,
    request: ChangeRequest,
) -> Result<PrettyJson<RevisionChangesView>, ProblemDetails> {
    end(&team, &caller, path, CandidateEnd::Promoted, &request).await
}

/// `POST /policies/applications/{application}/{kind}/{name}/abort`: takes a candidate away
#[utoipa::path(
    post, path = "/policies/applications/{application}/{kind}/{name}/abort", operation_id = "abortCandidate",
    tag = "policies",
    params(
        ("application" = String, Path, description = "The application's name"),
        ("kind" = String, Path, description = "strategies"),
        ("name" = String, Path, description = "The strategy's name"),
        ("reason" = Option<String>, Query, description = "Why, for the history; also as X-Tollgate-Reason"),
        ("dry_run" = Option<bool>, Query, description = "Checks it and says what would change, and changes nothing")
    ),
    responses(
        (status = 200, body = RevisionChangesView, description = "The new revision and its changes"),
        (status = 409, body = ProblemDetails, content_type = "application/problem+json", description = "Somebody else was faster")
    )
)]
pub async fn abort(
    State(team): State<Team>,
    caller: Caller,
    path: StrategyPath,
    request: ChangeRequest,
) -> Result<PrettyJson<RevisionChangesView>, ProblemDetails> {
    end(&team, &caller, path, CandidateEnd::Aborted, &request).await
}

async fn end(
    team: &Team,
    caller: &Caller,
    path: StrategyPath,
    end: CandidateEnd,
    ChangeRequest { query, headers }: &ChangeRequest,
) -> Result<PrettyJson<RevisionChangesView>, ProblemDetails> {
    let Path((application, kind, name)) = path;
    let reader = PolicyReader::new(team, caller)?;
    let id = request::id(&application, Some((&kind, &name)))?;
    caller.may(Operation::View, id.belongs_to())?;
    let found = reader.state(None).await?;
    let body = found
        .get(&id)
        .and_then(|object| Some((object.since, end.of(&object.body)?)));
    let (since, body) = body.ok_or_else(|| {
        ProblemDetails::unknown_policy(format!(
            "there is no {id} with a candidate at revision {}",
            found.revision()
        ))
        .hint("its history tells whether it was promoted or taken away")
    })?;
    let edit = ObjectEdit {
        id,
        expected: Expected::Revision(since),
        body: Some(body),
    };
    let proposal = Proposal {
        edits: vec![edit],
        reason: query.reason(headers),
        dry_run: query.dry_run,
    };
    Ok(PrettyJson(
        proposal.submit(&reader.policies, caller).await?.into(),
    ))
}

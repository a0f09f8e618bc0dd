//! Requests for the pages of policies: the query, the reason for a change, the version that a
//! caller has seen.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header::{IF_MATCH, IF_NONE_MATCH};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};
use serde::Deserialize;
use tollgate_policies::model::{Expected, ObjectChange, ObjectId, ObjectKind, PolicyState};
use tollgate_policies::people::Operation;

use crate::Team;
use crate::api::extract::ShapedQuery;
use crate::caller::Caller;
use crate::policies::service::PolicyService;
use tollgate_admin::browser_guard::REASON;
use tollgate_admin::problem_details::ProblemDetails;

/// The query of a change.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChangeQuery {
    pub reason: String,
    pub dry_run: bool,
}

/// The query and the header fields of a change.
pub struct ChangeRequest {
    pub query: ChangeQuery,
    pub headers: HeaderMap,
}

impl<S: Send + Sync> FromRequestParts<S> for ChangeRequest {
    type Rejection = ProblemDetails;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemDetails> {
        let ShapedQuery(query) = ShapedQuery::from_request_parts(parts, state).await?;
        Ok(Self {
            query,
            headers: parts.headers.clone(),
        })
    }
}

impl ChangeQuery {
    /// The reason of the query, or of the header.
    pub fn reason(&self, headers: &HeaderMap) -> String {
        match headers.get(REASON) {
            Some(reason) if self.reason.is_empty() => {
                reason.to_str().unwrap_or_default().to_owned()
            }
            Some(_) | None => self.reason.clone(),
        }
    }
}

/// The policies of this gateway.
///
/// # Errors
/// When it has none.
pub fn service(team: &Team) -> Result<&Arc<PolicyService>, ProblemDetails> {
    team.policies
        .as_ref()
        .ok_or_else(ProblemDetails::no_policies)
}

/// The applications of a state that the caller may look at, with what they may see of these.
pub fn visible(caller: &Caller, state: &PolicyState) -> PolicyState {
    let mut shown = Vec::new();
    for object in state.iter() {
        if sees(caller, &object.id) {
            shown.push(Arc::clone(object));
        }
    }
    PolicyState::new(state.position(), shown)
}

/// The changes of applications that the caller may look at.
pub fn visible_changes(caller: &Caller, mut changes: Vec<ObjectChange>) -> Vec<ObjectChange> {
    changes.retain(|change| sees(caller, &change.id));
    changes
}

fn sees(caller: &Caller, id: &ObjectId) -> bool {
    may_see(caller, id.kind(), id.belongs_to()).is_ok()
}

/// Whether the caller may look at an application's objects of a kind. API keys are for those who
/// may change them: the hash of a key that somebody made up can be guessed.
///
/// # Errors
/// When the caller may not.
pub fn may_see(caller: &Caller, kind: ObjectKind, application: &str) -> Result<(), ProblemDetails> {
    let operation = if kind == ObjectKind::ApiKey {
        Operation::Change(kind)
    } else {
        Operation::View
    };
    caller.may(operation, application)
}

/// The kind that a path calls by its plural.
///
/// # Errors
/// When there is none.
pub fn kind(plural: &str) -> Result<ObjectKind, ProblemDetails> {
    for kind in ObjectKind::ALL {
        if kind != ObjectKind::Application && kind.plural() == plural {
            return Ok(kind);
        }
    }
    let problem = ProblemDetails::unknown_policy(format!("there are no {}", plural.escape_debug()));
    Err(problem.hint("an application has resources, strategies, plans, assignments and api_keys"))
}

/// The object that a path names.
///
/// # Errors
/// When the names cannot be names.
pub fn id(application: &str, named: Option<(&str, &str)>) -> Result<ObjectId, ProblemDetails> {
    let id = match named {
        None => ObjectId::of_application(application),
        Some((plural, name)) => ObjectId::new(kind(plural)?, application, name),
    };
    id.map_err(|problem| ProblemDetails::bad_request(problem.to_string()))
}

/// The version that a change is made upon: `If-Match: "12-19ac3f5b2e0"`, `If-Match: *`, or
/// `If-None-Match: *` for something new.
///
/// # Errors
/// When the request does not say.
pub fn expected(headers: &HeaderMap) -> Result<Expected, ProblemDetails> {
    let matching = list(headers, &IF_MATCH);
    let unmatched = list(headers, &IF_NONE_MATCH);
    match (matching.as_deref(), unmatched.as_deref()) {
        (Some("*"), None) => Ok(Expected::Any),
        (None, Some("*")) => Ok(Expected::Absent),
        (Some(tag), None) => expected_version(tag)
            .ok_or_else(|| ProblemDetails::bad_request("If-Match is one ETag of a policy")),
        (None, None) => Err(ProblemDetails::unconditional()),
        _ => Err(ProblemDetails::bad_request(
            "If-Match and If-None-Match: *, but not anything else, and not both",
        )),
    }
}

/// The value of a field. Several lines are one list (RFC 9110 §5.3).
fn list(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let mut lines = Vec::new();
    for line in headers.get_all(name) {
        lines.push(line.to_str().unwrap_or_default());
    }
    if lines.is_empty() {
        None
    } else {
        Some(lines.join(", ").trim().to_owned())
    }
}

fn expected_version(tag: &str) -> Option<Expected> {
    Expected::of_version(tag.strip_prefix('"')?.strip_suffix('"')?)
}

#[cfg(test)]
mod tests {
    use tollgate_policies::time::UnixTime;

    use super::*;

    fn of(fields: &[(HeaderName, &str)]) -> Result<Expected, u16> {
        let mut lines = HeaderMap::new();
        for (name, value) in fields {
            lines.append(name, value.parse().unwrap());
        }
        expected(&lines).map_err(|problem| problem.status)
    }

    #[test]
    fn a_change_says_what_it_is_made_upon() {
        assert_eq!(of(&[(IF_MATCH, "\"12\"")]), Ok(Expected::Revision(12)));
        let version = Expected::Version(12, UnixTime::from_millis(255));
        assert_eq!(of(&[(IF_MATCH, "\"12-ff\"")]), Ok(version));
        assert_eq!(of(&[(IF_MATCH, "*")]), Ok(Expected::Any));
        assert_eq!(of(&[(IF_NONE_MATCH, "*")]), Ok(Expected::Absent));
        assert_eq!(of(&[]), Err(428));
        for odd in [
            "12",
            "W/\"12\"",
            "\"12\", \"13\"",
            "\"a\"",
            "\"+12\"",
            "\"012\"",
            "\"\"",
            "\"12-\"",
            "\"12-FF\"",
        ] {
            assert_eq!(of(&[(IF_MATCH, odd)]), Err(400), "{odd}");
        }
        for second in ["\"12\"", "\"13\"", "*"] {
            assert_eq!(
                of(&[(IF_MATCH, "\"12\""), (IF_MATCH, second)]),
                Err(400),
                "{second}"
            );
        }
        assert_eq!(of(&[(IF_NONE_MATCH, "*"), (IF_NONE_MATCH, "*")]), Err(400));
        assert_eq!(of(&[(IF_MATCH, "*"), (IF_NONE_MATCH, "*")]), Err(400));
        assert_eq!(of(&[(IF_NONE_MATCH, "\"12\"")]), Err(400));
    }
}

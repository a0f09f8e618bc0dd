//! Reads a request's body of JSON, its query or a number in its path by a shape. Anything that does
//! not fit is refused as a problem that says why.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tollgate_policies::model::MOST_DRAFT_VALUES;

use super::unique_keys::UniqueKeys;
use crate::admin::problem_details::ProblemDetails;

/// For the whole of a body: others wait for the place that its sender has.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of JSON that are read on the thread of the admin port: more of them would keep its other
/// pages waiting.
const MOST_READ_HERE: usize = 64 << 10;

/// A body of JSON.
pub struct JsonBody<T>(pub T);

/// A query that names nothing unknown.
pub struct ShapedQuery<T>(pub T);

/// The number of a revision in a path.
pub struct RevisionNumber(pub u64);

/// Why a body could not be read.
pub fn unreadable_body(status: StatusCode, text: String) -> ProblemDetails {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => ProblemDetails::content_too_large(),
        _ => ProblemDetails::bad_request(text),
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send + 'static> FromRequest<S> for JsonBody<T> {
    type Rejection = ProblemDetails;

    async fn from_request(request: Request, state: &S) -> Result<Self, ProblemDetails> {
        let bytes = timeout(BODY_TIMEOUT, Bytes::from_request(request, state)).await;
        let bytes = bytes.map_err(|_| ProblemDetails::body_too_slow())?;
        let bytes = bytes.map_err(|error| unreadable_body(error.status(), error.body_text()))?;
        if bytes.len() <= MOST_READ_HERE {
            return read_json(&bytes).map(Self);
        }
        let read = spawn_blocking(move || read_json(&bytes)).await;
        read.unwrap_or_else(|_| {
            Err(ProblemDetails::policies_away(
                "the reading of the body broke off",
            ))
        })
        .map(Self)
    }
}

fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ProblemDetails> {
    refuse_many_values(bytes)?;
    let read = serde_json::from_slice::<UniqueKeys>(bytes)
        .and_then(|UniqueKeys| serde_json::from_slice(bytes));
    read.map_err(|error| {
        ProblemDetails::bad_request(format!("the body is not what is taken here: {error}"))
    })
}

/// Refuses JSON with more values than a change of policies may have, before it is read: each takes
/// many times its text.
fn refuse_many_values(json: &[u8]) -> Result<(), ProblemDetails> {
    if most_values(json) <= MOST_DRAFT_VALUES {
        return Ok(());
    }
    let problem =
        ProblemDetails::bad_request(format!("the body has more than {MOST_DRAFT_VALUES} values"));
    Err(problem.hint("send it in parts"))
}

/// How many values there can be in JSON: each is the first, or stands behind a bracket, a brace or
/// a comma.
fn most_values(json: &[u8]) -> usize {
    let (mut values, mut in_text, mut is_escaped) = (1, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' | b',' if !in_text => values += 1,
            _ => {}
        }
    }
    values
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for ShapedQuery<T> {
    type Rejection = ProblemDetails;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemDetails> {
        let read = Query::<T>::from_request_parts(parts, state).await;
        let refused = |error: axum::extract::rejection::QueryRejection| {
            ProblemDetails::bad_request(error.body_text())
        };
        read.map(|Query(query)| Self(query))
            .map_err(|error| refused(error).hint("GET /openapi.json has each parameter"))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for RevisionNumber {
    type Rejection = ProblemDetails;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemDetails> {
        let read = Path::<u64>::from_request_parts(parts, state).await;
        let number = read
            .ok()
            .map(|Path(number)| number)
            .filter(|number| *number > 0);
        number
            .map(Self)
            .ok_or_else(|| ProblemDetails::bad_request("a revision is a whole number from 1"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_texts() {
        for (json, values) in [
            ("1", 1),
            ("[1,2,3]", 4),
            (r#"{"a": [1, {"b": 2}], "c,[{": 3}"#, 6),
            (r#"["a\",,,[[", "\\", 1]"#, 4),
            ("\"unfinished, [", 1),
        ] {
            assert_eq!(most_values(json.as_bytes()), values, "{json}");
        }
    }

    #[test]
    fn a_body_of_too_many_values_is_not_read() {
        let list = |values: usize| format!("[{}1]", "1,".repeat(values - 2)).into_bytes();
        assert!(refuse_many_values(&list(MOST_DRAFT_VALUES)).is_ok());
        assert!(refuse_many_values(&list(MOST_DRAFT_VALUES + 1)).is_err());
    }
}

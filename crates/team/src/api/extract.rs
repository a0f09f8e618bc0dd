//! Extractors of a JSON body, a query or a number of the path by a shape. A request that does not
//! fit the shape is refused with a problem that says why.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use tollgate_policies::model::MOST_DRAFT_VALUES;

use super::unique_keys::UniqueKeys;
use crate::apart::apart;
use tollgate_admin::problem_details::ProblemDetails;

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
    if status == StatusCode::PAYLOAD_TOO_LARGE {
        ProblemDetails::content_too_large()
    } else {
        ProblemDetails::bad_request(text)
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send + 'static> FromRequest<S> for JsonBody<T> {
    type Rejection = ProblemDetails;

    async fn from_request(request: Request, state: &S) -> Result<Self, ProblemDetails> {
        let bytes = match timeout(BODY_TIMEOUT, Bytes::from_request(request, state)).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(error)) => return Err(unreadable_body(error.status(), error.body_text())),
            Err(_) => return Err(ProblemDetails::body_too_slow()),
        };
        if bytes.len() <= MOST_READ_HERE {
            return Ok(Self(read_json(&bytes)?));
        }
        let read = apart("the reading of the body", async move || read_json(&bytes));
        Ok(Self(read.await?))
    }
}

fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ProblemDetails> {
    refuse_many_values(bytes)?;
    let read = match serde_json::from_slice::<UniqueKeys>(bytes) {
        Ok(UniqueKeys) => serde_json::from_slice(bytes),
        Err(error) => Err(error),
    };
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
    let mut values = 1;
    let mut in_text = false;
    let mut is_escaped = false;
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
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(query)) => Ok(Self(query)),
            Err(error) => Err(ProblemDetails::bad_request(error.body_text())
                .hint("GET /openapi.json has each parameter")),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for RevisionNumber {
    type Rejection = ProblemDetails;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemDetails> {
        match Path::<u64>::from_request_parts(parts, state).await {
            Ok(Path(number)) if number > 0 => Ok(Self(number)),
            Ok(_) | Err(_) => Err(ProblemDetails::bad_request(
                "a revision is a whole number from 1",
            )),
        }
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
        for (values, is_read) in [(MOST_DRAFT_VALUES, true), (MOST_DRAFT_VALUES + 1, false)] {
            let list = format!("[{}1]", "1,".repeat(values - 2));
            assert_eq!(refuse_many_values(list.as_bytes()).is_ok(), is_read);
        }
    }
}

//! The answer of the service that is asked about requests: who the client is, or what to tell the
//! client.
//!
//! Guarantees that it is read within its bounds, and that no part of it that cannot be used lets a
//! request pass.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, Response, StatusCode};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Limited};
use tokio::time::{timeout, timeout_at};
use tollgate_limiter::limit::key::CallerIdentity;

use super::spec::ForwardSpec;
use crate::refusal::{AuthenticationRefusal, AuthenticationResult, VerifiedClient};
use tollgate_limiter::clock::Instant;
use tollgate_wire::body::Body;
use tollgate_wire::error::RelayedAnswer;

/// Bytes of an answer that goes to the client.
const MAX_BODY: usize = 64 * 1024;

/// The longest that the rest of an answer which is of no use is waited for, so that its connection
/// serves again.
const DRAIN: Duration = Duration::from_secs(1);

const MAX_ID: usize = 256;

const MAX_PLAN: usize = 64;

const ODD: AuthenticationRefusal = AuthenticationRefusal::Undecided(
    "the service that knows clients gave an answer that cannot be used",
);

/// The verdict that `response` is, which is no error of the service. An answer that is relayed has
/// been read by `deadline`; one that lets the request pass is shown to `keep`, with its fields.
pub async fn verdict(
    spec: &ForwardSpec,
    authenticator: &str,
    response: Response<Body>,
    deadline: Instant,
    keep: impl FnOnce(&VerifiedClient, &HeaderMap),
) -> AuthenticationResult {
    let status = response.status();
    let (head, body) = response.into_parts();
    if status.is_success() {
        drain(body);
        return accepted(spec, authenticator, &head.headers)
            .inspect(|client| keep(client, &head.headers));
    }
    if is_relayed(status) {
        let answer = relayed(status, head.headers, body, deadline).await;
        return Err(AuthenticationRefusal::Answered(Arc::new(answer)));
    }
    drain(body);
    Err(ODD)
}

/// The answer for the client. Its status is the verdict, whatever becomes of its body.
async fn relayed(
    status: StatusCode,
    mut headers: HeaderMap,
    body: Body,
    deadline: Instant,
) -> RelayedAnswer {
    let read = timeout_at(deadline, Limited::new(body, MAX_BODY).collect()).await;
    headers.remove(CONTENT_LENGTH);
    let body = match read {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) | Err(_) => {
            headers.remove(CONTENT_TYPE);
            headers.remove(CONTENT_ENCODING);
            Bytes::new()
        }
    };
    RelayedAnswer {
        status,
        headers,
        body,
    }
}

/// Whether the client gets this answer: it is to authenticate itself, here or elsewhere, is not
/// welcome, or has sent what the service does not take.
fn is_relayed(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        401 | 403 | 301 | 302 | 303 | 307 | 308 | 400 | 413 | 414 | 429 | 431
    )
}

fn accepted(spec: &ForwardSpec, authenticator: &str, fields: &HeaderMap) -> AuthenticationResult {
    let id = spec
        .id_header
        .as_ref()
        .map(|name| text(fields, name, MAX_ID))
        .transpose()?
        .flatten();
    let plan = spec
        .plan_header
        .as_ref()
        .map(|name| text(fields, name, MAX_PLAN))
        .transpose()?
        .flatten();
    // Without an id it is nobody: not a client that all others without one would share.
    let mut identity = id.map_or_else(CallerIdentity::default, |id| {
        CallerIdentity::new(authenticator, id)
    });
    identity.plan = plan.map(str::to_owned);
    let mut copied = HeaderMap::new();
    for name in &spec.copy_headers {
        for value in fields.get_all(name) {
            copied.append(name, value.clone());
        }
    }
    Ok(VerifiedClient {
        identity: Arc::new(identity),
        fields: Some(Box::new(copied)).filter(|fields| !fields.is_empty()),
    })
}

/// The text of a field. `None`: there is none, or an empty one.
fn text<'a>(
    fields: &'a HeaderMap,
    name: &HeaderName,
    longest: usize,
) -> Result<Option<&'a str>, AuthenticationRefusal> {
    let mut values = fields.get_all(name).iter();
    let value = match (values.next(), values.next()) {
        (None, _) => return Ok(None),
        (Some(value), None) => str::from_utf8(value.as_bytes()).map_err(|_| ODD)?.trim(),
        (Some(_), Some(_)) => return Err(ODD),
    };
    if value.len() > longest || value.contains(char::is_control) {
        return Err(ODD);
    }
    Ok(Some(value).filter(|value| !value.is_empty()))
}

/// Reads the rest of an answer that is of no use, within bounds.
pub fn drain(body: Body) {
    if !body.is_end_stream() {
        tokio::spawn(timeout(DRAIN, Limited::new(body, MAX_BODY).collect()));
    }
}

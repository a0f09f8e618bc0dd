//! Everything the gateway itself refuses or fails at, and the one table that gives each its answer.
//!
//! No other file writes a status code of the gateway's own. Bodies are `application/problem+json` (RFC 9457).

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

use crate::header_map_pool;
use crate::observe::request_id::REQUEST_ID;
use crate::respond::Respond;

/// The problem type of a denied request (draft-ietf-httpapi-ratelimit-headers-11 §6).
pub const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// Bytes of most problems.
const TYPICAL_PROBLEM: usize = 384;

/// Why the gateway answers itself instead of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Not HTTP, or HTTP that could be read two ways. Says which rule it broke.
    BadRequest(&'static str),
    /// A part of a limit's key is missing and the limit refuses such requests.
    KeyMissing {
        limit: Arc<str>,
        /// In an operator's spelling: `header.x-tenant`, `cookie.sid`.
        part: Arc<str>,
    },
    NoRoute,
    /// With the methods that the path does take.
    MethodNotAllowed(HeaderValue),
    /// The client was too slow to send its header section or its body.
    RequestTimeout,
    BodyTooLarge,
    UriTooLong,
    HeadersTooLarge,
    /// A limit whose store is away denies meanwhile, or a quota is used up: rendered with the violated policies.
    QuotaExceeded {
        violated: Vec<Arc<str>>,
        retry_after_secs: u64,
    },
    /// A quota is used up, and its limit has an answer of its own for that.
    Refused {
        answer: Arc<Respond>,
        retry_after_secs: u64,
    },
    /// More requests in flight than the gateway takes.
    Overloaded,
    /// The upstream has no endpoint to try.
    NoEndpoint,
    ConnectFailed,
    /// The upstream closed or reset the connection before it answered.
    UpstreamClosed,
    /// What the upstream sent is not HTTP.
    UpstreamInvalid,
    ConnectTimeout,
    ResponseTimeout,
    /// HTTP/2 or HTTP/1.1 asked for something that this gateway does not do.
    NotImplemented(&'static str),
    /// Neither HTTP/1.0, HTTP/1.1 nor HTTP/2.
    VersionNotSupported,
    /// A bug: the request panicked.
    Panicked,
}

/// What is counted for a client that left before there was an answer: 499, as nginx has it and no RFC.
pub fn client_closed() -> StatusCode {
    StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST)
}

struct Row {
    status: StatusCode,
    /// The problem's name: the last part of its type, and a metric's label.
    name: &'static str,
    detail: &'static str,
    /// The connection cannot be trusted any more.
    close: bool,
}

const fn row(status: StatusCode, name: &'static str, detail: &'static str) -> Row {
    Row { status, name, detail, close: false }
}

const fn closing(status: StatusCode, name: &'static str, detail: &'static str) -> Row {
    Row { status, name, detail, close: true }
}

impl Failure {
    fn row(&self) -> Row {
        use StatusCode as S;
        match self {
            Self::BadRequest(why) => closing(S::BAD_REQUEST, "bad-request", why),
            Self::KeyMissing { .. } => {
                row(S::BAD_REQUEST, "key-missing", "the request lacks what its rate limit counts by")
            }
            Self::NoRoute => row(S::NOT_FOUND, "no-route", "no route takes this host and path"),
            Self::MethodNotAllowed(_) => {
                row(S::METHOD_NOT_ALLOWED, "method-not-allowed", "the path takes other methods: see Allow")
            }
            Self::RequestTimeout => closing(S::REQUEST_TIMEOUT, "request-timeout", "the request arrived too slowly"),
            Self::BodyTooLarge => closing(S::PAYLOAD_TOO_LARGE, "body-too-large", "the request body is over the limit"),
            Self::UriTooLong => closing(S::URI_TOO_LONG, "uri-too-long", "the request target is over the limit"),
            Self::HeadersTooLarge => {
                closing(S::REQUEST_HEADER_FIELDS_TOO_LARGE, "headers-too-large", "the header section is over the limit")
            }
            Self::QuotaExceeded { .. } => {
                row(S::TOO_MANY_REQUESTS, "quota-exceeded", "a rate limit is used up: come back after Retry-After")
            }
            // Said in the operator's words.
            Self::Refused { answer, .. } => row(answer.status, "quota-exceeded", ""),
            Self::Overloaded => {
                row(S::SERVICE_UNAVAILABLE, "overloaded", "the gateway has as many requests in flight as it takes")
            }
            Self::NoEndpoint => row(S::SERVICE_UNAVAILABLE, "no-endpoint", "the upstream has no endpoint to try"),
            Self::ConnectFailed => row(S::BAD_GATEWAY, "connect-failed", "the upstream did not accept a connection"),
            Self::UpstreamClosed => {
                row(S::BAD_GATEWAY, "upstream-closed", "the upstream closed the connection before it answered")
            }
            Self::UpstreamInvalid => row(S::BAD_GATEWAY, "upstream-invalid", "the upstream's answer is not HTTP"),
            Self::ConnectTimeout => {
                row(S::GATEWAY_TIMEOUT, "connect-timeout", "the upstream did not accept a connection in time")
            }
            Self::ResponseTimeout => row(S::GATEWAY_TIMEOUT, "response-timeout", "the upstream did not answer in time"),
            Self::NotImplemented(what) => closing(S::NOT_IMPLEMENTED, "not-implemented", what),
            Self::VersionNotSupported => closing(
                S::HTTP_VERSION_NOT_SUPPORTED,
                "version-not-supported",
                "the gateway speaks HTTP/1.1 and HTTP/2",
            ),
            Self::Panicked => {
                closing(S::INTERNAL_SERVER_ERROR, "internal-error", "the gateway failed at this request: see its log")
            }
        }
    }

    /// The status code this failure is answered with.
    pub fn status(&self) -> StatusCode {
        self.row().status
    }

    /// Whether no upstream had the request, through no fault of the client's.
    pub fn is_before_upstream(&self) -> bool {
        matches!(self, Self::NoEndpoint | Self::ConnectFailed | Self::ConnectTimeout)
    }

    /// A short name for logs and metrics.
    pub fn name(&self) -> &'static str {
        self.row().name
    }

    /// The whole answer.
    pub fn respond<B: From<Bytes>>(&self, request_id: &HeaderValue) -> Response<B> {
        if let Self::Refused { answer, retry_after_secs } = self {
            let mut response = answer.response();
            response.headers_mut().insert(REQUEST_ID, request_id.clone());
            response.headers_mut().insert(RETRY_AFTER, (*retry_after_secs).into());
            return response;
        }
        let row = self.row();
        let mut response = Response::new(B::from(self.problem(&row, request_id)));
        *response.status_mut() = row.status;
        *response.headers_mut() = header_map_pool::take();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(REQUEST_ID, request_id.clone());
        if row.close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        match self {
            Self::MethodNotAllowed(allow) => drop(headers.insert(ALLOW, allow.clone())),
            Self::QuotaExceeded { retry_after_secs, .. } => {
                drop(headers.insert(RETRY_AFTER, (*retry_after_secs).into()))
            }
            Self::Overloaded | Self::NoEndpoint => drop(headers.insert(RETRY_AFTER, HeaderValue::from_static("1"))),
            _ => {}
        }
        response
    }

    /// RFC 9457 §3, with the members of draft-ietf-httpapi-ratelimit-headers-11 §6. Denied requests come in floods, so it
    /// is put together and not serialised.
    fn problem(&self, row: &Row, request_id: &HeaderValue) -> Bytes {
        let mut text = Vec::with_capacity(TYPICAL_PROBLEM);
        let kind = match self {
            Self::QuotaExceeded { .. } => [QUOTA_EXCEEDED, ""],
            _ => ["urn:tollgate:problem:", row.name],
        };
        let title = row.status.canonical_reason().unwrap_or_default();
        for part in ["{\"type\":\"", kind[0], kind[1], "\",\"title\":\"", title, "\",\"status\":", row.status.as_str()]
        {
            text.extend_from_slice(part.as_bytes());
        }
        text.extend_from_slice(b",\"detail\":");
        match self {
            Self::KeyMissing { limit, part } => push_json(&mut text, &missing(limit, part)),
            _ => push_json(&mut text, row.detail),
        }
        text.extend_from_slice(b",\"request-id\":");
        push_json(&mut text, request_id.to_str().unwrap_or_default());
        if let Self::QuotaExceeded { violated, .. } = self {
            text.extend_from_slice(b",\"violated-policies\":[");
            for (at, name) in violated.iter().enumerate() {
                text.extend_from_slice(if at > 0 { b"," } else { b"" });
                push_json(&mut text, name);
            }
            text.push(b']');
        }
        if let Self::KeyMissing { limit, part } = self {
            for (name, value) in [("limit", limit), ("missing", part)] {
                for part in [",\"", name, "\":"] {
                    text.extend_from_slice(part.as_bytes());
                }
                push_json(&mut text, value);
            }
        }
        text.extend_from_slice(b"}\n");
        text.into()
    }
}

/// For whoever sent a request without `part` of a key. Names it, and no value.
fn missing(limit: &str, part: &str) -> String {
    let what = match part.split_once('.') {
        Some(("header", name)) => format!("the header field {name}"),
        Some(("cookie", name)) => format!("the cookie {name}"),
        Some(("query", name)) => format!("the query parameter {name}"),
        Some(("path", name)) => format!("the path parameter {name}"),
        _ => part.to_owned(),
    };
    format!("the request lacks {what}, by which the rate limit {limit} counts")
}

/// Appends a JSON string (RFC 8259 §7).
fn push_json(text: &mut Vec<u8>, string: &str) {
    let special = |byte: u8| u8::from(byte < 0x20) | u8::from(byte == b'"') | u8::from(byte == b'\\');
    if string.bytes().fold(0, |seen, byte| seen | special(byte)) == 0 {
        text.push(b'"');
        text.extend_from_slice(string.as_bytes());
        text.push(b'"');
    } else if let Ok(quoted) = serde_json::to_vec(string) {
        text.extend_from_slice(&quoted);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn problem(failure: &Failure, request_id: &'static str) -> Value {
        let text = failure.problem(&failure.row(), &HeaderValue::from_static(request_id));
        serde_json::from_slice(&text).unwrap()
    }

    #[test]
    fn a_missing_key_is_named_with_its_limit() {
        let failure = Failure::KeyMissing { limit: "per-tenant".into(), part: "header.x-tenant".into() };
        assert_eq!(
            problem(&failure, "id"),
            serde_json::json!({
                "type": "urn:tollgate:problem:key-missing",
                "title": "Bad Request",
                "status": 400,
                "detail": "the request lacks the header field x-tenant, by which the rate limit per-tenant counts",
                "request-id": "id",
                "limit": "per-tenant",
                "missing": "header.x-tenant",
            })
        );
    }

    #[test]
    fn a_problem_is_json_whatever_is_in_it() {
        let violated = vec!["per-client".into(), "a \"b\" \\ \u{e9}\n".into()];
        let failure = Failure::QuotaExceeded { violated, retry_after_secs: 3 };
        assert_eq!(
            problem(&failure, "a\"b\\c"),
            serde_json::json!({
                "type": QUOTA_EXCEEDED,
                "title": "Too Many Requests",
                "status": 429,
                "detail": "a rate limit is used up: come back after Retry-After",
                "request-id": "a\"b\\c",
                "violated-policies": ["per-client", "a \"b\" \\ \u{e9}\n"],
            })
        );
        let problem = problem(&Failure::BadRequest("\"quoted\""), "id");
        assert_eq!(problem["type"], "urn:tollgate:problem:bad-request");
        assert_eq!(problem["detail"], "\"quoted\"");
        assert_eq!(problem.get("violated-policies"), None);
    }
}

//! Why limits refuse a request, and the answer that says so.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::limit::fixed_response::FixedResponse;
use crate::request::problem::Problem;

/// Why limits refuse a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The request lacks a part of a limit's key, and the limit refuses such requests.
    KeyMissing {
        limit: Arc<str>,
        /// The part of the key, as an operator calls it: `header.x-tenant`.
        part: String,
    },
    /// A quota is used up, or a limit whose store is away denies meanwhile.
    QuotaExceeded { violated: Vec<Arc<str>>, retry_after_secs: u64 },
    /// A quota is used up, and its limit has an answer of its own for that.
    FixedAnswer { answer: Arc<FixedResponse>, retry_after_secs: u64 },
}

impl Denial {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::KeyMissing { .. } => StatusCode::BAD_REQUEST,
            Self::QuotaExceeded { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::FixedAnswer { answer, .. } => answer.status,
        }
    }

    /// A short name for logs and metrics, and the last part of the problem's type.
    pub fn name(&self) -> &'static str {
        match self {
            Self::KeyMissing { .. } => "key-missing",
            Self::QuotaExceeded { .. } | Self::FixedAnswer { .. } => "quota-exceeded",
        }
    }

    /// The whole answer. Its fields are added to `headers`, which are empty.
    pub fn respond<B: From<Bytes>>(&self, headers: HeaderMap, request_id: Option<&str>) -> Response<B> {
        let problem = |detail, violated, members| {
            Problem { status: self.status(), name: self.name(), detail, request_id, violated, members }.to_json()
        };
        let (body, retry_after_secs) = match self {
            Self::FixedAnswer { answer, retry_after_secs } => {
                let mut response: Response<B> = answer.response();
                response.headers_mut().insert(RETRY_AFTER, (*retry_after_secs).into());
                return response;
            }
            Self::KeyMissing { limit, part } => {
                let detail = format!("the request lacks {part}, which the limit {limit:?} counts by");
                (problem(&detail, None, &[("limit", &**limit), ("missing", part.as_str())]), None)
            }
            Self::QuotaExceeded { violated, retry_after_secs } => {
                let detail = "a rate limit is used up: come back after Retry-After";
                (problem(detail, Some(violated.as_slice()), &[]), Some(*retry_after_secs))
            }
        };
        let mut response = Response::new(B::from(body));
        *response.status_mut() = self.status();
        *response.headers_mut() = headers;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(retry_after_secs) = retry_after_secs {
            response.headers_mut().insert(RETRY_AFTER, retry_after_secs.into());
        }
        response
    }
}

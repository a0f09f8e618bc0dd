//! The answers of the admin port: JSON, or a refusal as `application/problem+json` (RFC 9457) with a hint.

use std::borrow::Cow;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tollgate_limiter::store::StoreError;

/// A JSON answer, for people and programs: indented, and ended by a line break.
#[derive(Debug)]
pub struct PrettyJson<T>(pub T);

/// A refusal or a failure, in the shape of RFC 9457.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ProblemDetails {
    #[serde(rename = "type")]
    pub kind: Cow<'static, str>,
    pub title: Cow<'static, str>,
    pub status: u16,
    pub detail: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl ProblemDetails {
    fn new(status: StatusCode, name: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:tollgate:problem:{name}").into(),
            title: status.canonical_reason().unwrap_or_default().into(),
            status: status.as_u16(),
            detail: detail.into(),
            hint: None,
        }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// 400: the request is not understood or contradicts itself.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", detail)
    }

    /// 404: no such limit.
    pub fn unknown_limit(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown-limit", detail)
    }

    /// 404: no such page.
    pub fn not_found(path: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", format!("there is no {path}")).hint("GET / lists what there is")
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "this path takes other methods: see Allow")
            .hint("GET / lists what there is")
    }

    /// 403: a change that a web page may have asked for.
    pub fn cross_site(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "cross-site", detail)
    }

    /// 503: nothing can be changed without the store.
    pub fn store_away(error: &StoreError) -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "store-away", format!("the store is away: {error}"));
        match error {
            StoreError::Timeout => problem.hint("look whether it was changed nevertheless, then try again"),
            _ => problem.hint("nothing was changed; try again when tollgate_store_up is 1"),
        }
    }
}

impl ProblemDetails {
    pub fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl IntoResponse for ProblemDetails {
    fn into_response(self) -> Response {
        (self.status_code(), [(CONTENT_TYPE, "application/problem+json")], text(&self)).into_response()
    }
}

impl<T: Serialize> IntoResponse for PrettyJson<T> {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, "application/json")], text(&self.0)).into_response()
    }
}

fn text(value: &impl Serialize) -> String {
    // Only a map with odd keys cannot be written, and there is none.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

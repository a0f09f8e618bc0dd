//! The answers of the admin port: JSON, or a refusal as `application/problem+json` (RFC 9457) with
//! a hint.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tollgate_limiter::store::StoreError;

/// A JSON answer, for people and programs: indented, and ended by a line break.
#[derive(Debug)]
pub struct PrettyJson<T>(pub T);

/// A refusal or a failure, in the shape of RFC 9457. Kept small: nearly every function of the port
/// may return it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ProblemDetails {
    #[serde(rename = "type")]
    pub kind: Box<str>,
    pub title: Box<str>,
    pub status: u16,
    pub detail: Box<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// When to come back, of a refusal that passes.
    #[serde(skip)]
    pub retry_after_secs: Option<u32>,
    /// The mistakes in policies, each at its place.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    #[schema(value_type = Vec<MistakeView>)]
    pub mistakes: Box<[MistakeView]>,
    /// The changes that others have made meanwhile.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    #[schema(value_type = Vec<ConflictView>)]
    pub conflicts: Box<[ConflictView]>,
}

/// A mistake of the policies or of the file beneath them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct MistakeView {
    /// The source of the mistake: the policies of a revision, or a file of the node that checks.
    pub file: String,
    /// Where in it: `applications.shop.strategies.per-client.limit.rate`
    pub path: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// An object that somebody else has changed meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ConflictView {
    pub kind: String,
    pub application: String,
    pub name: String,
    /// The revision of the object as it is; none: it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<u64>,
    /// The last change of it: by whom, in which revision and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    pub message: String,
}

impl ProblemDetails {
    fn new(status: StatusCode, name: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:tollgate:problem:{name}").into(),
            title: status.canonical_reason().unwrap_or_default().into(),
            status: status.as_u16(),
            detail: detail.into().into(),
            hint: None,
            retry_after_secs: None,
            mistakes: Box::default(),
            conflicts: Box::default(),
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
        Self::new(
            StatusCode::NOT_FOUND,
            "not-found",
            format!("there is no {path}"),
        )
        .hint("GET / lists what there is")
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method-not-allowed",
            "this path takes other methods: see Allow",
        )
        .hint("GET / lists what there is")
    }

    /// 403: a change that a web page may have asked for.
    pub fn cross_site(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "cross-site", detail)
    }

    /// 401: the request does not say who it is from, or wrongly.
    pub fn unauthenticated(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail)
    }

    /// 403: the caller is known, and this is not for them.
    pub fn missing_role(name: &str, role: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "missing-role", format!("{name} may not do this: it needs the role {role}"))
            .hint("owners give roles in their application, and admins all: on the console's page \"People\"")
    }

    /// 429: too many have tried to sign in by this name or from this address, and failed.
    pub fn too_many_sign_ins(retry_after_secs: u64) -> Self {
        let problem = Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too-many-sign-ins",
            "too many have failed to sign in",
        );
        let problem = problem.hint(format!("try again in {retry_after_secs} s"));
        Self {
            retry_after_secs: u32::try_from(retry_after_secs).ok(),
            ..problem
        }
    }

    /// 429: too many tokens from this address were nobody's.
    pub fn too_many_tokens(retry_after_secs: u64) -> Self {
        let detail = "too many tokens from this address were no account's, or no longer";
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many-tokens", detail);
        let problem = problem.hint(format!(
            "try again in {retry_after_secs} s, with a token that tollgate token list has"
        ));
        Self {
            retry_after_secs: u32::try_from(retry_after_secs).ok(),
            ..problem
        }
    }

    /// 429: too many sessions from this address were nobody's.
    pub fn too_many_sessions(retry_after_secs: u64) -> Self {
        let detail = "too many sessions from this address were nobody's, or have ended";
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many-sessions", detail);
        let problem = problem.hint(format!(
            "try again in {retry_after_secs} s, or sign in anew"
        ));
        Self {
            retry_after_secs: u32::try_from(retry_after_secs).ok(),
            ..problem
        }
    }

    /// 503: somebody else verifies the audit log.
    pub fn verification_under_way() -> Self {
        let detail = "the audit log is being verified, which reads all of it";
        let problem = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "verification-under-way",
            detail,
        );
        Self {
            retry_after_secs: Some(5),
            ..problem.hint("try again")
        }
    }

    /// 403: a password or a token that others could have read.
    pub fn in_the_clear(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "in-the-clear", detail)
    }

    /// 403: somebody known, who may not come in.
    pub fn not_permitted(detail: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "not-permitted", detail)
    }

    /// 503: the provider that people sign in at cannot be asked.
    pub fn provider_away(detail: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "provider-away", detail)
            .hint("those who have a password sign in by it; the file's admin.openid_connect says where the provider is")
    }

    /// 503: nobody can be told apart without the database of accounts, and nothing has changed.
    pub fn database_away(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "database-away", detail)
            .hint("requests are decided as before: probes and metrics go on, all else here waits for the database")
    }

    /// 404: no such object or revision.
    pub fn unknown_policy(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown-policy", detail)
    }

    /// 404: this gateway has a file alone.
    pub fn no_policies() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "no-policies",
            "this gateway has no policies: its limits are those of its file",
        )
        .hint("policies: {database: …} in the file, see docs/policies.md")
    }

    /// 409: somebody else was faster.
    pub fn conflicting(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", detail)
            .hint("look at what has changed, and make your change upon it")
    }

    /// 413: the body is longer than is read.
    pub fn content_too_large() -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "content-too-large",
            "the body is longer than is read here",
        )
        .hint("an object has 128 KiB at most, all policies together 16 MiB")
    }

    /// 422: the policies would not work.
    pub fn unusable_policies(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "unusable-policies",
            detail,
        )
    }

    /// 428: a change that does not say upon what it is made.
    pub fn unconditional() -> Self {
        Self::new(
            StatusCode::PRECONDITION_REQUIRED,
            "unconditional",
            "a change says which version it is made upon",
        )
        .hint(
            "send If-Match with the ETag that you have seen, or If-None-Match: * for something new",
        )
    }

    /// 503: others change policies just now.
    pub fn too_many_changes() -> Self {
        let detail = "other changes of policies are being checked, and took too long";
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "too-many-changes", detail);
        Self {
            retry_after_secs: Some(5),
            ..problem.hint("nothing was changed; try again")
        }
    }

    /// 429: a change by the same account is being checked.
    pub fn change_under_way(account: &str) -> Self {
        let detail = match account {
            "" => "another change is being checked".to_owned(),
            account => format!("another change by {account} is being checked"),
        };
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "change-under-way", detail);
        Self {
            retry_after_secs: Some(1),
            ..problem.hint("nothing was changed; an account makes one change at a time: try again")
        }
    }

    /// 429: a session sends form after form.
    pub fn too_many_forms() -> Self {
        let detail = "more forms were sent in the last hour than anybody fills in by hand";
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many-forms", detail);
        Self {
            retry_after_secs: Some(60),
            ..problem.hint("programs use the pages of GET /openapi.json")
        }
    }

    /// A refusal that says nothing but a text, such as that of a path which cannot be read.
    pub fn of_text(status: StatusCode, text: &[u8]) -> Self {
        Self {
            status: status.as_u16(),
            ..Self::bad_request(String::from_utf8_lossy(text))
        }
    }

    /// 503: others read what takes long to find.
    pub fn too_many_readers() -> Self {
        let detail = "others are reading old revisions, which takes all of the policies each time";
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "too-many-readers", detail);
        Self {
            retry_after_secs: Some(5),
            ..problem.hint("try again")
        }
    }

    /// 503: more is asked for than is answered at a time.
    pub fn too_many_requests() -> Self {
        let detail = "too many requests of this client, or of all, wait for their answers or have not taken them";
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "too-many-requests", detail);
        Self {
            retry_after_secs: Some(1),
            ..problem.hint("nothing was changed; try again")
        }
    }

    /// 503: more copies of the metrics are asked for than are made.
    pub fn too_many_scrapes() -> Self {
        let detail = "too many copies of the metrics are made for this client, or for all, or were not taken";
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "too-many-scrapes", detail);
        Self {
            retry_after_secs: Some(1),
            ..problem.hint("try again")
        }
    }

    /// 408: a body that does not arrive.
    pub fn body_too_slow() -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "body-too-slow",
            "the request's body did not arrive in time",
        )
        .hint("nothing was changed; send it again")
    }

    /// 503: the database of policies does not answer.
    pub fn policies_away(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "policies-away", detail)
    }

    /// 503: nothing can be changed without the store.
    pub fn store_away(error: &StoreError) -> Self {
        let problem = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "store-away",
            format!("the store is away: {error}"),
        );
        match error {
            StoreError::Timeout => {
                problem.hint("look whether it was changed nevertheless, then try again")
            }
            _ => problem.hint("nothing was changed; try again when tollgate_store_up is 1"),
        }
    }
}

impl ProblemDetails {
    /// Whether it is the lack of an account.
    pub fn is_of_strangers(&self) -> bool {
        self.status_code() == StatusCode::UNAUTHORIZED
    }

    pub fn head(&self) -> RefusalHead {
        RefusalHead {
            status: self.status_code(),
            retry_after_secs: self.retry_after_secs,
        }
    }

    pub fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// The status of a refusal, and when to come back.
#[derive(Clone, Copy, Debug)]
pub struct RefusalHead {
    status: StatusCode,
    retry_after_secs: Option<u32>,
}

impl RefusalHead {
    /// Makes `response` one of this refusal, whatever it has to show.
    pub fn put_on(self, response: &mut Response) {
        *response.status_mut() = self.status;
        if let Some(seconds) = self.retry_after_secs {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
    }
}

impl IntoResponse for ProblemDetails {
    fn into_response(self) -> Response {
        let mut response =
            ([(CONTENT_TYPE, "application/problem+json")], text(&self)).into_response();
        self.head().put_on(&mut response);
        if response.status() == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(
                WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"tollgate\""),
            );
        }
        response
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

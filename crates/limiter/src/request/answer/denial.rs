//! The refusal of a request by its limits, and the answer that says why.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use smallvec::SmallVec;

use crate::limit::fixed_response::FixedResponse;
use crate::request::answer::headers;
use crate::request::answer::problem::ProblemBody;

/// The way out where a server does not tell its clients' addresses.
pub(crate) const NO_CLIENT_ADDRESS: &str = if cfg!(feature = "axum") {
    "the limit counts by the client's address, which the server does not tell: \
     serve the router with into_make_service_with_connect_info::<SocketAddr>(), or put the SocketAddr into the request's \
     extensions"
} else {
    "the limit counts by the client's address, which the server does not tell: put the SocketAddr into the request's \
     extensions, or, with axum, enable the feature \"axum\" of tollgate-limiter and serve the router with \
     into_make_service_with_connect_info::<SocketAddr>()"
};

/// The status, name and detail of a used-up quota's problem.
const QUOTA_STATUS: StatusCode = StatusCode::TOO_MANY_REQUESTS;
const QUOTA_NAME: &str = "quota-exceeded";
const QUOTA_DETAIL: &str = "a rate limit is used up: come back after Retry-After";

/// The part of that problem that is the same for all requests.
static QUOTA_PROBLEM: LazyLock<Vec<u8>> = LazyLock::new(|| quota_problem(&[], None).kind());

/// The names of the limits that denied a request: one, nearly always.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViolatedLimits {
    /// Limits that clients are shown come first.
    names: SmallVec<[Arc<str>; 1]>,
    /// The number of those.
    shown: usize,
}

impl ViolatedLimits {
    /// The limits that clients are shown.
    pub fn shown(&self) -> &[Arc<str>] {
        self.names.get(..self.shown).unwrap_or_default()
    }

    /// All of the limits, those that clients are shown first.
    pub fn all(&self) -> &[Arc<str>] {
        &self.names
    }
}

/// Limits that clients are shown.
impl<const N: usize> From<[Arc<str>; N]> for ViolatedLimits {
    fn from(names: [Arc<str>; N]) -> Self {
        Self {
            names: names.into_iter().collect(),
            shown: N,
        }
    }
}

/// Limits, each with whether it is hidden from clients.
impl<'a> FromIterator<(&'a Arc<str>, bool)> for ViolatedLimits {
    fn from_iter<I: IntoIterator<Item = (&'a Arc<str>, bool)>>(limits: I) -> Self {
        let mut violated = Self::default();
        for (name, hidden) in limits {
            if hidden {
                violated.names.push(name.clone());
            } else {
                violated.names.insert(violated.shown, name.clone());
                violated.shown += 1;
            }
        }
        violated
    }
}

/// Why limits refuse a request.
///
/// ```
/// use bytes::Bytes;
/// use http::header::RETRY_AFTER;
/// use http::{HeaderMap, Response};
/// use tollgate_limiter::request::denial::Denial;
///
/// let denial = Denial::QuotaExceeded { violated: ["per-client".into()].into(), retry_after_secs: 3 };
/// let answer: Response<Bytes> = denial.respond(HeaderMap::new(), None);
/// assert_eq!((answer.status().as_u16(), &answer.headers()[RETRY_AFTER]), (429, &"3".parse().unwrap()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The request lacks a part of a limit's key, and the limit refuses such requests.
    KeyMissing {
        limit: Arc<str>,
        /// The part of the key, as an operator calls it: `header.x-tenant`.
        part: String,
        /// The client is not shown which limit it is.
        hidden: bool,
    },
    /// A limit counts by the client's address, and the server does not tell it: a mistake of
    /// whoever put the layer there.
    NoClientAddress { limit: Arc<str>, hidden: bool },
    /// A quota is used up, or a limit whose store is away denies meanwhile.
    QuotaExceeded {
        violated: ViolatedLimits,
        retry_after_secs: u64,
    },
    /// A quota is used up, and its limit has an answer of its own for that.
    FixedAnswer {
        limit: Arc<str>,
        answer: Arc<FixedResponse>,
        retry_after_secs: u64,
    },
}

impl Denial {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::KeyMissing { .. } => StatusCode::BAD_REQUEST,
            Self::NoClientAddress { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            Self::QuotaExceeded { .. } => QUOTA_STATUS,
            Self::FixedAnswer { answer, .. } => answer.status,
        }
    }

    /// A short name for logs and metrics, and the last part of the problem's type.
    pub fn name(&self) -> &'static str {
        match self {
            Self::KeyMissing { .. } => "key-missing",
            Self::NoClientAddress { .. } => "no-client-address",
            Self::QuotaExceeded { .. } | Self::FixedAnswer { .. } => QUOTA_NAME,
        }
    }

    /// When to come back, where time is what is missing.
    pub fn retry_after_secs(&self) -> Option<u64> {
        match self {
            Self::QuotaExceeded {
                retry_after_secs, ..
            }
            | Self::FixedAnswer {
                retry_after_secs, ..
            } => Some(*retry_after_secs),
            Self::KeyMissing { .. } | Self::NoClientAddress { .. } => None,
        }
    }

    /// The names of the limits that are used up, as far as clients are shown.
    pub fn violated(&self) -> &[Arc<str>] {
        match self {
            Self::QuotaExceeded { violated, .. } => violated.shown(),
            Self::KeyMissing { .. } | Self::NoClientAddress { .. } | Self::FixedAnswer { .. } => {
                &[]
            }
        }
    }

    /// The limit that refuses, for logs: also one that clients are not shown. The first, if there
    /// are several.
    pub fn limit(&self) -> Option<&Arc<str>> {
        match self {
            Self::KeyMissing { limit, .. }
            | Self::NoClientAddress { limit, .. }
            | Self::FixedAnswer { limit, .. } => Some(limit),
            Self::QuotaExceeded { violated, .. } => violated.all().first(),
        }
    }

    /// The reason, in words.
    pub fn detail(&self) -> Cow<'static, str> {
        match self {
            Self::KeyMissing {
                limit,
                part,
                hidden,
            } => missing((!hidden).then_some(limit), part).into(),
            Self::NoClientAddress { .. } => NO_CLIENT_ADDRESS.into(),
            Self::QuotaExceeded { .. } | Self::FixedAnswer { .. } => QUOTA_DETAIL.into(),
        }
    }

    /// The problem of a request that lacks something.
    fn problem(&self, members: &[(&'static str, &str)], request_id: Option<&str>) -> Bytes {
        ProblemBody {
            status: self.status(),
            name: self.name(),
            detail: &self.detail(),
            request_id,
            violated: None,
            members,
        }
        .to_json()
    }

    /// The whole answer. Its fields are added to `headers`, which are empty.
    pub fn respond<B: From<Bytes>>(
        &self,
        headers: HeaderMap,
        request_id: Option<&str>,
    ) -> Response<B> {
        let body = match self {
            Self::FixedAnswer {
                answer,
                retry_after_secs,
                ..
            } => {
                let mut response: Response<B> = answer.response();
                response
                    .headers_mut()
                    .insert(RETRY_AFTER, headers::number(*retry_after_secs));
                return response;
            }
            Self::KeyMissing {
                limit,
                part,
                hidden,
            } => {
                let members = [("limit", &**limit), ("missing", part.as_str())];
                self.problem(if *hidden { &members[1..] } else { &members }, request_id)
            }
            Self::NoClientAddress { limit, hidden } => {
                let members = [("limit", &**limit)];
                self.problem(if *hidden { &[] } else { &members }, request_id)
            }
            Self::QuotaExceeded { violated, .. } => {
                quota_problem(violated.shown(), request_id).json_of_kind(&QUOTA_PROBLEM)
            }
        };
        let mut response = Response::new(B::from(body));
        *response.status_mut() = self.status();
        *response.headers_mut() = headers;
        response.headers_mut().insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if let Some(retry_after_secs) = self.retry_after_secs() {
            response
                .headers_mut()
                .insert(RETRY_AFTER, headers::number(retry_after_secs));
        }
        response
    }
}

/// The problem of a used-up quota.
fn quota_problem<'a>(violated: &'a [Arc<str>], request_id: Option<&'a str>) -> ProblemBody<'a> {
    let status = QUOTA_STATUS;
    let name = QUOTA_NAME;
    let detail = QUOTA_DETAIL;
    ProblemBody {
        status,
        name,
        detail,
        request_id,
        violated: Some(violated),
        members: &[],
    }
}

/// The part that a request lacks, in words. Only its name: values may be secret.
fn missing(limit: Option<&Arc<str>>, part: &str) -> String {
    let missing = match part.split_once('.') {
        Some(("header", name)) => format!("the header field {name}"),
        Some(("cookie", name)) => format!("the cookie {name}"),
        Some(("query", name)) => format!("the query parameter {name}"),
        Some(("path", name)) => format!("the path parameter {name}"),
        _ => part.to_owned(),
    };
    match limit {
        Some(limit) => {
            format!("the request lacks {missing}, by which the rate limit {limit} counts")
        }
        None => format!("the request lacks {missing}, by which a rate limit counts"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn problem(denial: &Denial) -> (Response<Bytes>, Value) {
        let response: Response<Bytes> = denial.respond(HeaderMap::new(), Some("id"));
        let problem = serde_json::from_slice(response.body()).unwrap();
        (response, problem)
    }

    fn key_missing(hidden: bool) -> Denial {
        Denial::KeyMissing {
            limit: "per-tenant".into(),
            part: "header.x-tenant".into(),
            hidden,
        }
    }

    #[test]
    fn a_request_without_its_key_learns_which_part_it_lacks() {
        let denial = key_missing(false);
        let (response, problem) = problem(&denial);
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        assert_eq!(
            problem,
            json!({
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
    fn a_used_up_quota_names_the_limits_and_when_to_come_back() {
        let denial = Denial::QuotaExceeded {
            violated: ["a".into(), "b".into()].into(),
            retry_after_secs: 3,
        };
        let (response, problem) = problem(&denial);
        assert_eq!(
            (response.status(), &response.headers()[RETRY_AFTER]),
            (StatusCode::TOO_MANY_REQUESTS, &3.into())
        );
        assert_eq!(problem["violated-policies"], json!(["a", "b"]));
    }

    #[test]
    fn a_hidden_limit_is_named_in_no_problem() {
        let limits: [(Arc<str>, bool); 3] =
            [("a".into(), true), ("b".into(), false), ("c".into(), true)];
        let violated: ViolatedLimits = limits
            .iter()
            .map(|(name, hidden)| (name, *hidden))
            .collect();
        assert_eq!(violated.all(), ["b".into(), "a".into(), "c".into()]);
        fn exceeded(violated: ViolatedLimits) -> Denial {
            Denial::QuotaExceeded {
                violated,
                retry_after_secs: 3,
            }
        }
        assert_eq!(
            problem(&exceeded(violated)).1["violated-policies"],
            json!(["b"])
        );
        let one = limits[..1].iter().map(|(name, hidden)| (name, *hidden));
        let (response, hidden) = problem(&exceeded(one.collect()));
        assert_eq!(
            (response.status(), &response.headers()[RETRY_AFTER]),
            (StatusCode::TOO_MANY_REQUESTS, &3.into())
        );
        assert_eq!(hidden.get("violated-policies"), None);
        let (_, lacking) = problem(&key_missing(true));
        assert_eq!(
            (lacking.get("limit"), &lacking["missing"]),
            (None, &json!("header.x-tenant"))
        );
        assert!(!lacking.to_string().contains("per-tenant"), "{lacking}");
        let (_, lacking) = problem(&Denial::NoClientAddress {
            limit: "per-tenant".into(),
            hidden: true,
        });
        assert!(!lacking.to_string().contains("per-tenant"), "{lacking}");
    }
}

//! Every failure of the gateway itself, and the one table that gives each its answer.
//!
//! Guarantees that no other file writes a status code of the gateway's own. Bodies are
//! `application/problem+json` (RFC 9457).

mod sending;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tollgate_limiter::request::denial::Denial;
use tollgate_limiter::request::problem::ProblemBody;
use tollgate_limiter::request::request_id::REQUEST_ID;

use crate::body::BodyFailure;
use crate::grpc::{self, GrpcStatus, Refusal};
use crate::header_map_pool;

/// Why the gateway answers itself instead of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A request that is not HTTP, or could be read in two ways. Names the rule that it broke.
    BadRequest(&'static str),
    /// The client ended its connection, or the request's stream, within the request's body.
    ClientGone,
    /// A limit refuses the request.
    Denied(Denial),
    NoRoute,
    /// The listener serves this by HTTPS only: the client is sent there for good, with 301 where
    /// every client knows what to do, else with 308, which keeps the method and the body.
    ServedByHttps {
        location: HeaderValue,
        safe_method: bool,
    },
    /// The path takes other methods, listed here.
    MethodNotAllowed(HeaderValue),
    /// The client was too slow to send its header section or its body.
    RequestTimeout,
    /// The client sent its body more slowly than the least rate of the listener.
    BodyTooSlow,
    BodyTooLarge,
    UriTooLong,
    HeadersTooLarge,
    /// The request is for a host that this connection is not for.
    Misdirected,
    /// The client's address is in no network that is served.
    NetworkRefused,
    /// The client has no credentials, or wrong ones.
    Unauthenticated {
        challenges: Arc<[HeaderValue]>,
        reason: &'static str,
    },
    /// The client is known, and may not use the route.
    IdentityRefused {
        challenges: Arc<[HeaderValue]>,
        reason: &'static str,
    },
    /// The route is under maintenance.
    Maintenance {
        retry_after_secs: u64,
    },
    /// Too many attempts to authenticate have failed: the seconds until the next is checked.
    AttemptsLimited(u64),
    /// The client cannot be authenticated at the moment.
    AuthenticationUnavailable {
        reason: &'static str,
        /// The attempt to find out has cost something.
        has_cost: bool,
    },
    /// The answer of an authenticating service.
    Relayed(Arc<RelayedAnswer>),
    /// More requests in flight than the gateway takes.
    Overloaded,
    /// The upstream has no endpoint to try.
    NoEndpoint,
    /// The upstream has as many requests or connections as its bounds let it have.
    UpstreamOverloaded,
    /// The upstream has as many requests waiting as it answers fast.
    ConcurrencyLimited,
    /// The gateway has no descriptor, port or buffer left for a connection to the upstream.
    Exhausted,
    ConnectFailed,
    /// The upstream closed or reset the connection before it answered.
    UpstreamClosed,
    /// The upstream's answer is not HTTP.
    UpstreamInvalid,
    /// The upstream takes no WebSocket in the version of HTTP that it speaks.
    WebSocketUnsupported,
    ConnectTimeout,
    /// The upstream cannot be trusted, or does not trust the gateway.
    TlsFailed,
    ResponseTimeout,
    /// The request's time was over before any upstream had it.
    ForwardTimeout,
    /// The deadline that a call of gRPC set itself has passed.
    CallOverdue,
    /// The deadline of the call has passed before any upstream had the call.
    UnsentCallOverdue,
    /// A feature of HTTP that this gateway does not have.
    NotImplemented(&'static str),
    /// Neither HTTP/1.0, HTTP/1.1 nor HTTP/2.
    VersionNotSupported,
    /// A bug: the request panicked.
    Panicked,
}

/// The answer of a service that does not let a request pass.
#[derive(Debug, PartialEq, Eq)]
pub struct RelayedAnswer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// The status that is counted for a client that left before there was an answer: 499, as in nginx.
/// No RFC has one.
pub fn client_closed() -> StatusCode {
    StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST)
}

struct Row {
    status: StatusCode,
    /// The problem's name: the last part of its type, and a label in metrics and logs.
    name: &'static str,
    detail: &'static str,
    /// The connection has to be closed, since its bytes cannot be trusted any more.
    close: bool,
}

const fn row(status: StatusCode, name: &'static str, detail: &'static str) -> Row {
    Row {
        status,
        name,
        detail,
        close: false,
    }
}

const fn closing(status: StatusCode, name: &'static str, detail: &'static str) -> Row {
    Row {
        status,
        name,
        detail,
        close: true,
    }
}

impl Row {
    fn problem(&self, request_id: &HeaderValue) -> Bytes {
        let body = ProblemBody {
            status: self.status,
            name: self.name,
            detail: self.detail,
            request_id: request_id.to_str().ok(),
            violated: None,
            members: &[],
        };
        body.to_json()
    }
}

/// Seconds of Retry-After where a request could be tried again at once.
const RETRY_AFTER_SECS: u64 = 1;

impl Failure {
    /// The failure that a broken request body is answered with.
    pub fn from_body_error(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut causes = std::iter::successors(Some(error), |&cause| cause.source());
        match causes.find_map(|cause| cause.downcast_ref::<BodyFailure>()) {
            Some(BodyFailure::Timeout) => Self::RequestTimeout,
            Some(BodyFailure::TooSlow) => Self::BodyTooSlow,
            Some(BodyFailure::TooLarge) => Self::BodyTooLarge,
            Some(BodyFailure::Malformed) => Self::BadRequest("the request body is malformed"),
            None => Self::ClientGone,
        }
    }

    fn row(&self) -> Row {
        use StatusCode as S;
        match self {
            Self::BadRequest(why) => closing(S::BAD_REQUEST, "bad-request", why),
            // For a client that has ended its half of the connection alone.
            Self::ClientGone => {
                closing(S::BAD_REQUEST, "bad-request", "the request body broke off")
            }
            Self::ServedByHttps { safe_method, .. } => {
                let status = if *safe_method {
                    S::MOVED_PERMANENTLY
                } else {
                    S::PERMANENT_REDIRECT
                };
                row(
                    status,
                    "served-by-https",
                    "this is served by HTTPS only: see Location",
                )
            }
            Self::NoRoute => row(
                S::NOT_FOUND,
                "no-route",
                "no route takes this host and path",
            ),
            Self::MethodNotAllowed(_) => row(
                S::METHOD_NOT_ALLOWED,
                "method-not-allowed",
                "the path takes other methods: see Allow",
            ),
            Self::RequestTimeout => closing(
                S::REQUEST_TIMEOUT,
                "request-timeout",
                "the request arrived too slowly",
            ),
            Self::BodyTooSlow => closing(
                S::REQUEST_TIMEOUT,
                "body-too-slow",
                "the request body arrived more slowly than the least rate",
            ),
            Self::BodyTooLarge => closing(
                S::PAYLOAD_TOO_LARGE,
                "body-too-large",
                "the request body is over the limit",
            ),
            Self::UriTooLong => closing(
                S::URI_TOO_LONG,
                "uri-too-long",
                "the request target is over the limit",
            ),
            Self::HeadersTooLarge => closing(
                S::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "headers-too-large",
                "the header section is over the limit",
            ),
            Self::Misdirected => row(
                S::MISDIRECTED_REQUEST,
                "misdirected",
                "this connection is not for this host: open another one",
            ),
            Self::NetworkRefused => row(
                S::FORBIDDEN,
                "network-refused",
                "clients of this network are not served here",
            ),
            Self::Maintenance { .. } => row(
                S::SERVICE_UNAVAILABLE,
                "maintenance",
                "this is under maintenance: come back after Retry-After",
            ),
            Self::Unauthenticated { reason, .. } => row(S::UNAUTHORIZED, "unauthenticated", reason),
            Self::IdentityRefused { reason, .. } => row(S::FORBIDDEN, "identity-refused", reason),
            Self::AttemptsLimited(_) => row(
                S::TOO_MANY_REQUESTS,
                "attempts-limited",
                "too many attempts to authenticate have failed: see Retry-After",
            ),
            Self::AuthenticationUnavailable { reason, .. } => {
                row(S::SERVICE_UNAVAILABLE, "authentication-unavailable", reason)
            }
            Self::Relayed(answer) => row(
                answer.status,
                "refused-by-service",
                "the service that knows clients refuses this",
            ),
            // The problem of a denial says more.
            Self::Denied(denial) => row(denial.status(), denial.name(), ""),
            Self::Overloaded => row(
                S::SERVICE_UNAVAILABLE,
                "overloaded",
                "the gateway has as many requests in flight as it takes",
            ),
            Self::NoEndpoint => row(
                S::SERVICE_UNAVAILABLE,
                "no-endpoint",
                "the upstream has no endpoint to try",
            ),
            Self::Exhausted => row(
                S::SERVICE_UNAVAILABLE,
                "gateway-exhausted",
                "the gateway has no descriptor or port left for a connection to the upstream",
            ),
            Self::UpstreamOverloaded => row(
                S::SERVICE_UNAVAILABLE,
                "upstream-overloaded",
                "the upstream has as many requests as it takes",
            ),
            Self::ConcurrencyLimited => row(
                S::SERVICE_UNAVAILABLE,
                "concurrency-limited",
                "as many requests wait for the upstream as it answers fast",
            ),
            Self::ConnectFailed => row(
                S::BAD_GATEWAY,
                "connect-failed",
                "the upstream did not accept a connection",
            ),
            Self::UpstreamClosed => row(
                S::BAD_GATEWAY,
                "upstream-closed",
                "the upstream closed the connection before it answered",
            ),
            Self::UpstreamInvalid => row(
                S::BAD_GATEWAY,
                "upstream-invalid",
                "the upstream's answer is not HTTP",
            ),
            Self::WebSocketUnsupported => row(
                S::BAD_GATEWAY,
                "websocket-unsupported",
                "the upstream speaks HTTP/2 and takes no WebSocket over it",
            ),
            Self::ConnectTimeout => row(
                S::GATEWAY_TIMEOUT,
                "connect-timeout",
                "the upstream did not accept a connection in time",
            ),
            Self::TlsFailed => row(
                S::BAD_GATEWAY,
                "tls-failed",
                "no TLS connection to the upstream could be made",
            ),
            Self::ResponseTimeout => row(
                S::GATEWAY_TIMEOUT,
                "response-timeout",
                "the upstream did not answer in time",
            ),
            Self::ForwardTimeout => row(
                S::GATEWAY_TIMEOUT,
                "not-forwarded-in-time",
                "the time of the request was over before an upstream had it",
            ),
            Self::CallOverdue | Self::UnsentCallOverdue => row(
                S::GATEWAY_TIMEOUT,
                "call-overdue",
                "the call's deadline has passed",
            ),
            Self::NotImplemented(what) => closing(S::NOT_IMPLEMENTED, "not-implemented", what),
            Self::VersionNotSupported => closing(
                S::HTTP_VERSION_NOT_SUPPORTED,
                "version-not-supported",
                "the gateway speaks HTTP/1.1 and HTTP/2",
            ),
            Self::Panicked => closing(
                S::INTERNAL_SERVER_ERROR,
                "internal-error",
                "the gateway failed at this request: see its log",
            ),
        }
    }

    /// The status that a client of gRPC is answered with. A client may send a call that is
    /// `Unavailable` again by itself: a call that an upstream may still carry out is not
    /// `Unavailable`. A call whose connection broke is, as gRPC defines it.
    fn grpc_status(&self) -> GrpcStatus {
        match self {
            Self::Denied(denial) => match denial.status() {
                _ if denial.retry_after_secs().is_some() => GrpcStatus::ResourceExhausted,
                StatusCode::BAD_REQUEST => GrpcStatus::InvalidArgument,
                _ => GrpcStatus::Internal,
            },
            Self::Relayed(answer) => match answer.status.as_u16() {
                400 => GrpcStatus::Internal,
                403 => GrpcStatus::PermissionDenied,
                413 | 414 | 429 | 431 => GrpcStatus::ResourceExhausted,
                _ => GrpcStatus::Unauthenticated,
            },
            Self::Unauthenticated { .. } => GrpcStatus::Unauthenticated,
            Self::NetworkRefused | Self::IdentityRefused { .. } => GrpcStatus::PermissionDenied,
            Self::NoRoute
            | Self::ServedByHttps { .. }
            | Self::Misdirected
            | Self::MethodNotAllowed(_)
            | Self::NotImplemented(_)
            | Self::WebSocketUnsupported
            | Self::VersionNotSupported => GrpcStatus::Unimplemented,
            Self::BodyTooLarge
            | Self::UriTooLong
            | Self::HeadersTooLarge
            | Self::AttemptsLimited(_) => GrpcStatus::ResourceExhausted,
            Self::Overloaded | Self::UpstreamOverloaded | Self::Exhausted | Self::NoEndpoint => {
                GrpcStatus::Unavailable
            }
            Self::AuthenticationUnavailable { .. }
            | Self::Maintenance { .. }
            | Self::ConcurrencyLimited
            | Self::ConnectFailed
            | Self::ConnectTimeout
            | Self::TlsFailed
            | Self::UpstreamClosed => GrpcStatus::Unavailable,
            Self::ResponseTimeout
            | Self::ForwardTimeout
            | Self::CallOverdue
            | Self::UnsentCallOverdue => GrpcStatus::DeadlineExceeded,
            Self::ClientGone | Self::RequestTimeout | Self::BodyTooSlow => GrpcStatus::Cancelled,
            Self::BadRequest(_) | Self::UpstreamInvalid | Self::Panicked => GrpcStatus::Internal,
        }
    }

    /// Seconds until the client may try again. `None`: the answer has no Retry-After.
    fn retry_after_secs(&self) -> Option<u64> {
        match self {
            Self::Denied(denial) => denial.retry_after_secs(),
            Self::AttemptsLimited(seconds) => Some(*seconds),
            Self::Maintenance { retry_after_secs } => Some(*retry_after_secs),
            Self::AuthenticationUnavailable { .. } | Self::ConcurrencyLimited => {
                Some(RETRY_AFTER_SECS)
            }
            Self::Overloaded | Self::UpstreamOverloaded | Self::Exhausted | Self::NoEndpoint => {
                Some(RETRY_AFTER_SECS)
            }
            _ => None,
        }
    }

    /// The status code this failure is answered with.
    pub fn status(&self) -> StatusCode {
        self.row().status
    }

    /// Whether the answer is that of a service of the operator.
    pub fn is_relayed(&self) -> bool {
        matches!(self, Self::Relayed(_))
    }

    /// A short name for logs and metrics.
    pub fn name(&self) -> &'static str {
        self.row().name
    }

    /// The whole answer to a call of gRPC.
    pub fn respond_to_call<B: From<Bytes>>(&self, request_id: &HeaderValue) -> Response<B> {
        let mut headers = header_map_pool::take();
        headers.insert(REQUEST_ID, request_id.clone());
        let (message, violated) = match self {
            Self::Denied(denial) => (denial.detail(), denial.violated()),
            _ => (self.row().detail.into(), &[][..]),
        };
        let refusal = Refusal {
            status: self.grpc_status(),
            message: &message,
            retry_after_secs: self.retry_after_secs(),
            violated,
        };
        grpc::answer(&refusal, headers)
    }

    /// The whole answer.
    pub fn respond<B: From<Bytes>>(&self, request_id: &HeaderValue) -> Response<B> {
        if let Self::Denied(denial) = self {
            let mut response = denial.respond(header_map_pool::take(), request_id.to_str().ok());
            response
                .headers_mut()
                .insert(REQUEST_ID, request_id.clone());
            return response;
        }
        if let Self::Relayed(answer) = self {
            let mut response = Response::new(B::from(answer.body.clone()));
            *response.status_mut() = answer.status;
            response.headers_mut().clone_from(&answer.headers);
            return response;
        }
        let row = self.row();
        let mut response = Response::new(B::from(row.problem(request_id)));
        *response.status_mut() = row.status;
        *response.headers_mut() = header_map_pool::take();
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        headers.insert(REQUEST_ID, request_id.clone());
        if row.close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        match self {
            Self::MethodNotAllowed(allow) => {
                headers.insert(ALLOW, allow.clone());
            }
            Self::ServedByHttps { location, .. } => {
                headers.insert(LOCATION, location.clone());
            }
            Self::Unauthenticated { challenges, .. } | Self::IdentityRefused { challenges, .. } => {
                for challenge in &**challenges {
                    headers.append(WWW_AUTHENTICATE, challenge.clone());
                }
            }
            _ => {}
        }
        if let Some(seconds) = self.retry_after_secs() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl From<Denial> for Failure {
    fn from(denial: Denial) -> Self {
        Self::Denied(denial)
    }
}

#[cfg(test)]
mod tests;

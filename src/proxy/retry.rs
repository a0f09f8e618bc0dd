//! When a request is sent a second time. The whole law, in one place:
//!
//! - No connection could be opened: nothing was sent, so the next endpoint is tried, each at most once and
//!   [`MAX_ENDPOINTS`] in all.
//! - The connection broke and the request came back unsent: once more, over a new connection.
//! - A connection that had been used before broke before it answered: the server may have closed it for idleness just
//!   as the request set out. Once more over a new connection, if the request is idempotent (RFC 9110 §9.2.2), has no
//!   body, and the upstream's budget bears it.
//! - Nothing else is ever sent twice.

use std::error::Error;

use http::{Method, Request};

use super::body::Upload;
use crate::body::BodyFailure;
use crate::error::Failure;
use crate::upstream::Upstream;

/// Endpoints one request goes to at most: each may cost a whole connect timeout.
pub const MAX_ENDPOINTS: usize = 3;

/// An exchange that failed before there was a response.
pub struct Failed {
    pub failure: Failure,
    pub permission: Permission,
}

/// What may be done about it.
pub enum Permission {
    /// The request never left.
    Unsent(Box<Request<Upload>>),
    /// The connection may have been closed before the request came.
    Stale,
    Never,
}

impl Failed {
    /// `unsent`: the request, if none of it was sent. `used`: the connection had carried another exchange before.
    pub fn new(error: &hyper::Error, unsent: Option<Request<Upload>>, used: bool) -> Self {
        let failure = explain(error);
        let permission = match unsent {
            Some(request) => Permission::Unsent(Box::new(request)),
            None if used && failure == Failure::UpstreamClosed => Permission::Stale,
            None => Permission::Never,
        };
        Self { failure, permission }
    }
}

/// Whose fault it was: the request body's, which says so itself, or the upstream's.
fn explain(error: &hyper::Error) -> Failure {
    let mut causes = std::iter::successors(error.source(), |&cause| cause.source());
    match causes.find_map(|cause| cause.downcast_ref::<BodyFailure>()) {
        Some(BodyFailure::Timeout) => Failure::RequestTimeout,
        Some(BodyFailure::TooLarge) => Failure::BodyTooLarge,
        Some(BodyFailure::Malformed) => Failure::BadRequest("the request body is malformed"),
        None if error.is_user() => Failure::BadRequest("the request body broke off"),
        None if error.is_parse() || error.is_parse_too_large() => Failure::UpstreamInvalid,
        None => Failure::UpstreamClosed,
    }
}

/// The one retry a request has.
#[derive(Default)]
pub struct Retry {
    copy: Option<Request<Upload>>,
    spent: bool,
}

impl Retry {
    /// The request goes out for the second time, which takes a new connection.
    pub fn is_spent(&self) -> bool {
        self.spent
    }

    /// Keeps a copy of what may have to be sent again. Only needed before a used connection: a new one is never stale.
    /// A copy of twelve fields takes a quarter of a microsecond, about a hundredth of what a forwarded request costs.
    pub fn remember(&mut self, request: &Request<Upload>) {
        if !self.spent && is_replayable(request) {
            self.copy = Some(copy(request));
        }
    }

    /// The request to send again, over a new connection; or what to tell the client.
    pub fn decide(&mut self, failed: Failed, upstream: &Upstream) -> Result<Request<Upload>, Failure> {
        let spent = std::mem::replace(&mut self.spent, true);
        let again = match failed.permission {
            _ if spent => None,
            Permission::Unsent(request) => Some(*request),
            Permission::Stale => self.copy.take().filter(|_| upstream.budget().withdraw()),
            Permission::Never => None,
        };
        again.inspect(|_| upstream.meters().retried()).ok_or(failed.failure)
    }
}

fn is_replayable(request: &Request<Upload>) -> bool {
    let idempotent = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
    );
    idempotent && request.body().progress().is_none()
}

fn copy(request: &Request<Upload>) -> Request<Upload> {
    let mut copy = Request::new(Upload::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    copy
}

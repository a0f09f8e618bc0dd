//! When a request is sent a second time. The whole law, in one place:
//!
//! - No connection could be opened: nothing was sent, so the next endpoint is tried, each at most once and
//!   [`MAX_ENDPOINTS`] in all.
//! - The connection broke and the request came back unsent: once more, over a new connection.
//! - A connection that had been used before broke before it answered: the server may have closed it for idleness just
//!   as the request set out. Once more over a new connection, if the request is idempotent (RFC 9110 §9.2.2), has no
//!   body, and the upstream's budget bears it.
//! - Nothing else is ever sent twice.

use http::Method;

use super::upload::Upload;
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
    /// Nothing of the request left, and nothing of its body was taken from the client.
    Unsent(Upload),
    /// The connection may have been closed before the request came, which has no body.
    Stale(Upload),
    Never,
}

/// Whose fault it was that a request's body did not arrive.
pub fn body_failure(error: &(dyn std::error::Error + 'static)) -> Failure {
    let mut causes = std::iter::successors(Some(error), |&cause| cause.source());
    match causes.find_map(|cause| cause.downcast_ref::<BodyFailure>()) {
        Some(BodyFailure::Timeout) => Failure::RequestTimeout,
        Some(BodyFailure::TooLarge) => Failure::BodyTooLarge,
        Some(BodyFailure::Malformed) => Failure::BadRequest("the request body is malformed"),
        None => Failure::BadRequest("the request body broke off"),
    }
}

/// The one retry a request has.
#[derive(Default)]
pub struct Retry {
    spent: bool,
}

impl Retry {
    /// The request goes out for the second time, which takes a new connection.
    pub fn is_spent(&self) -> bool {
        self.spent
    }

    /// What to send again with the same head, over a new connection; or what to tell the client.
    pub fn decide(&mut self, failed: Failed, method: &Method, upstream: &Upstream) -> Result<Upload, Failure> {
        let spent = std::mem::replace(&mut self.spent, true);
        let again = match failed.permission {
            _ if spent => None,
            Permission::Unsent(upload) => Some(upload),
            Permission::Stale(upload) => Some(upload).filter(|_| is_replayable(method) && upstream.budget().withdraw()),
            Permission::Never => None,
        };
        again.inspect(|_| upstream.metrics().retried()).ok_or(failed.failure)
    }
}

/// Idempotent (RFC 9110 §9.2.2).
fn is_replayable(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE)
}

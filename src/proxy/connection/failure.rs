//! Why an exchange failed before there was a response, and whether its request may be sent again.

use super::upload::Upload;
use crate::body::BodyFailure;
use crate::error::Failure;
use crate::upstream::endpoints::PickedEndpoint;

/// An exchange that failed before there was a response.
pub struct FailedExchange {
    pub failure: Failure,
    pub permission: RetryPermission,
    /// `None`: the client was at fault.
    pub fault: Option<Box<UpstreamFault>>,
}

/// How an endpoint failed.
pub struct UpstreamFault {
    pub endpoint: PickedEndpoint,
    pub reason: String,
}

impl FailedExchange {
    /// The failure to answer with. Logs it, once in a while.
    pub fn into_failure(self, upstream: &str) -> Failure {
        if let Some(fault) = self.fault {
            fault.endpoint.log_failure(upstream, &fault.reason);
        }
        self.failure
    }
}

/// Whether the request of a failed exchange may be sent again.
pub enum RetryPermission {
    /// Yes: nothing of the request was sent, and nothing of its body was taken from the client.
    Unsent(Upload),
    /// Yes: the upstream says that it has not processed it, or it reached no upstream.
    Refused(Upload),
    /// If the request is idempotent: it has no body, and the connection may have been closed before the request came.
    Stale(Upload),
    Never,
}

/// The failure that a broken request body is answered with.
pub fn body_failure(error: &(dyn std::error::Error + 'static)) -> Failure {
    let mut causes = std::iter::successors(Some(error), |&cause| cause.source());
    match causes.find_map(|cause| cause.downcast_ref::<BodyFailure>()) {
        Some(BodyFailure::Timeout) => Failure::RequestTimeout,
        Some(BodyFailure::TooSlow) => Failure::BodyTooSlow,
        Some(BodyFailure::TooLarge) => Failure::BodyTooLarge,
        Some(BodyFailure::Malformed) => Failure::BadRequest("the request body is malformed"),
        None => Failure::BadRequest("the request body broke off"),
    }
}

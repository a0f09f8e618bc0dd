//! When a request is sent a second time. All the rules, in one place:
//!
//! - No connection could be opened: nothing was sent, so the next endpoint is tried, each at most once and
//!   [`MAX_ENDPOINTS`] in all.
//! - The connection broke before anything of the request was sent: once more, over a new connection.
//! - An upstream of HTTP/2 says that it has not processed the request, by GOAWAY or REFUSED_STREAM (RFC 9113 §8.7): up to
//!   [`MOST_REFUSALS`] times, over another connection where the upstream's bounds allow it. A body is sent again if no more than 64 KiB of it were sent.
//! - A connection that had been used before broke before it answered: the server may have closed an idle connection
//!   just as the request was sent. Once more over a new connection, if the request is idempotent (RFC 9110 §9.2.2) and
//!   has no body, and if the upstream's retry budget pays for it.
//! - Nothing else is ever sent twice.

use http::Method;

use super::connection::failure::{FailedExchange, RetryPermission};
use super::connection::upload::Upload;
use crate::error::Failure;
use crate::upstream::Upstream;

/// Most endpoints that one request goes to: each may cost a whole connect timeout.
pub const MAX_ENDPOINTS: usize = 3;

/// Most refusals that one request meets with: an upstream that refuses everything must not be asked for ever.
const MOST_REFUSALS: usize = 3;

/// The retries that a request has.
#[derive(Default)]
pub struct Retry {
    spent: bool,
    /// The connections that did not take the request.
    refused_by: Vec<u64>,
}

impl Retry {
    /// Whether the request goes out for the second time, which takes a new connection.
    pub fn is_spent(&self) -> bool {
        self.spent
    }

    /// The connections of HTTP/2 that did not take the request, by their numbers.
    pub fn refused_by(&self) -> &[u64] {
        &self.refused_by
    }

    /// The body to send again with the same head, over a new connection.
    ///
    /// # Errors
    /// When the request must not be sent again: the failure to answer with.
    pub fn decide(
        &mut self,
        mut failed: Box<FailedExchange>,
        method: &Method,
        upstream: &Upstream,
    ) -> Result<Upload, Failure> {
        let permission = std::mem::replace(&mut failed.permission, RetryPermission::Never);
        if let RetryPermission::Refused { upload, by } = permission {
            self.refused_by.push(by);
            if self.refused_by.len() > MOST_REFUSALS {
                return Err(failed.into_failure(&upstream.spec().name));
            }
            upstream.metrics().retried();
            return Ok(upload);
        }
        let spent = std::mem::replace(&mut self.spent, true);
        match permission {
            RetryPermission::Unsent(upload) if !spent => Ok(upload),
            RetryPermission::Stale(upload) if !spent && is_idempotent(method) && upstream.budget().withdraw() => {
                Ok(upload)
            }
            _ => Err(failed.into_failure(&upstream.spec().name)),
        }
        .inspect(|_| upstream.metrics().retried())
    }
}

/// RFC 9110 §9.2.2.
fn is_idempotent(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE)
}

//! When a request is sent a second time although its route has no `retry`. The rules of routes are
//! in `attempts`.
//!
//! - No connection could be opened: nothing was sent, so the next endpoint is tried, each at most
//!   once and [`MAX_ENDPOINTS`] in all.
//! - The connection broke before anything of the request was sent: once more, over a new
//!   connection.
//! - An upstream of HTTP/2 says that it has not processed the request (RFC 9113 §8.7): over another
//!   connection where the upstream's bounds allow it, until [`MOST_REFUSALS`] are spent or the time
//!   that connecting may take is over. REFUSED_STREAM spends one. A GOAWAY does only if its
//!   connection carried no request at all: one that carried some brought those further, so that the
//!   others' turn comes. The upstream's retry budget pays where the connection has processed
//!   nothing at all. A body is sent again if no more than 64 KiB of it were sent.
//! - A connection that had been used before broke before it answered: the server may have closed an
//!   idle connection just as the request was sent. Once more over a new connection, if the request
//!   is idempotent (RFC 9110 §9.2.2) and has no body, and if the upstream's retry budget pays for
//!   it.
//! - Nothing else is sent twice, unless a route says so.

use std::time::Duration;

use http::Method;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::connection::exchange::timeouts_of;
use super::connection::failure::{FailedExchange, RetryPermission};
use super::connection::stream_counts::StreamCounts;
use super::connection::upload::Upload;
use crate::upstream::{Destination, Upstream, UpstreamSpec};
use tollgate_limiter::clock::{self, Instant};
use tollgate_wire::error::Failure;
use tollgate_wire::http::deadline::{UpstreamWait, Wait as _};

/// Most endpoints that one request goes to: each may cost a whole connect timeout.
pub const MAX_ENDPOINTS: usize = 3;

/// Most refusals of one request: an upstream that refuses everything must not be asked for ever.
const MOST_REFUSALS: usize = 3;

/// The waits between refusals and the next attempts: none, then this one, then each twice as long
/// as the wait before.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(160);

/// The retries that a request has.
#[derive(Default)]
pub struct Retry {
    spent: bool,
    pauses: Pauses,
    /// Refusals by connections that carried nothing, or that may carry others.
    refusals: usize,
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

    /// The body to send again with the same head, over a new connection. Waits before the request
    /// goes again to an upstream that has refused it.
    ///
    /// # Errors
    /// When the request must not be sent again: the failure to answer with.
    pub async fn decide(
        &mut self,
        mut failed: Box<FailedExchange>,
        method: &Method,
        destination: Destination<'_>,
    ) -> Result<Upload, Failure> {
        let Destination { upstream, spec } = destination;
        let again = match std::mem::replace(&mut failed.permission, RetryPermission::Never) {
            RetryPermission::Refused {
                upload,
                by,
                streams,
            } => {
                self.refused_by.push(by);
                self.refusals += 1;
                if self.may_go_on(spec).await && is_paid(&streams, upstream) {
                    Some(upload)
                } else {
                    None
                }
            }
            RetryPermission::Unprocessed { upload, streams } => {
                let in_time = self.may_go_on(spec).await;
                // Counted after the pause: by then, all exchanges of the connection have ended.
                self.refusals += usize::from(streams.are_in_vain());
                if in_time && self.refusals <= MOST_REFUSALS && is_paid(&streams, upstream) {
                    Some(upload)
                } else {
                    None
                }
            }
            RetryPermission::Unsent(upload) => {
                if self.spend() {
                    Some(upload)
                } else {
                    None
                }
            }
            // A part of the body may be gone.
            RetryPermission::Stale(upload) if upload.has_body() => None,
            RetryPermission::Stale(upload) => {
                if self.spend() && is_idempotent(method) && upstream.budget().withdraw() {
                    Some(upload)
                } else {
                    None
                }
            }
            RetryPermission::Never => None,
        };
        match again {
            Some(upload) => {
                upstream.metrics().retried();
                Ok(upload)
            }
            None => Err(failed.into_failure(&upstream.spec().name)),
        }
    }

    /// Spends the one retry over a new connection. Returns whether it was left.
    fn spend(&mut self) -> bool {
        !std::mem::replace(&mut self.spent, true)
    }

    /// Whether the request may be sent again after a refusal. Waits before that.
    async fn may_go_on(&mut self, spec: &UpstreamSpec) -> bool {
        let limit = UpstreamWait::Connect.limit(&timeouts_of(spec));
        self.refusals <= MOST_REFUSALS && self.pauses.wait(limit).await
    }
}

/// Whether a request may be sent again that a connection with these streams has not taken. The
/// retry budget pays, unless the upstream works on other streams. A server that refuses everything
/// is overloaded, and must not be asked four times for each request.
fn is_paid(streams: &StreamCounts, upstream: &Upstream) -> bool {
    !streams.are_in_vain() || upstream.budget().withdraw()
}

/// The waits of a request that is refused again and again.
#[derive(Default)]
struct Pauses {
    next: Duration,
    /// When the request is not sent again any more.
    deadline: Option<Instant>,
}

impl Pauses {
    /// Waits. Returns whether the request may go on, for no longer than `limit` in all.
    async fn wait(&mut self, limit: Duration) -> bool {
        let now = clock::now();
        let deadline = *self.deadline.get_or_insert(now + limit);
        if now + self.next >= deadline {
            return false;
        }
        if self.next.is_zero() {
            yield_now().await
        } else {
            sleep(self.next).await
        }
        self.next = (self.next * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        true
    }
}

/// Whether the method is idempotent (RFC 9110 §9.2.2).
pub fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_and_end_with_the_time_that_connecting_may_take() {
        let mut pauses = Pauses::default();
        let begin = clock::now();
        let mut at = Vec::new();
        while pauses.wait(Duration::from_secs(1)).await {
            at.push((clock::now() - begin).as_millis());
        }
        assert_eq!(at, [0, 10, 30, 70, 150, 310, 470, 630, 790, 950]);
    }
}

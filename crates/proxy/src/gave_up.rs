//! Waits for an endpoint that are dropped before their end, and whether the endpoint is at fault.
//!
//! Guarantees that an endpoint is blamed only if it had at least half of the request's time: else
//! another endpoint, or a wait in the gateway, has used that up.

use std::future::Future;
use std::sync::Arc;

use super::request_source::RequestSource;
use crate::upstream::Upstream;
use crate::upstream::endpoints::Endpoint;
use tollgate_limiter::clock::{self, Instant};

/// A wait for an endpoint to do its part. Dropped before its end, it may count as a failure of the
/// endpoint.
pub struct EndpointWait<'a> {
    upstream: &'a Upstream,
    endpoint: Arc<Endpoint>,
    since: Instant,
    /// Milliseconds after which the endpoint has failed. Small: each exchange has room for them.
    blamed_after: u32,
    awaited: AwaitedPart,
    is_over: bool,
}

/// The part of the endpoint that is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AwaitedPart {
    Connection,
    Response,
}

/// Milliseconds after which an endpoint fails that cannot fail by not answering.
const NEVER: u32 = u32::MAX;

impl<'a> EndpointWait<'a> {
    /// The wait for the response to a request that was sent to `endpoint`. `None`: the request has
    /// no deadline, and latencies are not measured.
    pub fn for_response(
        upstream: &'a Upstream,
        endpoint: &Arc<Endpoint>,
        since: Instant,
        source: &RequestSource<'_>,
    ) -> Option<Self> {
        if source.deadline.is_none() && !upstream.measures_latency() {
            return None;
        }
        Some(Self {
            upstream,
            endpoint: Arc::clone(endpoint),
            since,
            blamed_after: blamed_after(source, since),
            awaited: AwaitedPart::Response,
            is_over: false,
        })
    }

    /// Waits for a connection to `endpoint` to make `progress`.
    pub async fn connecting<T>(
        upstream: &'a Upstream,
        endpoint: &Arc<Endpoint>,
        source: &RequestSource<'_>,
        progress: impl Future<Output = T>,
    ) -> T {
        let since = clock::now();
        let blamed_after = if upstream.ejects() {
            blamed_after(source, since)
        } else {
            NEVER
        };
        let mut wait = None;
        if blamed_after != NEVER {
            wait = Some(Self {
                upstream,
                endpoint: Arc::clone(endpoint),
                since,
                blamed_after,
                awaited: AwaitedPart::Connection,
                is_over: false,
            });
        }
        let done = progress.await;
        if let Some(wait) = &mut wait {
            wait.end();
        }
        done
    }

    /// The endpoint has done its part, or has failed by itself.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// Records how long the endpoint has not answered by `now`.
    #[cold]
    pub fn record_wait(&self, now: Instant) {
        self.upstream
            .record_unanswered(&self.endpoint, now.saturating_duration_since(self.since));
    }
}

/// Milliseconds from `since` on after which an endpoint has failed.
fn blamed_after(source: &RequestSource<'_>, since: Instant) -> u32 {
    let Some(deadline) = source.deadline else {
        return NEVER;
    };
    let left = deadline.saturating_duration_since(since);
    let whole = deadline.saturating_duration_since(source.begun);
    if 2 * left >= whole {
        u32::try_from(left.as_millis()).unwrap_or(NEVER)
    } else {
        NEVER
    }
}

impl Drop for EndpointWait<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let now = clock::now();
        let waited = now.saturating_duration_since(self.since).as_millis();
        if self.blamed_after != NEVER && waited >= u128::from(self.blamed_after) {
            let reason = match self.awaited {
                AwaitedPart::Connection => {
                    "it did not take a connection within the route's timeout"
                }
                AwaitedPart::Response => "it did not answer within the route's timeout",
            };
            self.upstream.record_failure(&self.endpoint, reason);
        }
        if self.awaited == AwaitedPart::Response {
            self.record_wait(now);
        }
    }
}

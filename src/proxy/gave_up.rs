//! Requests that nobody waits for any more: whether the endpoint that they waited for is at fault.
//!
//! Guarantees that an endpoint is blamed only if it had half of the time at least: else another
//! one, or a wait, has used it up.

use std::future::Future;
use std::sync::Arc;

use super::request_source::RequestSource;
use crate::clock::{self, Instant};
use crate::upstream::Upstream;
use crate::upstream::endpoints::Endpoint;

/// Records that an endpoint did not do its part, when what waits for it is dropped before.
pub struct GaveUp<'a> {
    upstream: &'a Upstream,
    endpoint: Arc<Endpoint>,
    since: Instant,
    /// The milliseconds after which it has failed. Small: each exchange has room for it.
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

/// Of an endpoint that cannot fail by not answering.
const NEVER: u32 = u32::MAX;

impl<'a> GaveUp<'a> {
    /// The wait for the response to a request that was sent to `endpoint`. `None`: nobody asks.
    pub fn of_response(
        upstream: &'a Upstream,
        endpoint: &Arc<Endpoint>,
        since: Instant,
        source: &RequestSource<'_>,
    ) -> Option<Self> {
        let is_watched = source.deadline.is_some() || upstream.measures_latency();
        is_watched.then(|| Self {
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
        let mut watch = (blamed_after != NEVER).then(|| Self {
            upstream,
            endpoint: Arc::clone(endpoint),
            since,
            blamed_after,
            awaited: AwaitedPart::Connection,
            is_over: false,
        });
        let done = progress.await;
        if let Some(watch) = &mut watch {
            watch.end();
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

/// The milliseconds from `since` on after which an endpoint has failed.
fn blamed_after(source: &RequestSource<'_>, since: Instant) -> u32 {
    source.deadline.map_or(NEVER, |deadline| {
        let left = |since| deadline.saturating_duration_since(since);
        let has_time = 2 * left(since) >= left(source.begun);
        if has_time {
            u32::try_from(left(since).as_millis()).unwrap_or(NEVER)
        } else {
            NEVER
        }
    })
}

impl Drop for GaveUp<'_> {
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

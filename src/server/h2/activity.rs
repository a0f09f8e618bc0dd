//! The number of requests under way on an HTTP/2 connection, and since when there are none.
//!
//! Guarantees that a request counts until the body of its response has ended.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::{Frame, SizeHint};

use crate::body::{Body, BoxError};
use crate::clock::{self, Instant};

/// The requests under way on one connection.
#[derive(Debug)]
pub struct Activity {
    opened: Instant,
    count: AtomicU64,
    /// Microseconds from `opened` to the end of the last request.
    idle_since: AtomicU64,
}

/// Counts a request until it is dropped.
pub struct ActivityGuard(Arc<Activity>);

/// A response body that counts its request until it ends or is dropped.
pub struct ActiveBody {
    body: Body,
    _guard: ActivityGuard,
}

impl Activity {
    pub fn idle() -> Self {
        Self { opened: clock::now(), count: AtomicU64::new(0), idle_since: AtomicU64::new(0) }
    }

    /// Counts one more request.
    pub fn enter(self: &Arc<Self>) -> ActivityGuard {
        self.count.fetch_add(1, Relaxed);
        ActivityGuard(Arc::clone(self))
    }

    /// Since when no request is under way. `None`: at least one is.
    pub fn idle_since(&self) -> Option<Instant> {
        let idle = self.count.load(Relaxed) == 0;
        idle.then(|| self.opened + Duration::from_micros(self.idle_since.load(Relaxed)))
    }
}

impl ActivityGuard {
    /// Counts the request until the body of its response ends.
    pub fn attach(self, response: Response<Body>) -> Response<ActiveBody> {
        response.map(|body| ActiveBody { body, _guard: self })
    }
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        let elapsed = clock::now().saturating_duration_since(self.0.opened);
        self.0.idle_since.store(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX), Relaxed);
        self.0.count.fetch_sub(1, Relaxed);
    }
}

impl http_body::Body for ActiveBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

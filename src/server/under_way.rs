//! The requests that an HTTP/2 connection carries at once, counted to tell since when there is none.
//!
//! Guarantees that a request counts until its response has left.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::{Frame, SizeHint};

use crate::body::{Body, BoxError};
use crate::clock::{self, Instant};

/// What is under way on one connection.
#[derive(Debug)]
pub struct UnderWay {
    opened: Instant,
    count: AtomicU64,
    /// Microseconds from `opened` to the last request's end.
    idle_since: AtomicU64,
}

/// Counts a request while it lives.
pub struct Counter(Arc<UnderWay>);

/// A response body whose request is under way until it ends or is dropped.
pub struct Counted {
    body: Body,
    _counter: Counter,
}

impl UnderWay {
    pub fn nothing() -> Self {
        Self { opened: clock::now(), count: AtomicU64::new(0), idle_since: AtomicU64::new(0) }
    }

    /// Counts a request in.
    pub fn enter(self: &Arc<Self>) -> Counter {
        self.count.fetch_add(1, Relaxed);
        Counter(Arc::clone(self))
    }

    /// Since when no request is under way; `None`: one is.
    pub fn idle_since(&self) -> Option<Instant> {
        let idle = self.count.load(Relaxed) == 0;
        idle.then(|| self.opened + Duration::from_micros(self.idle_since.load(Relaxed)))
    }
}

impl Counter {
    /// Ends with the response's body.
    pub fn attach(self, response: Response<Body>) -> Response<Counted> {
        response.map(|body| Counted { body, _counter: self })
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        let elapsed = clock::now().saturating_duration_since(self.0.opened);
        self.0.idle_since.store(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX), Relaxed);
        self.0.count.fetch_sub(1, Relaxed);
    }
}

impl http_body::Body for Counted {
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

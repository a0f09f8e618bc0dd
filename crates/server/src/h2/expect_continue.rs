//! The interim response to a client that waits for it before it sends a body (RFC 9110 §10.1.1).
//!
//! Guarantees that the client gets the 100 when its body is first read, and none if the body has
//! come already.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http::HeaderMap;
use http::header::EXPECT;
use http_body::{Frame, SizeHint};

use tollgate_wire::body::{Body, BodySource, BoxError};
use tollgate_wire::http::h2::ReceivedBody;

/// The state that a body shares with its stream's task, which sends the 100.
#[derive(Debug, Default)]
pub struct ContinueRequest {
    wanted: AtomicBool,
    waker: AtomicWaker,
}

/// A body whose client waits for a 100.
struct ExpectedBody {
    received: ReceivedBody,
    request: Arc<ContinueRequest>,
    /// The client was sent a 100, or has sent something.
    begun: bool,
}

/// Whether the client waits for a 100.
pub fn is_expected(headers: &HeaderMap) -> bool {
    match headers.get(EXPECT) {
        Some(value) => value.as_bytes().eq_ignore_ascii_case(b"100-continue"),
        None => false,
    }
}

/// The body of a client that waits for a 100, and the request for that 100.
pub fn body(received: ReceivedBody) -> (Body, Arc<ContinueRequest>) {
    let request = Arc::new(ContinueRequest::default());
    let body = ExpectedBody {
        received,
        request: Arc::clone(&request),
        begun: false,
    };
    (Body::from_source(Box::new(body)), request)
}

impl ContinueRequest {
    /// Whether a 100 must be sent now. Wakes the task when one must.
    pub fn poll_wanted(&self, cx: &mut Context<'_>) -> bool {
        self.waker.register(cx.waker());
        self.wanted.swap(false, Relaxed)
    }
}

impl BodySource for ExpectedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = self.received.poll_frame(cx);
        if !std::mem::replace(&mut self.begun, true) && polled.is_pending() {
            self.request.wanted.store(true, Relaxed);
            self.request.waker.wake();
        }
        polled
    }

    fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.received.poll_arrived(cx)
    }

    fn is_over(&self) -> bool {
        self.received.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        self.received.size_hint()
    }

    fn ended(self: Box<Self>) {}
}

//! The body of an HTTP/2 request. Guarantees that it fails when the client takes too long over the next part of it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep_until};

use crate::body::{BodyFailure, BoxError};
use crate::clock;
use crate::http::deadline::LONGEST_WAIT;
use crate::server::spec::ListenerSpec;

/// A request body with a time limit between two reads.
pub struct TimeoutBody {
    incoming: Incoming,
    limit: Duration,
    timer: Pin<Box<Sleep>>,
    /// The timer is running for the next part.
    waiting: bool,
}

impl TimeoutBody {
    pub fn new(incoming: Incoming, spec: &ListenerSpec) -> Self {
        let limit = spec.body_timeout.min(LONGEST_WAIT);
        Self { incoming, limit, timer: Box::pin(sleep_until(clock::now() + limit)), waiting: false }
    }
}

impl http_body::Body for TimeoutBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if let Poll::Ready(polled) = Pin::new(&mut this.incoming).poll_frame(cx) {
            this.waiting = false;
            return Poll::Ready(polled.map(|frame| frame.map_err(Into::into)));
        }
        if !std::mem::replace(&mut this.waiting, true) {
            this.timer.as_mut().reset(clock::now() + this.limit);
        }
        this.timer.as_mut().poll(cx).map(|()| Some(Err(BodyFailure::Timeout.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

//! Bounds the time from a request to its answer's head, or to the answer's end.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::{Sleep, Timeout as TokioTimeout, sleep_until, timeout_at};
use tower_layer::Layer;
use tower_service::Service;

use crate::body::{Body, BoxError};
use crate::clock::Instant;
use crate::error::Failure;
use crate::gateway::exchange::Exchange;
use crate::http::deadline::LONGEST_WAIT;
use crate::route::timeouts::AnswerTimeLimits;

/// The longest that an answer may take.
#[derive(Clone, Copy)]
pub struct TimeoutLayer(pub AnswerTimeLimits);

/// A service whose answers have to come in time.
#[derive(Clone)]
pub struct Timeout<S> {
    inner: S,
    limits: AnswerTimeLimits,
}

/// A wait for an answer, with a deadline. Boxed: few routes have a timeout, and the others would carry the room for it.
pub struct TimedAnswer<F> {
    answer: Pin<Box<TokioTimeout<F>>>,
    /// When the answer's body is cut.
    end: Option<Instant>,
}

/// A body of an answer that fails at a deadline.
struct TimedBody {
    body: Body,
    deadline: Pin<Box<Sleep>>,
}

/// Why a body was cut.
#[derive(Debug, thiserror::Error)]
#[error("the request took longer than it may")]
struct RequestOverdue;

impl<S> Layer<S> for TimeoutLayer {
    type Service = Timeout<S>;

    fn layer(&self, inner: S) -> Timeout<S> {
        Timeout { inner, limits: self.0 }
    }
}

impl<'a, 'g, S> Service<&'a mut Exchange<'g>> for Timeout<S>
where
    S: Service<&'a mut Exchange<'g>, Response = Response<Body>, Error = Failure>,
{
    type Response = Response<Body>;
    type Error = Failure;
    type Future = TimedAnswer<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, exchange: &'a mut Exchange<'g>) -> Self::Future {
        let AnswerTimeLimits { head, whole } = self.limits;
        let end = whole.map(|whole| exchange.context.started + whole.min(LONGEST_WAIT));
        let head = head.map(|head| exchange.context.now() + head.min(LONGEST_WAIT));
        // The whole begins before the limits, which may let a request wait: that is no endpoint's fault.
        exchange.deadline = head;
        // The layer is there for one of the two at least.
        let deadline = head.into_iter().chain(end).min().unwrap_or_else(|| exchange.context.now() + LONGEST_WAIT);
        TimedAnswer { answer: Box::pin(timeout_at(deadline, self.inner.call(exchange))), end }
    }
}

impl<F> Future for TimedAnswer<F>
where
    F: Future<Output = Result<Response<Body>, Failure>>,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let end = self.end;
        self.answer.as_mut().poll(cx).map(|answer| match (answer.unwrap_or(Err(Failure::ResponseTimeout)), end) {
            (Ok(response), Some(end)) if !response.body().is_end_stream() => {
                Ok(response.map(|body| Body::boxed(TimedBody { body, deadline: Box::pin(sleep_until(end)) })))
            }
            (answer, _) => answer,
        })
    }
}

impl http_body::Body for TimedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // Looked at first: a body that never pauses ends as well.
        if self.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(RequestOverdue.into())));
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

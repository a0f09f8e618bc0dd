//! Bounds the time of a request: from when the limits let it pass to its answer's head, or from its
//! own head to its answer's end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

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

/// The longest that an answer's head may take.
#[derive(Clone, Copy)]
pub struct TimeoutLayer(pub Duration);

/// A service whose answers have to begin in time.
#[derive(Clone)]
pub struct Timeout<S> {
    inner: S,
    limit: Duration,
}

/// A wait for an answer, with a deadline. Boxed: few routes have a timeout, and the others would
/// carry the room for it.
pub struct TimedAnswer<F>(Pin<Box<TokioTimeout<F>>>);

impl<S> Layer<S> for TimeoutLayer {
    type Service = Timeout<S>;

    fn layer(&self, inner: S) -> Timeout<S> {
        Timeout {
            inner,
            limit: self.0.min(LONGEST_WAIT),
        }
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
        let deadline = exchange.context.now() + self.limit;
        exchange.deadline = Some(exchange.deadline.map_or(deadline, |end| end.min(deadline)));
        TimedAnswer(Box::pin(timeout_at(deadline, self.inner.call(exchange))))
    }
}

impl<F> Future for TimedAnswer<F>
where
    F: Future<Output = Result<Response<Body>, Failure>>,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0
            .as_mut()
            .poll(cx)
            .map(|answer| answer.unwrap_or(Err(Failure::ResponseTimeout)))
    }
}

/// An answer that has to come, and to end, before the deadline. Boxed: few routes have one.
pub struct AnswerInTime<F> {
    deadline: Option<Pin<Box<Sleep>>>,
    answer: Pin<Box<F>>,
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

impl<F> AnswerInTime<F> {
    pub fn new(answer: F, deadline: Instant) -> Self {
        Self {
            deadline: Some(Box::pin(sleep_until(deadline))),
            answer: Box::pin(answer),
        }
    }
}

impl<F> Future for AnswerInTime<F>
where
    F: Future<Output = Result<Response<Body>, Failure>>,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Looked at first: a request that is over is not sent.
        if self
            .deadline
            .as_mut()
            .is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready())
        {
            return Poll::Ready(Err(Failure::ResponseTimeout));
        }
        let answer = ready!(self.answer.as_mut().poll(cx));
        Poll::Ready(match (answer, self.deadline.take()) {
            (Ok(response), Some(deadline)) if !response.body().is_end_stream() => {
                Ok(response.map(|body| Body::boxed(TimedBody { body, deadline })))
            }
            (answer, _) => answer,
        })
    }
}

impl http_body::Body for TimedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;

    use super::*;
    use crate::clock;

    #[tokio::test(start_paused = true)]
    async fn an_answer_whose_time_is_over_is_not_even_begun() {
        for (late, begins) in [(Duration::ZERO, true), (Duration::from_secs(1), false)] {
            let has_begun = Cell::new(false);
            let answer = poll_fn(|_| {
                has_begun.set(true);
                Poll::Ready(Ok(Response::new(Body::empty())))
            });
            // A request that waits before the action, for a place say, gets on only now.
            let answer = AnswerInTime::new(answer, clock::now() + Duration::from_millis(500));
            tokio::time::advance(late).await;
            let answer = answer.await;
            let is_over = matches!(answer, Err(Failure::ResponseTimeout));
            assert_eq!((has_begun.get(), is_over), (begins, !begins));
        }
    }
}

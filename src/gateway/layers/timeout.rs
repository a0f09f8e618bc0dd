//! Bounds the time from a request to its answer's head.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Response;
use tokio::time::timeout_at;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::Body;
use crate::clock;
use crate::error::Failure;
use crate::gateway::exchange::Exchange;

/// The longest that an answer may take.
#[derive(Clone, Copy)]
pub struct TimeoutLayer(pub Duration);

/// A service whose answers have to come in time.
#[derive(Clone)]
pub struct Timeout<S> {
    inner: S,
    time: Duration,
}

/// A wait for an answer, with a deadline. Boxed: few routes have a timeout, and the others would carry the room for it.
pub struct TimedAnswer<F>(Pin<Box<tokio::time::Timeout<F>>>);

impl<S> Layer<S> for TimeoutLayer {
    type Service = Timeout<S>;

    fn layer(&self, inner: S) -> Timeout<S> {
        Timeout { inner, time: self.0 }
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
        let deadline = clock::now() + self.time;
        exchange.deadline = Some(deadline);
        TimedAnswer(Box::pin(timeout_at(deadline, self.inner.call(exchange))))
    }
}

impl<F> Future for TimedAnswer<F>
where
    F: Future<Output = Result<Response<Body>, Failure>>,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx).map(|answer| answer.unwrap_or(Err(Failure::ResponseTimeout)))
    }
}

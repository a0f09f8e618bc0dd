//! Bounds the time of a request: from its head to its answer's end, and from when the limits let it
//! pass to its answer's head.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, Either, select};
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::{Sleep, sleep_until, timeout_at};

use crate::exchange::{AnswerResult, Exchange};
use tollgate_limiter::clock::Instant;
use tollgate_wire::body::{Body, BoxError};
use tollgate_wire::error::Failure;
use tollgate_wire::grpc::{self, CallDeadline};
use tollgate_wire::http::deadline::LONGEST_WAIT;

/// The deadlines of all that happens to a request.
pub struct Deadlines {
    /// The deadline that a call of gRPC has set itself.
    call: Option<CallDeadline>,
    /// The end of the time that the route gives a request as a whole.
    whole: Option<Instant>,
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

impl Deadlines {
    /// Begins the time of a request whose route gives it `whole_time` from its head on.
    #[inline]
    pub fn begin(whole_time: Option<Duration>, exchange: &mut Exchange<'_>) -> Self {
        let context = exchange.context;
        let whole = whole_time.map(|limit| context.started + limit.min(LONGEST_WAIT));
        exchange.deadline = whole;
        let call = context.call_deadline(exchange.request.headers());
        Self { call, whole }
    }

    /// Whether the request may take as long as it takes.
    pub fn is_empty(&self) -> bool {
        self.call.is_none() && self.whole.is_none()
    }

    /// Drives `steps`, at most until the first deadline. The rest of the answer is cut there too.
    ///
    /// # Errors
    /// The errors of `steps`. [`Failure::CallOverdue`] and [`Failure::ResponseTimeout`] at a
    /// deadline.
    pub async fn enforce(
        self,
        steps: Pin<&mut impl Future<Output = AnswerResult>>,
    ) -> AnswerResult {
        let in_whole_time = async {
            match self.whole {
                Some(end) => in_time(end, steps).await,
                None => steps.await,
            }
        };
        let Some(deadline) = self.call else {
            return in_whole_time.await;
        };
        match timeout_at(deadline.0, in_whole_time).await {
            Ok(answer) => answer.map(|response| grpc::cut_body(response, deadline)),
            Err(_) => Err(Failure::CallOverdue),
        }
    }
}

/// Drives `steps` until `end`, where the answer's body is cut as well.
async fn in_time(
    end: Instant,
    steps: Pin<&mut impl Future<Output = AnswerResult>>,
) -> AnswerResult {
    let mut deadline = Box::pin(sleep_until(end));
    // The deadline is polled first: a request that is over is not sent.
    let response = match select(&mut deadline, steps).await {
        Either::Left(_) => return Err(Failure::ResponseTimeout),
        Either::Right((answer, _)) => answer?,
    };
    if response.body().is_end_stream() {
        return Ok(response);
    }
    Ok(response.map(|body| Body::boxed(TimedBody { body, deadline })))
}

/// Begins the time until the answer's head. Returns its end.
pub fn begin_head_time(limit: Duration, exchange: &mut Exchange<'_>) -> Instant {
    let end = exchange.context.now() + limit.min(LONGEST_WAIT);
    exchange.deadline = Some(exchange.deadline.map_or(end, |other| other.min(end)));
    end
}

/// Waits for the head of an answer, at most until `end`.
///
/// # Errors
/// The action's own. [`Failure::ResponseTimeout`] at `end`.
pub async fn head_until(end: Instant, answering: BoxFuture<'_, AnswerResult>) -> AnswerResult {
    timeout_at(end, answering)
        .await
        .unwrap_or(Err(Failure::ResponseTimeout))
}

impl http_body::Body for TimedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // The deadline is polled first: a body that never pauses ends as well.
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
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering};

    use http::Response;

    use super::*;
    use tollgate_limiter::clock;

    #[tokio::test(start_paused = true)]
    async fn an_answer_whose_time_is_over_is_not_even_begun() {
        for (late, begins) in [(Duration::ZERO, true), (Duration::from_secs(1), false)] {
            let has_begun = AtomicBool::new(false);
            let answer = poll_fn(|_| {
                has_begun.store(true, Ordering::Relaxed);
                Poll::Ready(Ok(Response::new(Body::empty())))
            });
            let deadlines = Deadlines {
                whole: Some(clock::now() + Duration::from_millis(500)),
                call: None,
            };
            // A request that waits before the action, for a place say, gets on only now.
            tokio::time::advance(late).await;
            let answer = deadlines.enforce(pin!(answer)).await;
            let is_over = matches!(answer, Err(Failure::ResponseTimeout));
            assert_eq!(
                (has_begun.load(Ordering::Relaxed), is_over),
                (begins, !begins)
            );
        }
    }
}

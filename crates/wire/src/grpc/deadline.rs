//! The deadline of a call: `grpc-timeout`, from the call's arrival to the end of its response.
//!
//! Guarantees that a call which is over its deadline holds no upstream connection: a response that
//! has begun is ended with the status `DEADLINE_EXCEEDED` in its trailers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::{Sleep, sleep_until};

use super::answer::write_status;
use super::status::GrpcStatus;
use crate::body::{Body, BoxError};
use tollgate_limiter::clock::Instant;

/// Longer timeouts are cut to this, so that no clock overflows.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The time at which a call must be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallDeadline(pub Instant);

impl CallDeadline {
    /// The deadline of a call that arrived at `started`. `None`: no deadline, or one that cannot be
    /// read. The field is sent on as it is: the service judges it.
    pub fn from_headers(headers: &HeaderMap, started: Instant) -> Option<Self> {
        let timeout = read(headers.get("grpc-timeout")?.as_bytes())?;
        Some(Self(started + timeout.min(LONGEST)))
    }
}

/// The duration of at most eight digits and a unit.
fn read(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut number = 0;
    for digit in digits {
        number = number * 10 + u64::from(digit - b'0');
    }
    Some(match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// A response body that ends at its call's deadline.
struct DeadlineBody {
    /// The body. `None`: it has ended.
    body: Option<Body>,
    deadline: Pin<Box<Sleep>>,
}

/// The response, whose body ends at `deadline` if it is not over by then.
pub fn cut_body(response: Response<Body>, deadline: CallDeadline) -> Response<Body> {
    if response.body().is_end_stream() {
        return response;
    }
    let deadline = Box::pin(sleep_until(deadline.0));
    response.map(|body| {
        Body::boxed(DeadlineBody {
            body: Some(body),
            deadline,
        })
    })
}

impl http_body::Body for DeadlineBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else {
            return Poll::Ready(None);
        };
        // The deadline is polled first: a stream that never pauses ends as well. A stream that has
        // come to its own end keeps its status.
        let is_over = this.deadline.as_mut().poll(cx).is_ready();
        match Pin::new(body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) if is_over && frame.is_data() => {}
            Poll::Pending if is_over => {}
            polled => return polled,
        }
        this.body = None;
        let mut trailers = HeaderMap::new();
        write_status(
            &mut trailers,
            GrpcStatus::DeadlineExceeded,
            "the call's deadline has passed",
        );
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Some(body) => body.is_end_stream(),
            None => true,
        }
    }

    /// An unknown size: the deadline may cut the body.
    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use tollgate_limiter::clock;

    #[test]
    fn a_timeout_is_at_most_eight_digits_and_a_unit() {
        for (text, timeout) in [
            ("1H", Duration::from_secs(3600)),
            ("2M", Duration::from_secs(120)),
            ("3S", Duration::from_secs(3)),
            ("99999999m", Duration::from_millis(99_999_999)),
            ("0u", Duration::ZERO),
            ("7n", Duration::from_nanos(7)),
        ] {
            assert_eq!(read(text.as_bytes()), Some(timeout), "{text}");
        }
        for text in [
            "",
            "S",
            "1",
            "1s",
            "-1S",
            "1.5S",
            "999999999S",
            " 1S",
            "1S ",
        ] {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_goes_on_ends_at_its_deadline_with_a_status() {
        let (sender, receiver) =
            tokio::sync::mpsc::unbounded_channel::<Result<Frame<Bytes>, BoxError>>();
        let frames = futures_util::stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|frame| (frame, receiver))
        });
        let body = Body::boxed(http_body_util::StreamBody::new(Box::pin(frames)));
        let deadline = CallDeadline(clock::now() + Duration::from_secs(3));
        let mut body = cut_body(Response::new(body), deadline).into_body();
        sender
            .send(Ok(Frame::data(Bytes::from_static(b"message"))))
            .unwrap();
        assert_eq!(
            body.frame().await.unwrap().unwrap().into_data().unwrap(),
            "message"
        );
        let trailers = body
            .frame()
            .await
            .unwrap()
            .unwrap()
            .into_trailers()
            .unwrap();
        assert_eq!(
            (clock::now(), &trailers["grpc-status"]),
            (deadline.0, &"4".parse().unwrap())
        );
        assert!(body.frame().await.is_none());
        // The upstream's body was dropped, which ends its exchange.
        assert!(sender.is_closed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_never_pauses_ends_at_its_deadline_and_a_status_of_its_own_stays() {
        let own = HeaderMap::from_iter([(
            http::HeaderName::from_static("grpc-status"),
            http::HeaderValue::from(0),
        )]);
        for (rest, status) in [(None, "4"), (Some(Ok(Frame::trailers(own))), "0")] {
            let messages = if rest.is_some() { 1 } else { usize::MAX };
            let endless = std::iter::repeat_with(|| {
                Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"message")))
            })
            .take(messages);
            let frames = futures_util::stream::iter(endless.chain(rest));
            let deadline = CallDeadline(clock::now() + Duration::from_secs(3));
            let body = Body::boxed(http_body_util::StreamBody::new(frames));
            let mut body = cut_body(Response::new(body), deadline).into_body();
            assert!(body.frame().await.unwrap().unwrap().is_data());
            tokio::time::advance(Duration::from_secs(3)).await;
            let trailers = body
                .frame()
                .await
                .unwrap()
                .unwrap()
                .into_trailers()
                .unwrap();
            assert_eq!(trailers["grpc-status"], status);
            assert!(body.frame().await.is_none());
        }
    }
}

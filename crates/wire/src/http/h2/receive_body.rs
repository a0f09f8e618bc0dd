//! The body that comes over an HTTP/2 stream.
//!
//! Guarantees that the peer gets room for more only as the body is read, and that a peer which
//! takes too long over the next part of it is noticed.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Frame, SizeHint};

use crate::body::{BodySource, BoxError};
use crate::http::min_rate::BodyLag;
use crate::http::timer::Timer;
use crate::http::trailers;
use tollgate_limiter::clock::{self, Instant};

/// A body that is being received.
pub struct ReceivedBody {
    stream: RecvStream,
    /// Bytes that are left, where the peer has said how many there are. `h2` checks the number.
    left: Option<u64>,
    /// Bytes that were read and may still be on their way onward: the next read gives their room
    /// back.
    unreleased: usize,
    timer: Timer,
    /// Longest time between two reads.
    limit: Duration,
    /// The time from which the wait for the next part counts.
    since: Option<Instant>,
    /// How far a client is behind the least rate.
    lag: BodyLag,
    /// The part that was received before somebody asked for it.
    early: Option<Received>,
    /// Most trailer fields.
    most_trailers: usize,
}

/// A part of a body, or its end.
type Received = Option<Result<Frame<Bytes>, BoxError>>;

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

impl ReceivedBody {
    /// The body of a message with these `headers`, and no more trailer fields than `most_trailers`.
    /// A peer that sends nothing for `limit` fails it.
    pub fn new(
        stream: RecvStream,
        headers: &HeaderMap,
        limit: Duration,
        most_trailers: usize,
    ) -> Self {
        Self {
            stream,
            left: length(headers),
            unreleased: 0,
            timer: Timer::default(),
            limit,
            since: None,
            lag: BodyLag::default(),
            early: None,
            most_trailers,
        }
    }

    /// Fails a peer that is slower than the least rate of `lag`, too.
    pub fn with_lag(mut self, lag: BodyLag) -> Self {
        self.lag = lag;
        self
    }

    /// Begins the wait for the next part anew: the peer is busy with something else.
    pub fn wait_anew(&mut self) {
        self.since = None;
    }

    /// Gives the peer room for as much as was read.
    fn release(&mut self) {
        let read = std::mem::take(&mut self.unreleased);
        if read > 0
            && let Err(error) = self.stream.flow_control().release_capacity(read)
        {
            tracing::debug!(%error, "the window of a stream could not be opened again");
        }
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        match self.stream.poll_data(cx) {
            Poll::Ready(Some(data)) => Poll::Ready(Some(data.map(Frame::data).map_err(Into::into))),
            Poll::Ready(None) => self.poll_trailers(cx),
            Poll::Pending => Poll::Pending,
        }
    }

    fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        Poll::Ready(match ready!(self.stream.poll_trailers(cx)) {
            Ok(Some(mut fields)) => Some(match trailers::admit(&mut fields, self.most_trailers) {
                Ok(()) => Ok(Frame::trailers(fields)),
                Err(failure) => Err(failure.into()),
            }),
            Ok(None) => None,
            Err(error) => Some(Err(error.into())),
        })
    }

    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<BoxError> {
        let since = *self
            .since
            .get_or_insert_with(|| self.lag.count_from(clock::now()));
        self.timer
            .poll(cx, since + self.limit)
            .map(|()| self.lag.failure().into())
    }
}

impl BodySource for ReceivedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.release();
        let polled = match self.early.take() {
            Some(early) => Poll::Ready(early),
            None => self.poll_receive(cx),
        };
        let Poll::Ready(received) = polled else {
            return Poll::Ready(Some(Err(ready!(self.poll_overdue(cx)))));
        };
        let waiting_since = self.since.take();
        if let Some(Ok(frame)) = &received
            && let Some(data) = frame.data_ref()
        {
            self.lag.record(data.len(), waiting_since, clock::now);
            self.unreleased = data.len();
            self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
        }
        Poll::Ready(received)
    }

    fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.early.is_none() {
            self.early = Some(ready!(self.poll_receive(cx)));
        }
        Poll::Ready(())
    }

    fn is_over(&self) -> bool {
        self.early.is_none() && self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.left {
            Some(left) => SizeHint::with_exact(left),
            None => SizeHint::default(),
        }
    }

    fn ended(self: Box<Self>) {}
}

impl Drop for ReceivedBody {
    /// Gives the bytes that were read last back to the connection's window. The end of the stream
    /// would come too late.
    fn drop(&mut self) {
        self.release();
    }
}

//! Sends a body over an HTTP/2 stream, under flow control.
//!
//! Guarantees that no more is handed to the connection than the peer takes, that a peer which takes
//! nothing for too long is noticed, and that an incomplete body never looks complete.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::{Reason, SendStream};
use http::HeaderMap;
use http_body::{Body as _, Frame};

use crate::body::{Body, BoxError};
use crate::http::min_rate::BodyLag;
use crate::http::timer::Timer;
use tollgate_limiter::clock::{self, Instant};

/// A body on its way to the peer of a stream.
pub struct BodySender {
    stream: SendStream<Bytes>,
    body: Body,
    /// The piece that waits for room in the peer's window.
    piece: Bytes,
    /// The piece is the last one.
    is_last: bool,
    timer: Timer,
    /// Longest time in which the peer may take nothing.
    limit: Duration,
    /// The time since which the peer has taken nothing. `None`: nothing waits for the peer.
    stalled: Option<Instant>,
    /// How far the peer is behind the least rate.
    lag: BodyLag,
    passes_trailers: bool,
}

/// Why a body was not sent to its end.
#[derive(Debug, thiserror::Error)]
pub enum SendFailure {
    #[error("the body broke off: {0}")]
    Body(BoxError),
    #[error("the peer takes nothing, or too little")]
    Stalled,
    #[error("the peer has reset the stream: {0}")]
    Reset(Reason),
    #[error("the connection has ended: {0}")]
    Connection(#[from] h2::Error),
}

impl BodySender {
    /// Sends `body`, which has not ended, over `stream`. A peer that takes nothing for `limit`
    /// fails it.
    pub fn new(stream: SendStream<Bytes>, body: Body, limit: Duration) -> Self {
        Self {
            stream,
            body,
            piece: Bytes::new(),
            is_last: false,
            timer: Timer::default(),
            limit,
            stalled: None,
            lag: BodyLag::default(),
            passes_trailers: true,
        }
    }

    /// Fails a peer that is slower than the least rate of `lag`, too.
    pub fn with_lag(self, lag: BodyLag) -> Self {
        Self { lag, ..self }
    }

    /// Ends the stream where its trailers would come.
    pub fn without_trailers(self) -> Self {
        Self {
            passes_trailers: false,
            ..self
        }
    }

    /// Sends as much of the body as has come. Ready once the connection has all of the body.
    pub fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendFailure>> {
        loop {
            if !self.piece.is_empty() {
                ready!(self.poll_piece(cx))?;
                if self.is_last {
                    return Poll::Ready(Ok(()));
                }
            }
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                return self.poll_reset(cx).map(Err);
            };
            match frame.transpose().map_err(SendFailure::Body)? {
                None => return Poll::Ready(self.end()),
                Some(frame) => {
                    if self.take(frame)? {
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
    }

    /// Whether the peer has taken as much of the body as has come.
    pub fn awaits_body(&self) -> bool {
        self.piece.is_empty()
    }

    /// The stream, to reset it.
    pub fn into_stream(self) -> SendStream<Bytes> {
        self.stream
    }

    /// Takes one frame of the body. True: it ended the stream.
    fn take(&mut self, frame: Frame<Bytes>) -> Result<bool, SendFailure> {
        match frame.into_data() {
            Ok(piece) => {
                self.is_last = self.body.is_end_stream();
                if piece.is_empty() {
                    return if self.is_last {
                        self.end().map(|()| true)
                    } else {
                        Ok(false)
                    };
                }
                self.stream.reserve_capacity(piece.len());
                self.piece = piece;
                Ok(false)
            }
            Err(frame) => match frame.into_trailers() {
                Ok(fields) => self.end_with(fields).map(|()| true),
                Err(_) => Ok(false),
            },
        }
    }

    /// Hands the piece to the connection, as far as the peer's window goes.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendFailure>> {
        while !self.piece.is_empty() {
            let room = match self.stream.capacity() {
                0 => match self.stream.poll_capacity(cx) {
                    Poll::Ready(Some(room)) => room?,
                    Poll::Ready(None) => return self.poll_reset(cx).map(Err),
                    Poll::Pending => return self.poll_stalled(cx).map(Err),
                },
                room => room,
            };
            let waiting_since = self.stalled.take();
            let part = self.piece.split_to(room.min(self.piece.len()));
            self.lag.record(part.len(), waiting_since, clock::now);
            let ends = self.is_last && self.piece.is_empty();
            self.stream.send_data(part, ends)?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<SendFailure> {
        let since = *self
            .stalled
            .get_or_insert_with(|| self.lag.count_from(clock::now()));
        self.timer.poll(cx, since + self.limit).map(|()| {
            self.lag.record_overdue();
            SendFailure::Stalled
        })
    }

    /// Ready when the peer has reset the stream, or the connection has ended.
    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<SendFailure> {
        self.stream
            .poll_reset(cx)
            .map(|reset| reset.map_or_else(SendFailure::Connection, SendFailure::Reset))
    }

    fn end(&mut self) -> Result<(), SendFailure> {
        Ok(self.stream.send_data(Bytes::new(), true)?)
    }

    fn end_with(&mut self, fields: HeaderMap) -> Result<(), SendFailure> {
        if fields.is_empty() || !self.passes_trailers {
            self.end()
        } else {
            Ok(self.stream.send_trailers(fields)?)
        }
    }
}

//! The way out: writes what waits, to a client that must read it in time.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;

use crate::clock::{self, Instant};
use crate::http::h1::timer::Timer;
use crate::http::h1::write_buffer::WriteBuffer;
use crate::server::{LONGEST_WAIT, ListenerSpec};

/// What one client is sent.
#[derive(Debug)]
pub struct Outbound {
    half: OwnedWriteHalf,
    pub output: WriteBuffer,
    timer: Timer,
    /// How long the client may leave everything unread.
    limit: Duration,
    /// Since when it has.
    stalled: Option<Instant>,
}

impl Outbound {
    pub fn new(half: OwnedWriteHalf, spec: &ListenerSpec) -> Self {
        let limit = spec.body_timeout.min(LONGEST_WAIT);
        Self { half, output: WriteBuffer::default(), timer: Timer::default(), limit, stalled: None }
    }

    /// Writes what waits. Gives up on a client that reads nothing.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let before = self.output.waiting();
        let flushed = self.output.poll_flush(&mut self.half, cx);
        if flushed.is_ready() || self.output.waiting() < before {
            self.stalled = None;
        }
        if flushed.is_ready() {
            return flushed;
        }
        let stalled = *self.stalled.get_or_insert_with(clock::now);
        ready!(self.timer.poll(cx, stalled + self.limit));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Nothing more will come.
    pub async fn shut_down(&mut self) -> io::Result<()> {
        self.half.shutdown().await
    }

    /// Closes so that nobody takes what was sent for complete: where only the connection's end marks the end of an answer
    /// (HTTP/1.0), a plain close would look like it.
    pub fn reset(self) {
        if let Err(error) = self.half.as_ref().set_zero_linger() {
            tracing::debug!(%error, "a connection could not be reset");
        }
        // Dropped, it would end in order after all.
        self.half.forget();
    }

    pub fn into_half(self) -> OwnedWriteHalf {
        self.half
    }
}

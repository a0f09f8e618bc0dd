//! Writes responses to a client. Guarantees that a client which reads nothing for too long ends the connection.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::AsyncWriteExt;

use crate::clock::{self, Instant};
use crate::http::h1::timer::Timer;
use crate::http::h1::write_buffer::WriteBuffer;
use crate::server::spec::{LONGEST_WAIT, ListenerSpec};
use crate::transport::WriteHalf;

/// The writing side of a client's connection.
#[derive(Debug)]
pub struct ClientWriter {
    half: WriteHalf,
    pub output: WriteBuffer,
    timer: Timer,
    /// How long the client may read nothing.
    limit: Duration,
    /// Since when the client has read nothing. `None`: it reads.
    stalled: Option<Instant>,
    /// Encrypted bytes that the client had taken when it last took too few.
    sent: u64,
}

impl ClientWriter {
    pub fn new(half: WriteHalf, spec: &ListenerSpec) -> Self {
        let limit = spec.body_timeout.min(LONGEST_WAIT);
        Self { half, output: WriteBuffer::default(), timer: Timer::default(), limit, stalled: None, sent: 0 }
    }

    /// Writes everything that waits. An error if the client reads nothing for too long.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let before = self.output.waiting();
        let flushed = self.output.poll_flush(&mut self.half, cx);
        if flushed.is_ready() {
            self.stalled = None;
            return flushed;
        }
        let sent = self.half.encrypted_bytes_sent();
        if self.output.waiting() < before || sent != std::mem::replace(&mut self.sent, sent) {
            self.stalled = None;
        }
        let stalled = *self.stalled.get_or_insert_with(clock::now);
        ready!(self.timer.poll(cx, stalled + self.limit));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Tells the client that nothing more will come.
    pub async fn shut_down(&mut self) -> io::Result<()> {
        self.half.shutdown().await
    }

    /// Resets the connection, so that the client does not take the response for complete: in HTTP/1.0, an orderly close
    /// may mark the end of a response.
    pub fn reset(self) {
        self.half.reset();
    }

    pub fn into_half(self) -> WriteHalf {
        self.half
    }
}

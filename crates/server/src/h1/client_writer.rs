//! Writes responses to a client. Guarantees that a client which reads nothing for too long, or too
//! slowly, ends the connection.

use std::io;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWriteExt;

use crate::timeouts::client_timeouts;
use tollgate_limiter::clock;
use tollgate_spec::listener::ListenerSpec;
use tollgate_wire::http::deadline::{ClientWait, Deadline};
use tollgate_wire::http::h1::write_buffer::WriteBuffer;
use tollgate_wire::http::min_rate::BodyLag;
use tollgate_wire::transport::WriteHalf;
use tollgate_wire::transport::immediate_write::ImmediateWriter;

/// The writing side of a client's connection.
#[derive(Debug)]
pub struct ClientWriter {
    half: WriteHalf,
    pub output: WriteBuffer,
    deadline: Deadline<ClientWait>,
    /// The lag of the latest response.
    lag: BodyLag,
    /// Encrypted bytes that the client had taken at the last flush.
    sent: u64,
}

impl ClientWriter {
    pub fn new(half: WriteHalf, spec: &ListenerSpec, lag: BodyLag) -> Self {
        let sent = half.encrypted_bytes_sent();
        Self {
            half,
            output: WriteBuffer::default(),
            deadline: Deadline::new(client_timeouts(spec)),
            lag,
            sent,
        }
    }

    /// Begins another response.
    pub fn begin_response(&mut self) {
        self.lag.reset();
    }

    /// Writes everything that waits.
    ///
    /// # Errors
    /// The write fails, or the client reads nothing for too long.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let (flushed, _) = self.record_flush(|output, half| output.poll_flush(half, cx));
            if flushed.is_ready() {
                return flushed;
            }
            let lag = &self.lag;
            ready!(
                self.deadline
                    .poll_from(cx, ClientWait::ClientTakes, |now| lag.count_from(now))
            );
            // The kernel reports room only once there is enough of it: a client that reads slowly
            // has taken something before.
            let (flushed, taken) =
                self.record_flush(|output, half| output.poll_flush(&mut ImmediateWriter(half), cx));
            if flushed.is_ready() {
                return flushed;
            }
            if taken == 0 {
                self.lag.record_overdue();
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
    }

    /// Lets `flush` write, and records the bytes that the client has taken as progress. Returns
    /// their number.
    fn record_flush(
        &mut self,
        flush: impl FnOnce(&mut WriteBuffer, &mut WriteHalf) -> Poll<io::Result<()>>,
    ) -> (Poll<io::Result<()>>, usize) {
        let before = self.output.waiting();
        let flushed = flush(&mut self.output, &mut self.half);
        let written = before - self.output.waiting();
        let taken = match self.half.encrypted_bytes_sent() {
            0 => written,
            // Over TLS, bytes are taken from the buffer first and sent later: sent bytes count.
            sent => usize::try_from(sent - std::mem::replace(&mut self.sent, sent))
                .unwrap_or(usize::MAX),
        };
        if flushed.is_ready() || taken > 0 {
            self.record_taken(taken);
        }
        (flushed, taken)
    }

    fn record_taken(&mut self, bytes: usize) {
        let waiting_since = self.deadline.end();
        self.lag.record(bytes, waiting_since, clock::now);
    }

    /// Ready once the client has had time to take the bytes that the kernel has.
    pub fn poll_taken(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.deadline.poll(cx, ClientWait::BrokenResponse)
    }

    /// Ends the output: the client learns that nothing more will come.
    pub async fn shut_down(&mut self) -> io::Result<()> {
        self.half.shutdown().await
    }

    /// Resets the connection, so that the client does not take the response for complete: in
    /// HTTP/1.0, an orderly close may mark the end of a response.
    pub fn reset(self) {
        self.half.reset();
    }

    pub fn into_half(self) -> WriteHalf {
        self.half
    }
}

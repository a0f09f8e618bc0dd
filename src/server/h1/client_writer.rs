//! Writes responses to a client. Guarantees that a client which reads nothing for too long ends the connection.

use std::io;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWriteExt;

use crate::http::deadline::{ClientWait, Deadline};
use crate::http::h1::write_buffer::WriteBuffer;
use crate::server::spec::ListenerSpec;
use crate::transport::WriteHalf;

/// The writing side of a client's connection.
#[derive(Debug)]
pub struct ClientWriter {
    half: WriteHalf,
    pub output: WriteBuffer,
    deadline: Deadline<ClientWait>,
    /// Encrypted bytes that the client had taken when it last took too few.
    sent: u64,
}

impl ClientWriter {
    pub fn new(half: WriteHalf, spec: &ListenerSpec) -> Self {
        Self { half, output: WriteBuffer::default(), deadline: Deadline::new(spec.timeouts()), sent: 0 }
    }

    /// Writes everything that waits. An error if the client reads nothing for too long.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let before = self.output.waiting();
        let flushed = self.output.poll_flush(&mut self.half, cx);
        if flushed.is_ready() {
            self.deadline.end();
            return flushed;
        }
        let sent = self.half.encrypted_bytes_sent();
        if self.output.waiting() < before || sent != std::mem::replace(&mut self.sent, sent) {
            self.deadline.end();
        }
        ready!(self.deadline.poll(cx, ClientWait::ClientTakes));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Ready once the client has had time to take what the kernel was given.
    pub fn poll_taken(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.deadline.poll(cx, ClientWait::BrokenResponse)
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

//! An HTTP/2 stream as a tunnel: its DATA are the bytes that pass (RFC 8441 §5).
//!
//! Guarantees that the end of either direction is END_STREAM, that a tunnel which breaks is a
//! RST_STREAM, and that no more is buffered than the windows of the stream.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h2::{Reason, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Most bytes that one write takes: a frame's worth.
const PIECE: usize = 16 * 1024;

/// Both directions of a stream.
pub struct StreamTunnel {
    send: SendStream<Bytes>,
    receive: RecvStream,
    /// Received, and not read yet.
    received: Bytes,
    /// This side has sent its end.
    ended: bool,
}

impl StreamTunnel {
    pub fn new(send: SendStream<Bytes>, receive: RecvStream) -> Self {
        Self {
            send,
            receive,
            received: Bytes::new(),
            ended: false,
        }
    }
}

fn failed(error: h2::Error) -> io::Error {
    if error.is_io() {
        error.into_io().unwrap_or_else(broken)
    } else {
        io::Error::new(io::ErrorKind::ConnectionReset, error)
    }
}

fn broken() -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

impl AsyncRead for StreamTunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.received.is_empty() {
            match ready!(this.receive.poll_data(cx)) {
                Some(data) => this.received = data.map_err(failed)?,
                None => return Poll::Ready(Ok(())),
            }
        }
        let read = this.received.len().min(buf.remaining());
        buf.put_slice(&this.received[..read]);
        this.received.advance(read);
        // Room for as much as was taken: a slow reader holds the client back, and no other stream.
        this.receive
            .flow_control()
            .release_capacity(read)
            .map_err(failed)?;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for StreamTunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.send.reserve_capacity(bytes.len().min(PIECE));
        let room = match self.send.capacity() {
            0 => match ready!(self.send.poll_capacity(cx)) {
                Some(room) => room.map_err(failed)?,
                None => return Poll::Ready(Err(broken())),
            },
            room => room,
        };
        let written = room.min(bytes.len()).min(PIECE);
        self.send
            .send_data(Bytes::copy_from_slice(&bytes[..written]), false)
            .map_err(failed)?;
        Poll::Ready(Ok(written))
    }

    /// The connection's task writes what it was given.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.ended, true) {
            self.send.send_data(Bytes::new(), true).map_err(failed)?;
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for StreamTunnel {
    /// Like a reset of the connection in HTTP/1 (RFC 8441 §5).
    fn drop(&mut self) {
        if !self.ended || !self.receive.is_end_stream() {
            self.send.send_reset(Reason::CANCEL);
        }
    }
}

//! A connection to an endpoint of which a bounded number of bytes is read.
//!
//! Guarantees that a peer which sends without end cannot keep the control plane busy: heads of
//! interim responses, frames and fields that nobody waits for are read by the library before anyone
//! is asked.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use tollgate_wire::transport::Stream;

/// The most that is read for a probe: a header section of the largest kind, and a window of HTTP/2.
const MOST_BYTES: usize = 256 * 1024;

/// A connection to an endpoint, for one probe.
pub struct BoundedConnection {
    stream: Stream,
    /// How many bytes may be read yet.
    left: usize,
}

impl BoundedConnection {
    pub fn new(stream: Stream) -> Self {
        Self {
            stream,
            left: MOST_BYTES,
        }
    }
}

impl AsyncRead for BoundedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let Some(left) = self.left.checked_sub(buf.filled().len() - before) else {
            return Poll::Ready(Err(io::Error::other(format!(
                "it sent over {} KiB",
                MOST_BYTES / 1024
            ))));
        };
        self.left = left;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for BoundedConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

//! Writes to a socket that was not reported as writable.
//!
//! Linux reports room only once a third of what a TCP socket holds has left it, and three quarters
//! for a Unix socket. A slow peer may take half a minute for that. Guarantees that bytes which the
//! peer has taken show, to within the segment that did not fit.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use tokio::io::AsyncWrite;

/// A stream that can be written to without waiting to hear of room.
pub trait ImmediateWrite {
    /// Writes the bytes that the socket takes now. Pending: none. No task is woken later.
    fn poll_write_now(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>>;

    /// Like `poll_write_now`, for bytes that the stream holds back.
    fn poll_flush_now(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// A stream each of whose writes tries the socket.
#[derive(Debug)]
pub struct ImmediateWriter<'a, S>(pub &'a mut S);

/// Writes the bytes that `socket` takes now.
pub fn poll_write_now(socket: impl AsFd, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    match retry_on_intr(|| sendmsg(&socket, slices, &mut SendAncillaryBuffer::default(), flags)) {
        Err(Errno::AGAIN) => Poll::Pending,
        written => Poll::Ready(written.map_err(Into::into)),
    }
}

impl<S: ImmediateWrite + Unpin> AsyncWrite for ImmediateWriter<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write_now(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write_now(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_flush_now(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;
    use tokio::time::timeout;

    use super::*;
    use crate::transport::Stream;

    #[tokio::test]
    async fn room_that_was_not_reported_is_used() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut near = Stream::from(near);
        let piece = [b'x'; 16 * 1024];
        let full = async { while near.write(&piece).await.is_ok() {} };
        assert!(
            timeout(std::time::Duration::from_millis(50), full)
                .await
                .is_err()
        );
        let write = poll_fn(|cx| {
            Poll::Ready(
                ImmediateWriter(&mut near)
                    .0
                    .poll_write_now(cx, &[IoSlice::new(&piece)]),
            )
        });
        assert!(write.await.is_pending());
        far.read_exact(&mut [0; 32 * 1024]).await.unwrap();
        // Half of the socket's buffer is taken still.
        assert!(
            timeout(std::time::Duration::ZERO, near.write(&piece))
                .await
                .is_err()
        );
        let written =
            poll_fn(|cx| Pin::new(&mut ImmediateWriter(&mut near)).poll_write(cx, &piece))
                .await
                .unwrap();
        assert!(written > 0);
    }
}

//! A connection in the clear: a socket of TCP or a Unix socket.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::address::canonical;
use super::immediate_write::{ImmediateWrite, poll_write_now};

/// A socket.
#[derive(Debug)]
pub enum ClearStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl ClearStream {
    #[inline]
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(tcp) => tcp.poll_read_ready(cx),
            Self::Unix(unix) => unix.poll_read_ready(cx),
        }
    }

    /// The address at this end. `None`: a Unix socket.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(tcp) => tcp.local_addr().ok().map(canonical),
            Self::Unix(_) => None,
        }
    }

    /// Switches Nagle's algorithm off: messages are written whole, and it would only delay them.
    pub fn set_nodelay(&self) {
        if let Self::Tcp(tcp) = self
            && let Err(error) = tcp.set_nodelay(true)
        {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
    }

    /// Reads bytes that have come already.
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => tcp.try_read(buf),
            Self::Unix(unix) => unix.try_read(buf),
        }
    }

    /// Lets the drop of this socket reset the connection: the peer does not take a part of a
    /// message for the whole. A Unix socket resets only if there is unread input.
    pub fn reset_on_drop(&self) {
        if let Self::Tcp(tcp) = self
            && let Err(error) = tcp.set_zero_linger()
        {
            tracing::debug!(%error, "a connection could not be reset");
        }
    }
}

impl ImmediateWrite for ClearStream {
    fn poll_write_now(
        &mut self,
        _: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(tcp) => poll_write_now(tcp, slices),
            Self::Unix(unix) => poll_write_now(unix, slices),
        }
    }

    /// Sockets hold nothing back.
    fn poll_flush_now(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for ClearStream {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Self::Unix(unix) => Pin::new(unix).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for ClearStream {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Self::Unix(unix) => Pin::new(unix).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
            Self::Unix(unix) => Pin::new(unix).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Sockets hold nothing back.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Unix(unix) => Pin::new(unix).poll_shutdown(cx),
        }
    }
}

//! The two directions of a stream, owned apart: a connection keeps one and lends the other to a
//! body.
//!
//! Guarantees that both halves of a TLS stream can be polled by different tasks.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{tcp, unix};

use super::immediate_write::{ImmediateWrite, poll_write_now};
use super::tls::TlsStream;

/// A TLS stream that both halves use. One task usually polls both, so the lock is hardly ever
/// contended.
type SharedTls = Arc<Mutex<Box<TlsStream>>>;

/// The reading half of a stream.
#[derive(Debug)]
pub enum ReadHalf {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
    Tls(SharedTls),
}

/// The writing half of a stream.
#[derive(Debug)]
pub enum WriteHalf {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
    Tls(SharedTls),
}

impl ReadHalf {
    /// Ready when a read may give bytes, the end or an error. Makes no system call.
    #[inline]
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(tcp) => tcp.as_ref().poll_read_ready(cx),
            Self::Unix(unix) => unix.as_ref().poll_read_ready(cx),
            Self::Tls(tls) => tls.lock().poll_read_ready(cx),
        }
    }
}

impl WriteHalf {
    /// Like `Stream::encrypted_bytes_sent`.
    #[inline]
    pub fn encrypted_bytes_sent(&self) -> u64 {
        match self {
            Self::Tcp(_) | Self::Unix(_) => 0,
            Self::Tls(tls) => tls.lock().bytes_sent(),
        }
    }

    /// Resets a TCP connection once the other half is dropped too: the peer does not take a part of
    /// a message for the whole. A Unix socket just ends. TLS shows by itself that its end was not
    /// announced.
    pub fn reset(self) {
        match self {
            Self::Tcp(tcp) => {
                if let Err(error) = tcp.as_ref().set_zero_linger() {
                    tracing::debug!(%error, "a connection could not be reset");
                }
                // A drop of the half would close in order first.
                tcp.forget();
            }
            Self::Unix(unix) => unix.forget(),
            Self::Tls(tls) => tls.lock().socket().reset_on_drop(),
        }
    }
}

impl ImmediateWrite for WriteHalf {
    fn poll_write_now(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(tcp) => poll_write_now(tcp.as_ref(), slices),
            Self::Unix(unix) => poll_write_now(unix.as_ref(), slices),
            Self::Tls(tls) => tls.lock().poll_write_now(cx, slices),
        }
    }

    fn poll_flush_now(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(_) | Self::Unix(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => tls.lock().poll_flush_now(cx),
        }
    }
}

impl AsyncRead for ReadHalf {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Self::Unix(unix) => Pin::new(unix).poll_read(cx, buf),
            Self::Tls(tls) => Pin::new(&mut **tls.lock()).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for WriteHalf {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Self::Unix(unix) => Pin::new(unix).poll_write(cx, bytes),
            Self::Tls(tls) => Pin::new(&mut **tls.lock()).poll_write(cx, bytes),
        }
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
            Self::Unix(unix) => Pin::new(unix).poll_write_vectored(cx, slices),
            Self::Tls(tls) => Pin::new(&mut **tls.lock()).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            // Sockets hold nothing back.
            Self::Tcp(_) | Self::Unix(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => Pin::new(&mut **tls.lock()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Unix(unix) => Pin::new(unix).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(&mut **tls.lock()).poll_shutdown(cx),
        }
    }
}

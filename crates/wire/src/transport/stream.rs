//! A connection: bytes in order, both ways, whatever carries them.
//!
//! Guarantees that a stream which waits for input makes no system call, and that a TLS stream shows
//! input which was decrypted already.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::coop;

use super::clear_stream::ClearStream;
use super::halves::{ReadHalf, WriteHalf};
use super::immediate_write::ImmediateWrite;
use super::tls::TlsStream;

/// A connection to a client or an upstream.
#[derive(Debug)]
pub enum Stream {
    Clear(ClearStream),
    /// Boxed: many times as large as a socket.
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Ready when a read may give bytes, the end or an error. Makes no system call.
    #[inline]
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Clear(clear) => clear.poll_read_ready(cx),
            Self::Tls(tls) => tls.poll_read_ready(cx),
        }
    }

    /// Whether ALPN has chosen HTTP/2.
    pub fn is_http2(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.is_http2())
    }

    /// Whether there is anything to read: bytes, the end or an error. May lose input: only for a
    /// connection on which nothing may come.
    pub fn has_input(&mut self) -> bool {
        match self {
            // No system call, unless the socket is marked as readable: a read that happened to fill
            // its buffer leaves it so.
            Self::Clear(clear) => !clear
                .try_read(&mut [0])
                .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock),
            Self::Tls(tls) => {
                // Unconstrained, since without cooperative budget every connection would seem to be
                // silent.
                let mut looking = coop::unconstrained(poll_fn(|cx| tls.poll_read_ready(cx)));
                Pin::new(&mut looking)
                    .poll(&mut Context::from_waker(Waker::noop()))
                    .is_ready()
                    && tls.has_content()
            }
        }
    }

    /// The number of encrypted bytes that the socket has taken. Grows when bytes that were written
    /// before leave a TLS stream; 0 in the clear.
    pub fn encrypted_bytes_sent(&self) -> u64 {
        match self {
            Self::Clear(_) => 0,
            Self::Tls(tls) => tls.bytes_sent(),
        }
    }

    /// Both directions apart, to be used by one task or two.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        match self {
            Self::Clear(ClearStream::Tcp(tcp)) => {
                let (read, write) = tcp.into_split();
                (ReadHalf::Tcp(read), WriteHalf::Tcp(write))
            }
            Self::Clear(ClearStream::Unix(unix)) => {
                let (read, write) = unix.into_split();
                (ReadHalf::Unix(read), WriteHalf::Unix(write))
            }
            Self::Tls(tls) => {
                let shared = Arc::new(Mutex::new(tls));
                (ReadHalf::Tls(Arc::clone(&shared)), WriteHalf::Tls(shared))
            }
        }
    }

    /// The stream of both halves. `None`: the halves belong to different streams.
    pub fn reunite(read: ReadHalf, write: WriteHalf) -> Option<Self> {
        match (read, write) {
            (ReadHalf::Tcp(read), WriteHalf::Tcp(write)) => {
                read.reunite(write).ok().map(Self::from)
            }
            (ReadHalf::Unix(read), WriteHalf::Unix(write)) => {
                read.reunite(write).ok().map(Self::from)
            }
            (ReadHalf::Tls(read), WriteHalf::Tls(write)) if Arc::ptr_eq(&read, &write) => {
                drop(write);
                Arc::into_inner(read).map(|tls| Self::Tls(tls.into_inner()))
            }
            _ => None,
        }
    }
}

impl ImmediateWrite for Stream {
    fn poll_write_now(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Clear(clear) => clear.poll_write_now(cx, slices),
            Self::Tls(tls) => tls.poll_write_now(cx, slices),
        }
    }

    fn poll_flush_now(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Clear(clear) => clear.poll_flush_now(cx),
            Self::Tls(tls) => tls.poll_flush_now(cx),
        }
    }
}

impl AsyncRead for Stream {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(clear) => Pin::new(clear).poll_read(cx, buf),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Clear(clear) => Pin::new(clear).poll_write(cx, bytes),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Clear(clear) => Pin::new(clear).poll_write_vectored(cx, slices),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(clear) => Pin::new(clear).poll_flush(cx),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(clear) => Pin::new(clear).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_shutdown(cx),
        }
    }
}

impl From<ClearStream> for Stream {
    fn from(clear: ClearStream) -> Self {
        Self::Clear(clear)
    }
}

impl From<TcpStream> for Stream {
    fn from(tcp: TcpStream) -> Self {
        Self::Clear(ClearStream::Tcp(tcp))
    }
}

impl From<UnixStream> for Stream {
    fn from(unix: UnixStream) -> Self {
        Self::Clear(ClearStream::Unix(unix))
    }
}

impl From<TlsStream> for Stream {
    fn from(tls: TlsStream) -> Self {
        Self::Tls(Box::new(tls))
    }
}

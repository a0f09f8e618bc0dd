//! A TLS connection whose handshake is over.
//!
//! Guarantees that input which was decrypted already counts as readable, and that progress shows
//! although written bytes are encrypted and may wait for the socket.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop;

use crate::transport::clear_stream::ClearStream;
use crate::transport::immediate_write::ImmediateWrite;

/// A TLS connection.
#[derive(Debug)]
pub struct TlsStream(tokio_rustls::TlsStream<EncryptedSocket>);

/// The connection beneath TLS: gives bytes that were read too early first, and counts sent bytes.
#[derive(Debug)]
pub struct EncryptedSocket {
    stream: ClearStream,
    early: Bytes,
    sent: u64,
    /// Writes try the socket, and do not wait for a report of room.
    is_immediate: bool,
}

impl TlsStream {
    pub fn new(tls: impl Into<tokio_rustls::TlsStream<EncryptedSocket>>) -> Self {
        Self(tls.into())
    }

    /// The connection beneath.
    pub fn socket(&self) -> &ClearStream {
        &self.0.get_ref().0.stream
    }

    /// The outcome of the handshake.
    pub fn session(&self) -> &rustls::CommonState {
        self.0.get_ref().1
    }

    /// Whether both sides agreed on HTTP/2 (RFC 9113 §3.2).
    pub fn is_http2(&self) -> bool {
        self.session().alpn_protocol() == Some(b"h2")
    }

    /// Ready when a read may give bytes, the end or an error. Makes no system call.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (socket, session) = self.0.get_ref();
        // The session wants no input while content waits to be read, and after its peer has
        // announced the end.
        if session.wants_read() {
            socket.poll_read_ready(cx)
        } else {
            Poll::Ready(Ok(()))
        }
    }

    /// Whether there is content to read, the end or an error. Takes in tickets and other messages
    /// of TLS itself. May consume content.
    pub fn has_content(&mut self) -> bool {
        let mut reading = coop::unconstrained(poll_fn(|cx| {
            Pin::new(&mut self.0).poll_read(cx, &mut ReadBuf::new(&mut [0]))
        }));
        Pin::new(&mut reading)
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    /// The number of encrypted bytes that the socket has taken.
    pub fn bytes_sent(&self) -> u64 {
        self.0.get_ref().0.sent
    }

    /// Lets `write` try the socket, whether room was reported or not.
    fn immediately<R>(&mut self, write: impl FnOnce(&mut Self) -> R) -> R {
        self.0.get_mut().0.is_immediate = true;
        let written = write(self);
        self.0.get_mut().0.is_immediate = false;
        written
    }
}

impl ImmediateWrite for TlsStream {
    fn poll_write_now(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.immediately(|tls| Pin::new(&mut tls.0).poll_write_vectored(cx, slices))
    }

    fn poll_flush_now(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.immediately(|tls| Pin::new(&mut tls.0).poll_flush(cx))
    }
}

impl EncryptedSocket {
    /// A socket of `stream`, from which `early` was read already.
    pub fn new(stream: ClearStream, early: Bytes) -> Self {
        Self {
            stream,
            early,
            sent: 0,
            is_immediate: false,
        }
    }

    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            self.stream.poll_read_ready(cx)
        } else {
            Poll::Ready(Ok(()))
        }
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl AsyncRead for EncryptedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let taken = self.early.len().min(buf.remaining());
        buf.put_slice(&self.early[..taken]);
        self.early.advance(taken);
        if self.early.is_empty() {
            // An empty piece would still hold the whole buffer.
            self.early = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for EncryptedSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = if self.is_immediate {
            ready!(self.stream.poll_write_now(cx, &[IoSlice::new(bytes)]))?
        } else {
            ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?
        };
        self.sent += written as u64;
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = if self.is_immediate {
            ready!(self.stream.poll_write_now(cx, slices))?
        } else {
            ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices))?
        };
        self.sent += written as u64;
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

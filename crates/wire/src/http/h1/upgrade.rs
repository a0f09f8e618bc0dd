//! The way of a connection out of HTTP (RFC 9110 §7.8): from the HTTP codec to the code that goes
//! on with it.
//!
//! Guarantees that bytes which the codec read too early are read first.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

/// A socket, with everything that must live as long.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection that has left HTTP.
pub struct Upgraded {
    io: Box<dyn Io>,
    /// Bytes that were read after the last message.
    early: Bytes,
}

/// Receives a request's connection once it has left HTTP: an extension of the request.
#[derive(Clone)]
pub struct OnUpgrade(Arc<Mutex<Option<oneshot::Receiver<Upgraded>>>>);

/// Sends the connection that has left HTTP. Dropped: the connection goes on with HTTP.
pub struct UpgradeSender(oneshot::Sender<Upgraded>);

/// A sender and receiver for one request that asks for an upgrade.
pub fn channel() -> (UpgradeSender, OnUpgrade) {
    let (sender, receiver) = oneshot::channel();
    (
        UpgradeSender(sender),
        OnUpgrade(Arc::new(Mutex::new(Some(receiver)))),
    )
}

impl OnUpgrade {
    /// Waits until the connection has left HTTP. `None`: it stays with HTTP, or was already
    /// received.
    pub async fn upgraded(self) -> Option<Upgraded> {
        let receiver = self.0.lock().take()?;
        receiver.await.ok()
    }
}

impl UpgradeSender {
    /// Hands the connection over. Closes it if the receiver is gone.
    pub fn send(self, upgraded: Upgraded) {
        // A failed send gives the connection back, and dropping it closes it.
        let _ = self.0.send(upgraded);
    }
}

impl Upgraded {
    pub fn new(io: impl Io + 'static, early: Bytes) -> Self {
        Self {
            io: Box::new(io),
            early,
        }
    }
}

impl AsyncRead for Upgraded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buf);
        }
        let taken = self.early.len().min(buf.remaining());
        buf.put_slice(&self.early[..taken]);
        self.early.advance(taken);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn bytes_that_were_read_early_are_read_first() {
        let (near, mut far) = tokio::io::duplex(64);
        let (sender, on_upgrade) = channel();
        sender.send(Upgraded::new(near, Bytes::from_static(b"early ")));
        let mut upgraded = on_upgrade.clone().upgraded().await.unwrap();
        assert!(on_upgrade.upgraded().await.is_none());
        far.write_all(b"late").await.unwrap();
        drop(far);
        let mut read = String::new();
        upgraded.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "early late");
    }

    #[tokio::test]
    async fn a_dropped_sender_means_no_upgrade() {
        let (sender, on_upgrade) = channel();
        drop(sender);
        assert!(on_upgrade.upgraded().await.is_none());
    }
}

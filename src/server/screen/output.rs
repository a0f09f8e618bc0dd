//! The way out: writes go through as they are, but a client must read them, and gets to read the last one.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Mode, Screen};
use crate::clock::{self, Instant};
use crate::gather;

/// A close with unread input resets the connection, and a reset can overtake our answer; so input is read on, but no more
/// than this and no longer than [`LINGER`].
const LINGER_BYTES: usize = 1024 * 1024;
const LINGER: Duration = Duration::from_secs(2);

/// Input that is still read after the last write.
#[derive(Debug)]
pub struct Linger {
    until: Instant,
    left: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin, G: Unpin> Screen<S, G> {
    /// Gives up on a client that reads nothing. Tunnels and HTTP/2 have their own ways.
    fn poll_written(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.patience.wrote();
            return written;
        }
        if self.mode != Mode::Transparent && self.patience.poll_write(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }

    /// Reads and forgets what the client still sends, so that it gets to read our last answer (RFC 9112 §9.6). Between
    /// requests only what is already there.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let wait = self.is_cut_short();
        let Some(linger) = &mut self.linger else { return Poll::Ready(()) };
        while !self.eof && linger.left > 0 {
            let mut space = [MaybeUninit::uninit(); 4096];
            let mut scrap = ReadBuf::uninit(&mut space);
            match Pin::new(&mut self.io).poll_read(cx, &mut scrap) {
                Poll::Ready(Ok(())) if !scrap.filled().is_empty() => {
                    linger.left = linger.left.saturating_sub(scrap.filled().len());
                }
                Poll::Ready(_) => self.eof = true,
                Poll::Pending if wait => return self.patience.poll_until(cx, linger.until),
                Poll::Pending => break,
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, G: Unpin> AsyncWrite for Screen<S, G> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write(cx, buf);
        this.poll_written(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = gather::poll_write(Pin::new(&mut this.io), cx, bufs);
        this.poll_written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.linger.is_none() {
            ready!(Pin::new(&mut this.io).poll_shutdown(cx))?;
            if this.mode == Mode::Transparent {
                return Poll::Ready(Ok(()));
            }
            this.linger = Some(Linger { until: clock::now() + LINGER, left: LINGER_BYTES });
        }
        this.poll_linger(cx).map(Ok)
    }
}

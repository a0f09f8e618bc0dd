//! Coalesces the short parts of a vectored write into one buffer, for HTTP/2 and upgraded
//! connections.
//!
//! A head and a short body in one buffer go out by one `send`. A `send` costs the kernel less than
//! `writev`, and the difference is more than the copying. Long parts are written as they are.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Most bytes that are copied: a head and a small body.
const SHORT: usize = 1024;

/// A socket whose short vectored writes are coalesced.
#[derive(Debug)]
pub struct CoalescedWrite<S>(pub S);

/// Writes `bufs`, in one piece if they are short.
fn poll_write<S: AsyncWrite>(
    socket: Pin<&mut S>,
    cx: &mut Context<'_>,
    bufs: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    if let [only] = bufs {
        return socket.poll_write(cx, only);
    }
    if bufs.iter().map(|part| part.len()).sum::<usize>() > SHORT {
        return socket.poll_write_vectored(cx, bufs);
    }
    let mut whole: SmallVec<[u8; SHORT]> = SmallVec::new();
    for part in bufs {
        whole.extend_from_slice(part);
    }
    socket.poll_write(cx, &whole)
}

impl<S: AsyncRead + Unpin> AsyncRead for CoalescedWrite<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CoalescedWrite<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        poll_write(Pin::new(&mut self.0), cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn short_and_long_parts_arrive_in_order() {
        let long = vec![b'x'; 3 * SHORT];
        for parts in [
            vec![&b"head"[..], b"body"],
            vec![b"only"],
            vec![b"head", &long],
            vec![],
        ] {
            let (near, mut far) = tokio::io::duplex(64 * SHORT);
            let mut near = CoalescedWrite(near);
            let mut slices: Vec<IoSlice<'_>> =
                parts.iter().map(|part| IoSlice::new(part)).collect();
            let mut left = &mut slices[..];
            while !left.is_empty() {
                let written = near.write_vectored(left).await.unwrap();
                IoSlice::advance_slices(&mut left, written);
            }
            drop(near);
            let mut received = Vec::new();
            far.read_to_end(&mut received).await.unwrap();
            assert_eq!(received, parts.concat());
        }
    }
}

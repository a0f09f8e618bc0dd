//! What waits to be written to a connection: heads, framing and short pieces in one buffer, long pieces where they lie.
//!
//! A head and a short body go out by one `send`, which the kernel does for less than `writev`; copying them is cheaper than
//! the difference. Guarantees the order, and that nothing is written twice. Holds no buffer when nothing waits.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use smallvec::SmallVec;
use tokio::io::AsyncWrite;

use super::buffers;
use super::encode::{self, CHUNK_END};

/// Bytes of a piece that is copied.
const SHORT: usize = 1024;
/// As many slices go to one `writev` at most.
const SLICES: usize = 16;
/// More than this should not wait: whoever has more to say flushes first. So large pieces go out one by one, each as one
/// packet.
pub const ENOUGH: usize = buffers::LARGE / 2;

/// Bytes on their way out.
#[derive(Debug, Default)]
pub struct Output {
    /// Heads, framing and short pieces.
    small: BytesMut,
    /// Long pieces, each with how many bytes of `small` go before it that do not go before the one in front of it.
    long: VecDeque<(usize, Bytes)>,
    /// Bytes at the end of `small` that go behind all of `long`.
    behind: usize,
    waiting: usize,
}

impl Output {
    /// Bytes that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether it is time to flush.
    pub fn is_enough(&self) -> bool {
        self.waiting >= ENOUGH
    }

    /// Lets `write` append a head, or other framing.
    pub fn push(&mut self, write: impl FnOnce(&mut BytesMut)) {
        if self.small.capacity() == 0 {
            self.small = buffers::take(buffers::USUAL);
        }
        let before = self.small.len();
        write(&mut self.small);
        let added = self.small.len() - before;
        self.behind += added;
        self.waiting += added;
    }

    /// Appends content.
    pub fn push_piece(&mut self, piece: Bytes) {
        if piece.len() <= SHORT {
            self.push(|small| small.extend_from_slice(&piece));
            return;
        }
        self.waiting += piece.len();
        self.long.push_back((std::mem::take(&mut self.behind), piece));
    }

    /// Appends content as a chunk; nothing for no content, which would be the last chunk.
    pub fn push_chunk(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.push(|small| encode::chunk_size(small, piece.len()));
            self.push_piece(piece);
            self.push(|small| small.extend_from_slice(CHUNK_END));
        }
    }

    /// Writes until nothing waits.
    pub fn poll_flush(&mut self, io: &mut (impl AsyncWrite + Unpin), cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.waiting > 0 {
            let written = ready!(self.poll_write(io, cx))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write(&mut self, io: &mut (impl AsyncWrite + Unpin), cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.long.is_empty() {
            return Pin::new(io).poll_write(cx, &self.small);
        }
        let mut slices: SmallVec<[IoSlice<'_>; SLICES]> = SmallVec::new();
        let mut small = &*self.small;
        for (before, piece) in self.long.iter().take(SLICES / 2 - 1) {
            let (head, rest) = small.split_at(*before);
            small = rest;
            if !head.is_empty() {
                slices.push(IoSlice::new(head));
            }
            slices.push(IoSlice::new(piece));
        }
        if self.long.len() < SLICES / 2 && !small.is_empty() {
            slices.push(IoSlice::new(small));
        }
        Pin::new(io).poll_write_vectored(cx, &slices)
    }

    fn advance(&mut self, mut written: usize) {
        self.waiting -= written;
        if self.waiting == 0 {
            self.long.clear();
            self.behind = 0;
            return buffers::give(std::mem::take(&mut self.small));
        }
        while let Some((before, piece)) = self.long.front_mut() {
            let head = written.min(*before);
            self.small.advance(head);
            *before -= head;
            written -= head;
            let content = written.min(piece.len());
            piece.advance(content);
            written -= content;
            if *before > 0 || !piece.is_empty() {
                return;
            }
            self.long.pop_front();
        }
        self.small.advance(written);
        self.behind -= written;
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncReadExt;

    use super::*;

    /// Takes so many bytes at a time.
    struct Narrow(usize, Vec<u8>);

    impl AsyncWrite for Narrow {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let taken = bytes.len().min(self.0);
            self.1.extend_from_slice(&bytes[..taken]);
            Poll::Ready(Ok(taken))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let before = self.1.len();
            let most = self.0;
            self.1.extend(slices.iter().flat_map(|slice| slice.iter()).take(most));
            let taken = self.1.len() - before;
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn everything_goes_out_once_and_in_order() {
        let long = |byte: u8| Bytes::from(vec![byte; 3 * SHORT]);
        for width in [1, 7, SHORT, 4 * SHORT, usize::MAX] {
            let (mut output, mut expected) = (Output::default(), Vec::new());
            output.push(|small| small.extend_from_slice(b"head\r\n\r\n"));
            expected.extend_from_slice(b"head\r\n\r\n");
            for byte in 0..20 {
                let piece = if byte % 3 == 0 { Bytes::from_static(b"short") } else { long(byte) };
                expected.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                expected.extend_from_slice(&piece);
                expected.extend_from_slice(CHUNK_END);
                output.push_chunk(piece);
            }
            assert_eq!(output.waiting(), expected.len());
            let mut narrow = Narrow(width, Vec::new());
            poll_fn(|cx| output.poll_flush(&mut narrow, cx)).await.unwrap();
            assert!(narrow.1 == expected, "{width}");
            assert_eq!((output.waiting(), output.small.capacity()), (0, 0));
        }
    }

    #[tokio::test]
    async fn it_is_used_again_after_a_flush() {
        let (mut near, mut far) = tokio::io::duplex(64);
        let mut output = Output::default();
        for text in ["one", "two"] {
            output.push(|small| small.extend_from_slice(text.as_bytes()));
            poll_fn(|cx| output.poll_flush(&mut near, cx)).await.unwrap();
        }
        drop(near);
        let mut received = String::new();
        far.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "onetwo");
    }
}

//! A request body of which the beginning is kept, so that it can be sent again.
//!
//! Guarantees that it streams, and that no more bytes are kept than its bound says, and none once the response has begun.
//! They are copied: a piece that was kept as it came would hold all of the buffer that it was read into.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;

use super::kept_bytes::KeptBytes;
use crate::body::{Body, BodySource, BoxError};

/// Bytes that are handed out at once when they are read again.
const AGAIN: usize = 16 * 1024;

/// A body that can be read anew.
#[derive(Clone)]
pub struct ReplayBody(Arc<ReplayState>);

struct ReplayState {
    kept: Mutex<KeptBody>,
    /// Its length was known from the start: another reader frames it as the first did.
    sized: bool,
    /// Pieces that its readers were given so far: it grows as the body moves.
    pieces: AtomicUsize,
}

struct KeptBody {
    body: Body,
    bytes: KeptBytes,
    trailers: Option<HeaderMap>,
    /// All that was read is in `bytes` and `trailers`, and more of it may be kept.
    whole: bool,
    /// It broke off: nobody may take what was read for all of it.
    failed: bool,
    /// The last poll found nothing: its client is to send more.
    awaits_client: bool,
    reader: ReaderPosition,
}

/// How far the present reader has come.
#[derive(Default)]
struct ReaderPosition {
    /// Which reader it is. Those before it get nothing any more, or the body would be missing what they take.
    number: usize,
    /// Bytes that it has read, as far as they are kept.
    bytes: usize,
    /// It has read the trailers.
    trailers: bool,
}

/// Reads the body, from its beginning if that is kept.
struct ReplayReader {
    state: Arc<ReplayState>,
    number: usize,
}

/// Why a reader gets no more of the body.
#[derive(Debug, thiserror::Error)]
enum ReplayError {
    #[error("the body is sent anew elsewhere")]
    Superseded,
    #[error("the body has broken off before")]
    BrokenOff,
}

impl ReplayBody {
    /// Keeps `most` bytes of it at most. A body that is longer can no longer be sent again once more of it was sent.
    pub fn new(body: Body, most: usize) -> Self {
        Self::keeping(body, KeptBytes::new(most))
    }

    /// Like [`new`](Self::new), within the memory that all bodies and that of the client at `ip` may take.
    pub fn of_client(body: Body, most: usize, ip: IpAddr) -> Self {
        Self::keeping(body, KeptBytes::of_client(most, ip))
    }

    fn keeping(body: Body, bytes: KeptBytes) -> Self {
        let sized = body.size_hint().exact().is_some();
        let kept = KeptBody {
            body,
            bytes,
            trailers: None,
            whole: true,
            failed: false,
            awaits_client: false,
            reader: ReaderPosition::default(),
        };
        Self(Arc::new(ReplayState { kept: Mutex::new(kept), sized, pieces: AtomicUsize::new(0) }))
    }

    /// Whether it is there from its beginning: not too much of it was read, and it did not break off.
    pub fn is_whole(&self) -> bool {
        self.0.kept.lock().is_whole()
    }

    /// The body, from its beginning, if it is there. Earlier readers fail from now on.
    pub fn read(&self) -> Option<Body> {
        let mut kept = self.0.kept.lock();
        if !kept.is_whole() {
            return None;
        }
        let number = kept.reader.number + 1;
        kept.reader = ReaderPosition { number, ..ReaderPosition::default() };
        Some(Body::from_source(Box::new(ReplayReader { state: Arc::clone(&self.0), number })))
    }

    /// Ready when a part of it is there to be read.
    pub fn poll_arrived(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.kept.lock().poll_arrived(cx)
    }

    /// Whether its reader waits for what its client has not sent yet.
    pub fn awaits_client(&self) -> bool {
        let kept = self.0.kept.lock();
        kept.awaits_client && !kept.body.is_end_stream()
    }

    /// How many pieces its readers were given.
    pub fn pieces(&self) -> usize {
        self.0.pieces.load(Ordering::Relaxed)
    }

    /// Keeps nothing any more, save what its reader has not read yet.
    pub fn forget(&self) {
        self.0.kept.lock().forget();
    }
}

impl KeptBody {
    fn is_whole(&self) -> bool {
        self.whole && !self.failed
    }

    fn forget(&mut self) {
        self.whole = false;
        if self.reader.bytes >= self.bytes.len() {
            self.bytes.clear();
        }
    }

    fn keep(&mut self, frame: &Frame<Bytes>) {
        if let Some(trailers) = frame.trailers_ref() {
            self.trailers = Some(trailers.clone());
        } else if let Some(piece) = frame.data_ref()
            && !self.bytes.push(piece)
        {
            self.forget();
        }
    }

    /// Whether something that was kept is still to be read.
    fn has_unread(&self) -> bool {
        self.reader.bytes < self.bytes.len() || (self.trailers.is_some() && !self.reader.trailers)
    }

    /// The next piece of what was kept, if it was not read yet.
    fn next_kept(&mut self) -> Option<Frame<Bytes>> {
        let rest = self.bytes.behind(self.reader.bytes);
        if !rest.is_empty() {
            let again = Bytes::copy_from_slice(&rest[..rest.len().min(AGAIN)]);
            self.reader.bytes += again.len();
            if !self.whole {
                self.forget();
            }
            return Some(Frame::data(again));
        }
        let trailers = self.trailers.as_ref().filter(|_| !self.reader.trailers)?;
        self.reader.trailers = true;
        Some(Frame::trailers(trailers.clone()))
    }

    /// The next piece of what was not read before.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.awaits_client = polled.is_pending();
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.reader.trailers |= frame.is_trailers();
                if self.whole {
                    self.reader.bytes += frame.data_ref().map_or(0, Bytes::len);
                    self.keep(frame);
                }
            }
            Poll::Ready(Some(Err(_))) => self.failed = true,
            Poll::Ready(None) | Poll::Pending => {}
        }
        polled
    }

    fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Its end is there, and so is the news that it broke off. The body itself has told it once and is silent now.
        if self.failed || self.body.is_end_stream() {
            return Poll::Ready(());
        }
        let polled = self.body.poll_arrived(cx);
        self.awaits_client = polled.is_pending();
        polled
    }
}

impl BodySource for ReplayReader {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut kept = self.state.kept.lock();
        if kept.reader.number != self.number {
            return Poll::Ready(Some(Err(ReplayError::Superseded.into())));
        }
        let polled = match kept.next_kept() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None if kept.failed => Poll::Ready(Some(Err(ReplayError::BrokenOff.into()))),
            None => kept.poll_rest(cx),
        };
        if matches!(polled, Poll::Ready(Some(Ok(_)))) {
            self.state.pieces.fetch_add(1, Ordering::Relaxed);
        }
        polled
    }

    fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut kept = self.state.kept.lock();
        if kept.reader.number != self.number || kept.has_unread() { Poll::Ready(()) } else { kept.poll_arrived(cx) }
    }

    /// A reader that another one has followed fails, so it is not over.
    fn is_over(&self) -> bool {
        let kept = self.state.kept.lock();
        kept.reader.number == self.number && !kept.has_unread() && !kept.failed && kept.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let kept = self.state.kept.lock();
        if !self.state.sized || kept.failed || kept.reader.number != self.number {
            return SizeHint::new();
        }
        let again = kept.bytes.len().saturating_sub(kept.reader.bytes);
        kept.body.size_hint().exact().map_or_else(SizeHint::new, |rest| SizeHint::with_exact(rest + again as u64))
    }

    fn ended(self: Box<Self>) {}
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    const MOST_KEPT: usize = 64 * 1024;

    fn body(pieces: usize, length: usize) -> Body {
        let pieces = (0..pieces).map(move |n| Ok(Frame::data(Bytes::from(vec![b'a' + n as u8; length]))));
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "1".parse().unwrap());
        Body::boxed(StreamBody::new(futures_util::stream::iter(pieces.chain([Ok(Frame::trailers(trailers))]))))
    }

    async fn whole(body: Body) -> (Bytes, Option<HeaderMap>) {
        let collected = body.collect().await.unwrap();
        let trailers = collected.trailers().cloned();
        (collected.to_bytes(), trailers)
    }

    #[tokio::test]
    async fn what_was_read_is_read_again_and_then_the_rest() {
        for read in 0..6 {
            let replay = ReplayBody::new(body(4, 10), MOST_KEPT);
            let mut first = replay.read().unwrap();
            for _ in 0..read {
                first.frame().await;
            }
            drop(first);
            assert_eq!(whole(replay.read().unwrap()).await, whole(body(4, 10)).await, "{read}");
        }
    }

    #[tokio::test]
    async fn a_long_body_is_not_kept() {
        let replay = ReplayBody::new(body(3, MOST_KEPT / 2), MOST_KEPT);
        let mut first = replay.read().unwrap();
        first.frame().await;
        assert!(replay.is_whole());
        first.frame().await;
        first.frame().await;
        assert!(!replay.is_whole() && replay.read().is_none());
        assert!(first.frame().await.unwrap().unwrap().is_trailers());
    }

    #[tokio::test]
    async fn many_small_pieces_hold_no_more_than_their_bytes() {
        // Each is one byte of a large buffer.
        let buffer = Bytes::from(vec![b'a'; 1 << 20]);
        let pieces = (0..MOST_KEPT).map({
            let buffer = buffer.clone();
            move |n| Ok(Frame::data(buffer.slice(n..=n)))
        });
        let replay = ReplayBody::new(Body::boxed(StreamBody::new(futures_util::stream::iter(pieces))), MOST_KEPT);
        assert_eq!(whole(replay.read().unwrap()).await.0.len(), MOST_KEPT);
        assert!(replay.0.kept.lock().bytes.capacity() <= 2 * MOST_KEPT);
        assert_eq!(whole(replay.read().unwrap()).await.0.len(), MOST_KEPT);
        // The pieces' own references are gone with the iterator: what is kept holds nothing of the buffer.
        drop(std::mem::replace(&mut replay.0.kept.lock().body, Body::empty()));
        assert!(buffer.is_unique());
    }

    #[tokio::test]
    async fn a_reader_gets_what_was_kept_before_it_was_forgotten() {
        for read in 0..6 {
            let replay = ReplayBody::new(body(4, AGAIN), MOST_KEPT);
            let mut first = replay.read().unwrap();
            for _ in 0..read {
                first.frame().await;
            }
            let mut second = replay.read().unwrap();
            let begin = second.frame().await.unwrap().unwrap().into_data().unwrap();
            replay.forget();
            assert!(replay.read().is_none());
            let (rest, trailers) = whole(second).await;
            assert_eq!((Bytes::from([begin, rest].concat()), trailers), whole(body(4, AGAIN)).await, "{read}");
            assert_eq!(replay.0.kept.lock().bytes.capacity(), 0, "{read}");
        }
    }

    #[tokio::test]
    async fn a_reader_that_another_follows_takes_nothing_from_it() {
        let replay = ReplayBody::new(body(4, 10), MOST_KEPT);
        let mut first = replay.read().unwrap();
        first.frame().await;
        let second = replay.read().unwrap();
        assert!(!first.is_end_stream());
        assert!(first.frame().await.unwrap().is_err());
        assert_eq!(whole(second).await, whole(body(4, 10)).await);
    }

    /// A body without content, of which that was not known before it was read. Having said so, it says nothing more.
    struct EmptyAfterAll {
        is_over: bool,
    }

    impl BodySource for EmptyAfterAll {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            self.is_over = true;
            Poll::Ready(None)
        }

        fn poll_arrived(&mut self, _: &mut Context<'_>) -> Poll<()> {
            if self.is_over { Poll::Pending } else { Poll::Ready(()) }
        }

        fn is_over(&self) -> bool {
            self.is_over
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::new()
        }

        fn ended(self: Box<Self>) {}
    }

    #[tokio::test]
    async fn the_end_of_an_empty_body_is_there_for_each_reader() {
        let replay = ReplayBody::new(Body::from_source(Box::new(EmptyAfterAll { is_over: false })), MOST_KEPT);
        for _ in 0..2 {
            let mut reader = replay.read().unwrap();
            assert!(std::future::poll_fn(|cx| Poll::Ready(reader.poll_arrived(cx).is_ready())).await);
            assert!(reader.frame().await.is_none());
        }
    }

    #[tokio::test]
    async fn a_body_that_broke_off_is_not_read_again() {
        let pieces = [Ok(Frame::data(Bytes::from_static(b"abc"))), Err("reset".into())];
        let replay = ReplayBody::new(Body::boxed(StreamBody::new(futures_util::stream::iter(pieces))), MOST_KEPT);
        let mut first = replay.read().unwrap();
        first.frame().await;
        // Taken before the break is known.
        let mut second = replay.read().unwrap();
        second.frame().await;
        assert!(second.frame().await.unwrap().is_err());
        assert!(replay.read().is_none());
        let mut kept = replay.0.kept.lock();
        assert!(kept.next_kept().is_none() && kept.failed);
    }

    #[tokio::test]
    async fn the_length_counts_what_is_read_again() {
        let replay = ReplayBody::new(Body::from(Bytes::from_static(b"whole")), MOST_KEPT);
        let mut first = replay.read().unwrap();
        assert_eq!(first.size_hint().exact(), Some(5));
        first.frame().await;
        assert!(first.is_end_stream());
        assert_eq!(replay.read().unwrap().size_hint().exact(), Some(5));
    }

    #[tokio::test]
    async fn a_body_whose_length_was_not_known_has_none_when_it_is_read_again() {
        let replay = ReplayBody::new(body(1, 10), MOST_KEPT);
        whole(replay.read().unwrap()).await;
        assert_eq!(replay.read().unwrap().size_hint().exact(), None);
    }
}

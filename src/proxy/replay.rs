//! A request body of which the beginning is kept, so that it can be sent again.
//!
//! Guarantees that it streams, and that no more bytes are kept than its bound says, and none once the response has begun.
//! They are copied: a piece that was kept as it came would hold all of the buffer that it was read into.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;

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
    /// Pieces that were read so far: it grows as the body moves.
    pieces: AtomicUsize,
}

struct KeptBody {
    body: Body,
    /// Bytes that are kept at most. A body that is longer can no longer be sent again once more of it was sent.
    most: usize,
    bytes: Vec<u8>,
    trailers: Option<HeaderMap>,
    /// All that was read is in `bytes` and `trailers`.
    whole: bool,
}

/// Reads the body, from its beginning if that is kept.
struct ReplayReader {
    state: Arc<ReplayState>,
    /// Bytes that were read, as far as they are kept.
    position: usize,
    ended: bool,
}

impl ReplayBody {
    /// Keeps `most` bytes of it at most.
    pub fn new(body: Body, most: usize) -> Self {
        let sized = body.size_hint().exact().is_some();
        let kept = KeptBody { body, most, bytes: Vec::new(), trailers: None, whole: true };
        Self(Arc::new(ReplayState { kept: Mutex::new(kept), sized, pieces: AtomicUsize::new(0) }))
    }

    /// The body, from its beginning. `None`: too much of it was read. One reader at a time.
    pub fn read(&self) -> Option<Body> {
        let reader = ReplayReader { state: Arc::clone(&self.0), position: 0, ended: false };
        self.0.kept.lock().whole.then(|| Body::from_source(Box::new(reader)))
    }

    /// Ready when a part of it is there to be read.
    pub fn poll_arrived(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.kept.lock().body.poll_arrived(cx)
    }

    /// Whether its client has sent all of it, as far as that is known.
    pub fn has_arrived(&self) -> bool {
        self.0.kept.lock().body.is_end_stream()
    }

    /// How many pieces were read.
    pub fn pieces(&self) -> usize {
        self.0.pieces.load(Ordering::Relaxed)
    }

    /// Keeps nothing any more.
    pub fn forget(&self) {
        self.0.kept.lock().forget();
    }
}

impl KeptBody {
    fn forget(&mut self) {
        self.whole = false;
        (self.bytes, self.trailers) = (Vec::new(), None);
    }

    fn keep(&mut self, frame: &Frame<Bytes>) {
        if let Some(trailers) = frame.trailers_ref() {
            self.trailers = Some(trailers.clone());
        } else if let Some(piece) = frame.data_ref() {
            if self.bytes.len() + piece.len() > self.most {
                return self.forget();
            }
            self.bytes.extend_from_slice(piece);
        }
    }
}

impl ReplayReader {
    /// Whether something that was kept is still to be read.
    fn has_unread(&self, kept: &KeptBody) -> bool {
        kept.whole && (self.position < kept.bytes.len() || (kept.trailers.is_some() && !self.ended))
    }
}

impl BodySource for ReplayReader {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut kept = self.state.kept.lock();
        if kept.whole {
            let rest = kept.bytes.get(self.position..).unwrap_or_default();
            if !rest.is_empty() {
                let again = Bytes::copy_from_slice(&rest[..rest.len().min(AGAIN)]);
                self.position += again.len();
                return Poll::Ready(Some(Ok(Frame::data(again))));
            }
            if let Some(trailers) = &kept.trailers {
                let again = (!self.ended).then(|| Ok(Frame::trailers(trailers.clone())));
                self.ended = true;
                return Poll::Ready(again);
            }
        }
        let polled = Pin::new(&mut kept.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.state.pieces.fetch_add(1, Ordering::Relaxed);
            self.position += frame.data_ref().map_or(0, Bytes::len);
            self.ended |= frame.is_trailers();
            if kept.whole {
                kept.keep(frame);
            }
        }
        polled
    }

    fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut kept = self.state.kept.lock();
        if self.has_unread(&kept) { Poll::Ready(()) } else { kept.body.poll_arrived(cx) }
    }

    fn is_over(&self) -> bool {
        let kept = self.state.kept.lock();
        !self.has_unread(&kept) && kept.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if !self.state.sized {
            return SizeHint::new();
        }
        let kept = self.state.kept.lock();
        let again = if kept.whole { kept.bytes.len().saturating_sub(self.position) } else { 0 };
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
        assert!(replay.read().is_some());
        first.frame().await;
        first.frame().await;
        assert!(replay.read().is_none());
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

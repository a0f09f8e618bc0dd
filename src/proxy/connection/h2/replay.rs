//! A request body of which the beginning is kept, so that it can be sent again.
//!
//! Guarantees that it streams, and that no more than [`MOST_KEPT`] bytes are kept, and none once the response has begun.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;

use crate::body::{Body, BodySource, BoxError};

/// Bytes that are kept. A body that is longer can no longer be sent again once so much of it was sent.
const MOST_KEPT: usize = 64 * 1024;

/// A body that can be read anew.
#[derive(Clone)]
pub struct ReplayBody(Arc<ReplayState>);

struct ReplayState {
    kept: Mutex<KeptBody>,
    /// Pieces that were read so far: it grows as the body moves.
    pieces: AtomicUsize,
}

struct KeptBody {
    body: Body,
    pieces: Vec<Bytes>,
    bytes: usize,
    trailers: Option<HeaderMap>,
    /// All that was read is in `pieces` and `trailers`.
    whole: bool,
}

/// Reads the body, from its beginning if that is kept.
struct ReplayReader {
    state: Arc<ReplayState>,
    position: usize,
    ended: bool,
}

impl ReplayBody {
    pub fn new(body: Body) -> Self {
        let kept = KeptBody { body, pieces: Vec::new(), bytes: 0, trailers: None, whole: true };
        Self(Arc::new(ReplayState { kept: Mutex::new(kept), pieces: AtomicUsize::new(0) }))
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
        (self.pieces, self.trailers) = (Vec::new(), None);
    }

    fn keep(&mut self, frame: &Frame<Bytes>) {
        if let Some(trailers) = frame.trailers_ref() {
            self.trailers = Some(trailers.clone());
        } else if let Some(piece) = frame.data_ref() {
            self.bytes += piece.len();
            self.pieces.push(piece.clone());
        }
        if self.bytes > MOST_KEPT {
            self.forget();
        }
    }
}

impl BodySource for ReplayReader {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut kept = self.state.kept.lock();
        if kept.whole {
            if let Some(piece) = kept.pieces.get(self.position) {
                self.position += 1;
                return Poll::Ready(Some(Ok(Frame::data(piece.clone()))));
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
            self.position += usize::from(frame.is_data());
            self.ended |= frame.is_trailers();
            if kept.whole {
                kept.keep(frame);
            }
        }
        polled
    }

    fn is_over(&self) -> bool {
        let kept = self.state.kept.lock();
        let unread = kept.whole && (self.position < kept.pieces.len() || (kept.trailers.is_some() && !self.ended));
        !unread && kept.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let kept = self.state.kept.lock();
        let again: usize = kept.pieces.iter().skip(self.position).map(Bytes::len).sum();
        kept.body.size_hint().exact().map_or_else(SizeHint::new, |rest| SizeHint::with_exact(rest + again as u64))
    }

    fn ended(self: Box<Self>) {}
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

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
            let replay = ReplayBody::new(body(4, 10));
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
        let replay = ReplayBody::new(body(3, MOST_KEPT / 2));
        let mut first = replay.read().unwrap();
        first.frame().await;
        assert!(replay.read().is_some());
        first.frame().await;
        first.frame().await;
        assert!(replay.read().is_none());
        assert!(first.frame().await.unwrap().unwrap().is_trailers());
    }

    #[tokio::test]
    async fn the_length_counts_what_is_read_again() {
        let replay = ReplayBody::new(Body::from(Bytes::from_static(b"whole")));
        let mut first = replay.read().unwrap();
        assert_eq!(first.size_hint().exact(), Some(5));
        first.frame().await;
        assert!(first.is_end_stream());
        assert_eq!(replay.read().unwrap().size_hint().exact(), Some(5));
    }
}

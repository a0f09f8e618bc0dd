//! A request body of which the beginning is kept, so that it can be sent again.
//!
//! Guarantees that the body streams, that the kept bytes are bounded, and that none are kept once
//! the response has begun. Bytes are copied: a piece that was kept as it came would hold all of the
//! buffer that it was read into.

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
use tollgate_wire::body::{Body, BodySource, BoxError};

/// Bytes that are handed out at once when they are read again.
const PIECE: usize = 16 * 1024;

/// A body that can be read anew.
#[derive(Clone)]
pub struct ReplayBody(Arc<ReplayState>);

struct ReplayState {
    kept: Mutex<KeptBody>,
    /// The body's length was known from the start, if only that it is empty: another reader frames
    /// the body as the first did.
    sized: bool,
    /// Pieces that readers were given so far.
    pieces: AtomicUsize,
}

struct KeptBody {
    body: Body,
    bytes: KeptBytes,
    trailers: Option<HeaderMap>,
    /// All that was read is in `bytes` and `trailers`, and more may be kept.
    whole: bool,
    /// The body broke off: what was read must not be taken for all of it.
    failed: bool,
    /// The last poll found nothing: the client is to send more.
    awaits_client: bool,
    reader: ReaderPosition,
}

/// How far the present reader has come.
#[derive(Default)]
struct ReaderPosition {
    /// The reader's number. Earlier readers get nothing any more: what they took would be missing
    /// for this one.
    number: usize,
    /// Bytes that the reader has read, as far as they are kept.
    bytes: usize,
    /// The reader has read the trailers.
    trailers: bool,
    /// The reader has seen the end.
    end: bool,
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
    /// Keeps at most `most` bytes of `body`. A longer body cannot be sent again any more once more
    /// of it was sent.
    pub fn new(body: Body, most: usize) -> Self {
        Self::keeping(body, KeptBytes::new(most))
    }

    /// Like [`new`](Self::new), within the memory that all bodies and that of the client at `ip`
    /// may take.
    pub fn for_client(body: Body, most: usize, ip: IpAddr) -> Self {
        Self::keeping(body, KeptBytes::for_client(most, ip))
    }

    fn keeping(body: Body, bytes: KeptBytes) -> Self {
        let sized = body.size_hint().exact().is_some() || body.is_end_stream();
        let kept = KeptBody {
            body,
            bytes,
            trailers: None,
            whole: true,
            failed: false,
            awaits_client: false,
            reader: ReaderPosition::default(),
        };
        Self(Arc::new(ReplayState {
            kept: Mutex::new(kept),
            sized,
            pieces: AtomicUsize::new(0),
        }))
    }

    /// Whether the body is there from its beginning: not too much was read, and it did not break
    /// off.
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
        kept.reader = ReaderPosition {
            number,
            ..ReaderPosition::default()
        };
        Some(Body::from_source(Box::new(ReplayReader {
            state: Arc::clone(&self.0),
            number,
        })))
    }

    /// Ready when a part of the body is there to be read.
    pub fn poll_arrived(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.kept.lock().poll_arrived(cx)
    }

    /// Whether the reader waits for what the client has not sent yet.
    pub fn awaits_client(&self) -> bool {
        let kept = self.0.kept.lock();
        kept.awaits_client && !kept.body.is_end_stream()
    }

    /// The number of pieces that readers were given.
    pub fn pieces(&self) -> usize {
        self.0.pieces.load(Ordering::Relaxed)
    }

    /// Keeps nothing any more, save what the reader has not read yet.
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
        let rest = self.bytes.starting_at(self.reader.bytes);
        if !rest.is_empty() {
            let piece = Bytes::copy_from_slice(&rest[..rest.len().min(PIECE)]);
            self.reader.bytes += piece.len();
            if !self.whole {
                self.forget();
            }
            return Some(Frame::data(piece));
        }
        if self.reader.trailers {
            return None;
        }
        let trailers = self.trailers.clone()?;
        self.reader.trailers = true;
        Some(Frame::trailers(trailers))
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
            Poll::Ready(None) => self.reader.end = true,
            Poll::Pending => {}
        }
        polled
    }

    /// Whether the reader has had all of the body. The reader of a body that turned out empty has
    /// to see the end first: a body that is over from the start is sent without the end that its
    /// framing needs.
    fn is_read(&self, sized: bool) -> bool {
        let was_begun = self.reader.bytes > 0 || self.reader.trailers || self.reader.end;
        !self.has_unread() && !self.failed && self.body.is_end_stream() && (sized || was_begun)
    }

    fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // The body reports its end or its failure once, and is silent afterwards.
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
        if kept.reader.number != self.number || kept.has_unread() {
            Poll::Ready(())
        } else {
            kept.poll_arrived(cx)
        }
    }

    /// A reader that another reader has followed fails, so it is not over.
    fn is_over(&self) -> bool {
        let kept = self.state.kept.lock();
        kept.reader.number == self.number && kept.is_read(self.state.sized)
    }

    fn size_hint(&self) -> SizeHint {
        let kept = self.state.kept.lock();
        if !self.state.sized || kept.failed || kept.reader.number != self.number {
            return SizeHint::new();
        }
        let unread = kept.bytes.len().saturating_sub(kept.reader.bytes);
        match kept.body.size_hint().exact() {
            Some(rest) => SizeHint::with_exact(rest + unread as u64),
            None => SizeHint::new(),
        }
    }

    fn ended(self: Box<Self>) {}
}

#[cfg(test)]
mod tests;

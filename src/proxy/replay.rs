//! A request body of which the beginning is kept, so that it can be sent again.
//!
//! Guarantees that it streams, and that no more bytes are kept than its bound says, and none once
//! the response has begun. They are copied: a piece that was kept as it came would hold all of the
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
use crate::body::{Body, BodySource, BoxError};

/// Bytes that are handed out at once when they are read again.
const AGAIN: usize = 16 * 1024;

/// A body that can be read anew.
#[derive(Clone)]
pub struct ReplayBody(Arc<ReplayState>);

struct ReplayState {
    kept: Mutex<KeptBody>,
    /// Its length was known from the start, if only that it is empty: another reader frames it as
    /// the first did.
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
    /// Which reader it is. Those before it get nothing any more, or the body would be missing what
    /// they take.
    number: usize,
    /// Bytes that it has read, as far as they are kept.
    bytes: usize,
    /// It has read the trailers.
    trailers: bool,
    /// It was told the end.
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
    /// Keeps `most` bytes of it at most. A body that is longer can no longer be sent again once
    /// more of it was sent.
    pub fn new(body: Body, most: usize) -> Self {
        Self::keeping(body, KeptBytes::new(most))
    }

    /// Like [`new`](Self::new), within the memory that all bodies and that of the client at `ip`
    /// may take.
    pub fn of_client(body: Body, most: usize, ip: IpAddr) -> Self {
        Self::keeping(body, KeptBytes::of_client(most, ip))
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

    /// Whether it is there from its beginning: not too much of it was read, and it did not break
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
            Poll::Ready(None) => self.reader.end = true,
            Poll::Pending => {}
        }
        polled
    }

    /// Whether its reader has had all of it. One of a body that turned out empty has first to be
    /// told so: what is over from the start goes out without the end that its framing needs.
    fn is_read(&self, sized: bool) -> bool {
        let was_begun = self.reader.bytes > 0 || self.reader.trailers || self.reader.end;
        !self.has_unread() && !self.failed && self.body.is_end_stream() && (sized || was_begun)
    }

    fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Its end is there, and so is the news that it broke off. The body itself has told it once
        // and is silent now.
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

    /// A reader that another one has followed fails, so it is not over.
    fn is_over(&self) -> bool {
        let kept = self.state.kept.lock();
        kept.reader.number == self.number && kept.is_read(self.state.sized)
    }

    fn size_hint(&self) -> SizeHint {
        let kept = self.state.kept.lock();
        if !self.state.sized || kept.failed || kept.reader.number != self.number {
            return SizeHint::new();
        }
        let again = kept.bytes.len().saturating_sub(kept.reader.bytes);
        kept.body
            .size_hint()
            .exact()
            .map_or_else(SizeHint::new, |rest| {
                SizeHint::with_exact(rest + again as u64)
            })
    }

    fn ended(self: Box<Self>) {}
}

#[cfg(test)]
mod tests;

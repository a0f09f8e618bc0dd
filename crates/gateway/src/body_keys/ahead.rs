//! A body of which the beginning is read ahead, and which then goes on as it came.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};

use tollgate_wire::body::{Body, BodySource, BoxError};
use tollgate_wire::body_memory::{BodyMemory, MemoryReservation};
use tollgate_wire::error::Failure;

/// The room that a body gets at first.
const LEAST_ROOM: usize = 1024;

/// A body that is being read ahead.
pub struct BodyAhead {
    body: Body,
    /// The bytes that were read. Copied: a piece as it came would hold all of the buffer that it
    /// was read into.
    content: Vec<u8>,
    trailers: Option<HeaderMap>,
    /// The piece that did not fit any more.
    rest: Bytes,
    held: MemoryReservation,
    /// The body's length, if that was announced.
    length: Option<u64>,
}

/// Why a body was not read ahead.
#[derive(Debug)]
pub enum AheadError {
    /// The body did not arrive in time.
    Overdue,
    /// Too many others are being read.
    NoMemory,
    Broken(BoxError),
}

/// A body that begins with what was read of it.
struct ResumedBody {
    content: Bytes,
    rest: Bytes,
    trailers: Option<HeaderMap>,
    body: Body,
    /// Bytes that are left, if their number is known.
    length: Option<u64>,
}

/// The bytes of a body with their count.
struct HeldContent {
    content: Vec<u8>,
    _held: MemoryReservation,
}

impl BodyAhead {
    /// A body that a client at `ip` sends.
    pub fn new(body: Body, memory: &Arc<BodyMemory>, ip: IpAddr) -> Self {
        let length = body.size_hint().exact();
        Self {
            body,
            content: Vec::new(),
            trailers: None,
            rest: Bytes::new(),
            held: memory.reserve(ip),
            length,
        }
    }

    /// Reads the body if it is no longer than `most`. Returns whether that is all of it.
    pub async fn read(&mut self, most: usize) -> Result<bool, AheadError> {
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await {
            match frame.map_err(AheadError::Broken)?.into_data() {
                Ok(piece) if self.content.len() + piece.len() > most => {
                    self.rest = piece;
                    return Ok(false);
                }
                Ok(piece) => self.keep(&piece, most)?,
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        }
        Ok(true)
    }

    fn keep(&mut self, piece: &[u8], most: usize) -> Result<(), AheadError> {
        let needed = self.content.len() + piece.len();
        if needed > self.content.capacity() {
            let room = needed.next_power_of_two().max(LEAST_ROOM).min(most);
            if !self.held.grow_to(room) {
                return Err(AheadError::NoMemory);
            }
            self.content.reserve_exact(room - self.content.len());
        }
        self.content.extend_from_slice(piece);
        Ok(())
    }

    /// The bytes that were read so far.
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    /// The body, from its beginning.
    pub fn into_body(self) -> Body {
        let Self {
            body,
            content,
            trailers,
            rest,
            held,
            length,
        } = self;
        let content = Bytes::from_owner(HeldContent {
            content,
            _held: held,
        });
        Body::from_source(Box::new(ResumedBody {
            content,
            rest,
            trailers,
            body,
            length,
        }))
    }
}

impl AheadError {
    pub fn into_failure(self) -> Failure {
        match self {
            Self::Overdue => Failure::RequestTimeout,
            Self::NoMemory => Failure::Overloaded,
            Self::Broken(error) => Failure::from_body_error(&*error),
        }
    }
}

impl AsRef<[u8]> for HeldContent {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

impl ResumedBody {
    fn take_read(&mut self) -> Option<Frame<Bytes>> {
        for piece in [&mut self.content, &mut self.rest] {
            if !piece.is_empty() {
                return Some(Frame::data(std::mem::take(piece)));
            }
        }
        self.trailers.take().map(Frame::trailers)
    }

    fn has_read(&self) -> bool {
        !self.content.is_empty() || !self.rest.is_empty() || self.trailers.is_some()
    }
}

impl BodySource for ResumedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = match self.take_read() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => Pin::new(&mut self.body).poll_frame(cx),
        };
        if let (Poll::Ready(Some(Ok(frame))), Some(left)) = (&polled, &mut self.length) {
            *left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len) as u64);
        }
        polled
    }

    fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_read() {
            Poll::Ready(())
        } else {
            self.body.poll_arrived(cx)
        }
    }

    fn is_over(&self) -> bool {
        !self.has_read() && self.body.is_end_stream()
    }

    /// Without a length where there was none: the upstream's framing is that of the client, which
    /// has room for trailers.
    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::new, SizeHint::with_exact)
    }

    fn ended(self: Box<Self>) {}
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn memory(bytes: usize) -> Arc<BodyMemory> {
        let memory = Arc::new(BodyMemory::default());
        memory.bound(
            NonZeroUsize::new(bytes).unwrap(),
            NonZeroUsize::new(bytes).unwrap(),
        );
        memory
    }

    fn body(pieces: &'static [&'static str]) -> Body {
        let pieces = pieces
            .iter()
            .map(|piece| Ok(Frame::data(Bytes::from(*piece))));
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "1".parse().unwrap());
        Body::boxed(StreamBody::new(futures_util::stream::iter(
            pieces.chain([Ok(Frame::trailers(trailers))]),
        )))
    }

    #[tokio::test]
    async fn a_body_goes_on_as_it_came() {
        for most in 0..8 {
            let mut ahead = BodyAhead::new(body(&["12", "3", "456"]), &memory(4096), CLIENT);
            assert_eq!(ahead.read(most).await.unwrap(), most >= 6, "{most}");
            let whole = ahead.into_body().collect().await.unwrap();
            assert_eq!(whole.trailers().unwrap()["x-sum"], "1");
            assert_eq!(whole.to_bytes(), "123456", "{most}");
        }
    }

    #[tokio::test]
    async fn an_announced_length_counts_what_is_left() {
        let mut ahead = BodyAhead::new(Bytes::from("whole").into(), &memory(4096), CLIENT);
        assert!(ahead.read(5).await.unwrap());
        let mut body = ahead.into_body();
        assert_eq!(
            (body.size_hint().exact(), body.is_end_stream()),
            (Some(5), false)
        );
        body.frame().await;
        assert!(body.is_end_stream());
    }

    #[tokio::test]
    async fn memory_is_held_until_the_content_is_gone() {
        let memory = memory(2048);
        let mut first = BodyAhead::new(body(&["1"]), &memory, CLIENT);
        assert!(first.read(4096).await.unwrap());
        let content = first
            .into_body()
            .frame()
            .await
            .unwrap()
            .unwrap()
            .into_data()
            .unwrap();
        let mut second = BodyAhead::new(body(&["1"]), &memory, CLIENT);
        assert!(second.read(4096).await.unwrap());
        let mut third = BodyAhead::new(body(&["1"]), &memory, CLIENT);
        assert!(matches!(third.read(4096).await, Err(AheadError::NoMemory)));
        drop(content);
        let mut fourth = BodyAhead::new(body(&["1"]), &memory, CLIENT);
        assert!(fourth.read(4096).await.unwrap());
    }
}

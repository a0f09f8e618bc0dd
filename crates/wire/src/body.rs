//! The body type of requests and responses, in both directions.
//!
//! Guarantees that bodies stream: nothing here collects one.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};

use tollgate_limiter::clock::Instant;

/// An error of a body that streams.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The reason why a request body broke off. Decides the answer; a [`BoxError`] is downcast to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyFailure {
    #[error("the request body arrived too slowly")]
    Timeout,
    #[error("the request body arrived more slowly than the least rate")]
    TooSlow,
    #[error("the request body is over the limit")]
    TooLarge,
    #[error("the request body is malformed")]
    Malformed,
}

/// A source of a body. A source that is dropped without a call of [`BodySource::ended`] belongs to
/// a body that was not read to its end.
pub trait BodySource: Send {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>>;

    /// Ready once some of the body is here. Does not make a peer send it, unlike
    /// [`BodySource::poll_frame`].
    fn poll_arrived(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    /// Whether nothing more will come.
    fn is_over(&self) -> bool;

    fn size_hint(&self) -> SizeHint;

    /// The body was read to its end.
    fn ended(self: Box<Self>);
}

/// An observer of a body as it passes, and of its end.
pub trait BodyObserver: Send {
    /// Some content has passed.
    fn on_data(&mut self, data: &[u8]);

    /// The trailers have passed.
    fn on_trailers(&mut self, trailers: &HeaderMap);

    /// The body has ended, or was dropped before its end. `bytes` of content passed. `complete`:
    /// all of the content passed. `now`: the time, if it is known.
    fn on_end(self: Box<Self>, bytes: u64, complete: bool, now: Option<Instant>);
}

/// A request or response body.
pub struct Body {
    kind: BodyKind,
    passed_bytes: u64,
    observer: Option<Box<dyn BodyObserver>>,
}

enum BodyKind {
    Full(Bytes),
    Source(Option<Box<dyn BodySource>>),
    Boxed(Pin<Box<dyn http_body::Body<Data = Bytes, Error = BoxError> + Send>>),
}

impl Body {
    /// A body of no bytes.
    pub fn empty() -> Self {
        Bytes::new().into()
    }

    /// The body that `source` gives. It has not ended yet.
    pub fn from_source(source: Box<dyn BodySource>) -> Self {
        BodyKind::Source(Some(source)).into()
    }

    /// Any other body, in one allocation.
    pub fn boxed(
        body: impl http_body::Body<Data = Bytes, Error = BoxError> + Send + 'static,
    ) -> Self {
        BodyKind::Boxed(Box::pin(body)).into()
    }

    /// Ready once some of the body is here, if its source can tell. A client that waits for a 100
    /// gets none from this.
    pub fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.kind {
            BodyKind::Full(_) | BodyKind::Source(None) => Poll::Ready(()),
            BodyKind::Source(Some(source)) => source.poll_arrived(cx),
            BodyKind::Boxed(_) => Poll::Pending,
        }
    }

    /// Calls `observer` as the body passes.
    pub fn observe(&mut self, observer: Box<dyn BodyObserver>) {
        self.observer = Some(observer);
    }

    fn observe_frame(&mut self, frame: &Frame<Bytes>) {
        let Some(data) = frame.data_ref() else {
            if let (Some(observer), Some(trailers)) = (&mut self.observer, frame.trailers_ref()) {
                observer.on_trailers(trailers);
            }
            return;
        };
        self.passed_bytes += data.len() as u64;
        if let Some(observer) = &mut self.observer {
            observer.on_data(data);
        }
    }

    /// Drops the body at `now`, if the time is known.
    pub fn drop_at(mut self, now: Option<Instant>) {
        let complete = self.is_end_stream();
        self.report_end(complete, now);
    }

    fn report_end(&mut self, complete: bool, now: Option<Instant>) {
        if let Some(observer) = self.observer.take() {
            observer.on_end(self.passed_bytes, complete, now);
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        BodyKind::Full(bytes).into()
    }
}

impl From<BodyKind> for Body {
    fn from(kind: BodyKind) -> Self {
        Self {
            kind,
            passed_bytes: 0,
            observer: None,
        }
    }
}

impl BodyKind {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self {
            Self::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Source(source) => poll_source(source, cx),
            Self::Boxed(body) => body.as_mut().poll_frame(cx),
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let polled = ready!(this.kind.poll_frame(cx));
        match &polled {
            Some(Ok(frame)) => this.observe_frame(frame),
            Some(Err(_)) => this.report_end(false, None),
            None => this.report_end(true, None),
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Full(bytes) => bytes.is_empty(),
            BodyKind::Source(Some(source)) => source.is_over(),
            BodyKind::Source(None) => true,
            BodyKind::Boxed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            BodyKind::Source(Some(source)) => source.size_hint(),
            BodyKind::Source(None) => SizeHint::with_exact(0),
            BodyKind::Boxed(body) => body.size_hint(),
        }
    }
}

/// Ends the body. A body of known length is often dropped right after its last byte, without
/// another poll.
impl Drop for Body {
    fn drop(&mut self) {
        let complete = self.is_end_stream();
        self.report_end(complete, None);
    }
}

fn poll_source(
    source: &mut Option<Box<dyn BodySource>>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
    let Some(current) = source else {
        return Poll::Ready(None);
    };
    let polled = ready!(current.poll_frame(cx));
    match &polled {
        // After the last byte or the trailers, the body is usually not polled again.
        Some(Ok(frame)) if !frame.is_trailers() && !current.is_over() => {}
        Some(Err(_)) => *source = None,
        Some(Ok(_)) | None => {
            if let Some(complete) = source.take() {
                complete.ended();
            }
        }
    }
    Poll::Ready(polled)
}

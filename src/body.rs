//! The one body type that flows through the gateway, in both directions.
//!
//! Streams by default: nothing here collects a body.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};

/// What can go wrong while a body streams.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a request body broke off. Found in a [`BoxError`] by downcasting, it tells how to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyFailure {
    #[error("the request body arrived too slowly")]
    Timeout,
    #[error("the request body is over the limit")]
    TooLarge,
    #[error("the request body is malformed")]
    Malformed,
}

/// A body that streams in from a peer, and must learn how it ended. Dropped: it was given up.
pub trait Tail: Send {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>>;

    /// Nothing more will come.
    fn is_over(&self) -> bool;

    fn size_hint(&self) -> SizeHint;

    /// The body arrived whole.
    fn ended(self: Box<Self>);
}

/// Told what passes of a body, and when it has ended or was dropped before its end.
pub trait Observer: Send {
    /// A piece of content passes.
    fn saw(&mut self, piece: &[u8]);

    /// `bytes` of content passed; `complete` says whether that was all of it.
    fn ended(self: Box<Self>, bytes: u64, complete: bool);
}

/// A request or response body.
pub struct Body {
    kind: Kind,
    passed: u64,
    observer: Option<Box<dyn Observer>>,
}

enum Kind {
    Full(Bytes),
    Tailed(Option<Box<dyn Tail>>),
    Boxed(Pin<Box<dyn http_body::Body<Data = Bytes, Error = BoxError> + Send>>),
}

impl Body {
    /// A body of no bytes.
    pub fn empty() -> Self {
        Bytes::new().into()
    }

    /// A body whose end matters. It has not ended yet.
    pub fn tailed(tail: Box<dyn Tail>) -> Self {
        Kind::Tailed(Some(tail)).into()
    }

    /// Any other body, behind one allocation.
    pub fn boxed(body: impl http_body::Body<Data = Bytes, Error = BoxError> + Send + 'static) -> Self {
        Kind::Boxed(Box::pin(body)).into()
    }

    /// Lets `observer` see the body pass.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    fn pass(&mut self, frame: &Frame<Bytes>) {
        let Some(data) = frame.data_ref() else { return };
        self.passed += data.len() as u64;
        if let Some(observer) = &mut self.observer {
            observer.saw(data);
        }
    }

    fn end(&mut self, complete: bool) {
        if let Some(observer) = self.observer.take() {
            observer.ended(self.passed, complete);
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Kind::Full(bytes).into()
    }
}

impl From<Kind> for Body {
    fn from(kind: Kind) -> Self {
        Self { kind, passed: 0, observer: None }
    }
}

impl Kind {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self {
            Self::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Tailed(tail) => poll_tailed(tail, cx),
            Self::Boxed(body) => body.as_mut().poll_frame(cx),
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let polled = ready!(this.kind.poll_frame(cx));
        match &polled {
            Some(Ok(frame)) => this.pass(frame),
            Some(Err(_)) => this.end(false),
            None => this.end(true),
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Full(bytes) => bytes.is_empty(),
            Kind::Tailed(tail) => tail.as_ref().is_none_or(|tail| tail.is_over()),
            Kind::Boxed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Tailed(tail) => tail.as_ref().map_or_else(|| SizeHint::with_exact(0), |tail| tail.size_hint()),
            Kind::Boxed(body) => body.size_hint(),
        }
    }
}

/// A body that knows its length is often dropped right after its last byte, without being asked for more.
impl Drop for Body {
    fn drop(&mut self) {
        let complete = self.is_end_stream();
        self.end(complete);
    }
}

fn poll_tailed(tail: &mut Option<Box<dyn Tail>>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
    let Some(coming) = tail else { return Poll::Ready(None) };
    let polled = ready!(coming.poll_frame(cx));
    match &polled {
        // Whoever writes a body on asks no further after its last byte or its trailers.
        Some(Ok(frame)) if !frame.is_trailers() && !coming.is_over() => {}
        Some(Err(_)) => *tail = None,
        _ => {
            if let Some(whole) = tail.take() {
                whole.ended();
            }
        }
    }
    Poll::Ready(polled)
}

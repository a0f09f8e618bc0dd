//! The body of a response that a layer gave a request's limits to look at.
//!
//! Guarantees the inner body as it is, frame by frame and when it is asked for; what is held ends with it. Refuses to know
//! what is held.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::request::permit::Permit;

pin_project! {
    /// A body, and what the request holds until it has ended.
    #[derive(Debug, Default)]
    pub struct PermitBody<B> {
        #[pin]
        inner: B,
        holding: Permit,
    }
}

impl<B: Body> PermitBody<B> {
    pub(crate) fn new(inner: B, mut holding: Permit) -> Self {
        if inner.is_end_stream() {
            holding.ended(true);
        }
        Self { inner, holding }
    }
}

/// An answer that holds nothing.
impl<B: From<Bytes>> From<Bytes> for PermitBody<B> {
    fn from(bytes: Bytes) -> Self {
        Self { inner: bytes.into(), holding: Permit::default() }
    }
}

impl<B: Body<Data = Bytes>> Body for PermitBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let polled = ready!(this.inner.as_mut().poll_frame(cx));
        if !this.holding.is_empty() {
            match &polled {
                Some(Ok(frame)) => {
                    this.holding.saw(frame.data_ref().map_or(&[], |data| data));
                    // Whoever knows the length asks no further after the last byte.
                    if this.inner.is_end_stream() {
                        this.holding.ended(true);
                    }
                }
                Some(Err(_)) => this.holding.ended(false),
                None => this.holding.ended(true),
            }
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

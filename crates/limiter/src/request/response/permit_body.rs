//! The body of a response, with the permit of its request.
//!
//! Guarantees the inner body unchanged, frame by frame and when it is polled. The permit ends with
//! it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::request::response::permit::Permit;

pin_project! {
    /// A body, and the permit that its request has until the body has ended.
    #[derive(Debug, Default)]
    pub struct PermitBody<B> {
        #[pin]
        inner: B,
        permit: Permit,
    }
}

impl<B: Body> PermitBody<B> {
    pub(crate) fn new(inner: B, mut permit: Permit) -> Self {
        if inner.is_end_stream() {
            permit.ended(true);
        }
        Self { inner, permit }
    }
}

/// An answer without a permit.
impl<B: From<Bytes>> From<Bytes> for PermitBody<B> {
    fn from(bytes: Bytes) -> Self {
        Self {
            inner: bytes.into(),
            permit: Permit::default(),
        }
    }
}

impl<B: Body<Data = Bytes>> Body for PermitBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let polled = ready!(this.inner.as_mut().poll_frame(cx));
        if !this.permit.is_empty() {
            match &polled {
                Some(Ok(frame)) => {
                    this.permit.saw(frame.data_ref().map_or(&[], |data| data));
                    // A reader that knows the length polls no further after the last byte.
                    if this.inner.is_end_stream() {
                        this.permit.ended(true);
                    }
                }
                Some(Err(_)) => this.permit.ended(false),
                None => this.permit.ended(true),
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

//! Bounds request bodies: refuses a declared length at once, and cuts an undeclared one at the
//! bound.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Request;
use http_body::{Body as _, Frame, SizeHint};

use tollgate_wire::body::{Body, BodyFailure, BodySource, BoxError};
use tollgate_wire::error::Failure;

/// The largest request body, in bytes.
#[derive(Clone, Copy)]
pub struct BodyBound(pub u64);

/// A body that fails after `left` more bytes.
struct BoundedBody {
    body: Body,
    left: u64,
}

impl BodyBound {
    /// Bounds the request's body. Costs nothing when its length is known.
    ///
    /// # Errors
    /// [`Failure::BodyTooLarge`] when the length is known, and over the bound.
    #[inline]
    pub fn apply(self, request: &mut Request<Body>) -> Result<(), Failure> {
        let size = request.body().size_hint();
        if size.lower() > self.0 {
            return Err(Failure::BodyTooLarge);
        }
        if let Some(upper) = size.upper()
            && upper <= self.0
        {
            return Ok(());
        }
        let body = std::mem::replace(request.body_mut(), Body::empty());
        let bounded = BoundedBody { body, left: self.0 };
        *request.body_mut() = Body::from_source(Box::new(bounded));
        Ok(())
    }
}

impl BodySource for BoundedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(frame) = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)?) else {
            return Poll::Ready(None);
        };
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        match self.left.checked_sub(length) {
            Some(left) => {
                self.left = left;
                Poll::Ready(Some(Ok(frame)))
            }
            None => Poll::Ready(Some(Err(BodyFailure::TooLarge.into()))),
        }
    }

    fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.body.poll_arrived(cx)
    }

    fn is_over(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    fn ended(self: Box<Self>) {}
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    fn chunked(chunks: &[&'static str]) -> Request<Body> {
        let frames: Vec<Result<_, BoxError>> = chunks
            .iter()
            .map(|text| Ok(Frame::data(Bytes::from(*text))))
            .collect();
        Request::new(Body::boxed(StreamBody::new(futures_util::stream::iter(
            frames,
        ))))
    }

    #[test]
    fn a_declared_length_is_refused_at_once() {
        let mut request = Request::new(Body::from(Bytes::from("12345")));
        assert!(BodyBound(5).apply(&mut request).is_ok());
        assert!(matches!(
            BodyBound(4).apply(&mut request),
            Err(Failure::BodyTooLarge)
        ));
    }

    #[tokio::test]
    async fn an_undeclared_length_is_cut_at_the_bound() {
        let mut fits = chunked(&["12", "345"]);
        let mut long = chunked(&["12", "3456"]);
        BodyBound(5).apply(&mut fits).unwrap();
        BodyBound(5).apply(&mut long).unwrap();
        assert_eq!(
            fits.into_body().collect().await.unwrap().to_bytes(),
            "12345"
        );
        let error = long.into_body().collect().await.unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&BodyFailure::TooLarge));
    }
}

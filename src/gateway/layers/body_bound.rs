//! Bounds request bodies: refuses a declared length at once, and cuts an undeclared one at the
//! bound.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::Either;
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use tower_layer::Layer;
use tower_service::Service;

use crate::body::{Body, BodyFailure, BodySource, BoxError};
use crate::error::Failure;
use crate::gateway::exchange::Exchange;
use crate::gateway::layers::refused::Refused;

/// The largest request body, in bytes.
#[derive(Clone, Copy)]
pub struct BodyBoundLayer(pub u64);

/// A service whose request bodies are bounded.
#[derive(Clone)]
pub struct BodyBound<S> {
    inner: S,
    max: u64,
}

impl<S> Layer<S> for BodyBoundLayer {
    type Service = BodyBound<S>;

    fn layer(&self, inner: S) -> BodyBound<S> {
        BodyBound { inner, max: self.0 }
    }
}

impl<'a, 'g, S> Service<&'a mut Exchange<'g>> for BodyBound<S>
where
    S: Service<&'a mut Exchange<'g>, Response = Response<Body>, Error = Failure>,
{
    type Response = Response<Body>;
    type Error = Failure;
    type Future = Either<Refused, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, exchange: &'a mut Exchange<'g>) -> Self::Future {
        match bound(exchange.request, self.max) {
            Ok(()) => Either::Right(self.inner.call(exchange)),
            Err(failure) => Either::Left(Refused::new(failure)),
        }
    }
}

/// A body that fails after `left` more bytes.
struct BoundedBody {
    body: Body,
    left: u64,
}

/// Bounds the request's body to `max` bytes. Costs nothing when its length is known.
fn bound(request: &mut Request<Body>, max: u64) -> Result<(), Failure> {
    let size = request.body().size_hint();
    if size.lower() > max {
        return Err(Failure::BodyTooLarge);
    }
    if size.upper().is_some_and(|upper| upper <= max) {
        return Ok(());
    }
    let body = std::mem::replace(request.body_mut(), Body::empty());
    *request.body_mut() = Body::from_source(Box::new(BoundedBody { body, left: max }));
    Ok(())
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
        assert!(bound(&mut request, 5).is_ok());
        assert!(matches!(bound(&mut request, 4), Err(Failure::BodyTooLarge)));
    }

    #[tokio::test]
    async fn an_undeclared_length_is_cut_at_the_bound() {
        let (mut fits, mut long) = (chunked(&["12", "345"]), chunked(&["12", "3456"]));
        bound(&mut fits, 5).unwrap();
        bound(&mut long, 5).unwrap();
        assert_eq!(
            fits.into_body().collect().await.unwrap().to_bytes(),
            "12345"
        );
        let error = long.into_body().collect().await.unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&BodyFailure::TooLarge));
    }
}

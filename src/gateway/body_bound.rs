//! The bound on request bodies: refused at once when the length is told, cut where it is not.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Request;
use http_body::{Body as _, Frame, SizeHint};

use crate::body::{Body, BodyFailure, BoxError};
use crate::error::Failure;

/// A body that fails after `left` more bytes.
struct Bounded {
    body: Body,
    left: u64,
}

/// Holds the request's body to `most` bytes. Costs nothing when its length is known.
pub fn bound(request: Request<Body>, most: Option<u64>) -> Result<Request<Body>, Failure> {
    let Some(most) = most else { return Ok(request) };
    let size = request.body().size_hint();
    if size.lower() > most {
        return Err(Failure::BodyTooLarge);
    }
    if size.upper().is_some_and(|upper| upper <= most) {
        return Ok(request);
    }
    Ok(request.map(|body| Body::boxed(Bounded { body, left: most })))
}

impl http_body::Body for Bounded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)?) else { return Poll::Ready(None) };
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        match self.left.checked_sub(length) {
            Some(left) => {
                self.left = left;
                Poll::Ready(Some(Ok(frame)))
            }
            None => Poll::Ready(Some(Err(BodyFailure::TooLarge.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    fn chunked(chunks: &[&'static str]) -> Request<Body> {
        let frames: Vec<Result<_, BoxError>> = chunks.iter().map(|text| Ok(Frame::data(Bytes::from(*text)))).collect();
        Request::new(Body::boxed(StreamBody::new(futures_util::stream::iter(frames))))
    }

    #[test]
    fn a_told_length_is_judged_at_once() {
        let request = || Request::new(Body::from(Bytes::from("12345")));
        assert!(bound(request(), Some(5)).is_ok());
        assert!(matches!(bound(request(), Some(4)), Err(Failure::BodyTooLarge)));
        assert!(bound(request(), None).is_ok());
    }

    #[tokio::test]
    async fn an_untold_length_is_cut_where_it_passes_the_bound() {
        let fits = bound(chunked(&["12", "345"]), Some(5)).unwrap();
        assert_eq!(fits.into_body().collect().await.unwrap().to_bytes(), "12345");
        let long = bound(chunked(&["12", "3456"]), Some(5)).unwrap();
        let error = long.into_body().collect().await.unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&BodyFailure::TooLarge));
    }
}

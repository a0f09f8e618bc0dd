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
pub fn bound(request: &mut Request<Body>, most: Option<u64>) -> Result<(), Failure> {
    let Some(most) = most else { return Ok(()) };
    let size = request.body().size_hint();
    if size.lower() > most {
        return Err(Failure::BodyTooLarge);
    }
    if size.upper().is_some_and(|upper| upper <= most) {
        return Ok(());
    }
    let body = std::mem::replace(request.body_mut(), Body::empty());
    *request.body_mut() = Body::boxed(Bounded { body, left: most });
    Ok(())
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
        let mut request = Request::new(Body::from(Bytes::from("12345")));
        assert!(bound(&mut request, Some(5)).is_ok());
        assert!(matches!(bound(&mut request, Some(4)), Err(Failure::BodyTooLarge)));
        assert!(bound(&mut request, None).is_ok());
    }

    #[tokio::test]
    async fn an_untold_length_is_cut_where_it_passes_the_bound() {
        let (mut fits, mut long) = (chunked(&["12", "345"]), chunked(&["12", "3456"]));
        bound(&mut fits, Some(5)).unwrap();
        bound(&mut long, Some(5)).unwrap();
        assert_eq!(fits.into_body().collect().await.unwrap().to_bytes(), "12345");
        let error = long.into_body().collect().await.unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&BodyFailure::TooLarge));
    }
}

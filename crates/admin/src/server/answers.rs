//! Bounds the answers that are made or sent at a time: so many in all, and a share of each client.
//!
//! Guarantees that an answer counts until it has left, but for a last piece of [`PIECE`]: an answer
//! is held in memory for as long as its client likes to take.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use tollgate_wire::address_shares::{AddressShare, AddressShares};

/// Bytes of an answer that are handed on at a time. A connection may hold the last ones when their
/// body has ended.
const PIECE: usize = 16 * 1024;

/// The bound on answers of some kind.
pub struct AnswerBound {
    all: Arc<Semaphore>,
    most: u32,
    shares: Arc<AddressShares>,
    per_client: usize,
}

/// A place for an answer. Dropping the last clone makes room.
#[derive(Clone, Debug)]
pub struct AnswerPlace {
    _share: Arc<AddressShare>,
    _permit: Arc<OwnedSemaphorePermit>,
}

/// The body of an answer, with the place that it has until it has left.
struct CountedBody<T> {
    body: Body,
    /// The part of a frame that was not handed on yet.
    rest: Bytes,
    _place: T,
}

impl AnswerBound {
    /// At most `all` at a time, and `per_client` of each client.
    pub fn new(all: u32, per_client: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(all as usize)),
            most: all,
            shares: Arc::default(),
            per_client,
        }
    }

    /// Waits until no answer is under way, those included whose clients have gone.
    pub async fn ended(&self) {
        // An error says that the semaphore is closed, which it never is.
        let _ = self.all.acquire_many(self.most).await;
    }

    /// A place for one more answer to the client at `ip`. `None`: there is no room.
    pub fn take(&self, ip: IpAddr) -> Option<AnswerPlace> {
        let share = self.shares.take(ip, 1, self.per_client)?;
        let permit = self.all.clone().try_acquire_owned().ok()?;
        Some(AnswerPlace {
            _share: Arc::new(share),
            _permit: Arc::new(permit),
        })
    }
}

/// Keeps `place` until the answer has left.
pub fn count_until_sent(response: Response, place: impl Send + Unpin + 'static) -> Response {
    response.map(|body| {
        Body::new(CountedBody {
            body,
            rest: Bytes::new(),
            _place: place,
        })
    })
}

impl<T> CountedBody<T> {
    /// The next piece. The last one is copied, since it would keep all of the frame in memory.
    fn piece(&mut self) -> Bytes {
        if self.rest.len() <= PIECE {
            Bytes::copy_from_slice(&std::mem::take(&mut self.rest))
        } else {
            self.rest.split_to(PIECE)
        }
    }
}

impl<T: Unpin> HttpBody for CountedBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            let Some(frame) = ready!(Pin::new(&mut this.body).poll_frame(cx)) else {
                return Poll::Ready(None);
            };
            match frame?.into_data() {
                Ok(data) => this.rest = data,
                Err(other) => return Poll::Ready(Some(Ok(other))),
            }
        }
        Poll::Ready(Some(Ok(Frame::data(this.piece()))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.body.size_hint().exact() {
            Some(length) => SizeHint::with_exact(length + self.rest.len() as u64),
            None => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[test]
    fn clients_have_their_share_and_all_together_no_more_than_there_is() {
        let bound = AnswerBound::new(3, 2);
        let [one, other, third] =
            ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|ip| ip.parse().unwrap());
        let mut taken = vec![bound.take(one), bound.take(one), bound.take(other)];
        assert!(taken.iter().all(Option::is_some));
        assert!(bound.take(third).is_none(), "there are three");
        taken.pop();
        assert!(bound.take(one).is_none(), "it has two");
        assert!(bound.take(third).is_some());
        drop(taken);
        assert!(bound.take(one).is_some() && bound.all.available_permits() == 3);
    }

    #[tokio::test]
    async fn an_answer_counts_until_its_last_piece_and_stays_what_it_was() {
        let bound = AnswerBound::new(1, 1);
        let text: Bytes = (0..PIECE * 2 + 7)
            .map(|at| u8::try_from(at % 251).unwrap())
            .collect::<Vec<_>>()
            .into();
        let place = bound.take([127, 0, 0, 1].into()).unwrap();
        let mut body = count_until_sent(Response::new(text.clone().into()), place).into_body();
        assert_eq!(body.size_hint().exact(), Some(text.len() as u64));
        let mut read = Vec::new();
        while let Some(frame) = body.frame().await {
            let data = frame.unwrap().into_data().unwrap();
            assert!(data.len() <= PIECE && bound.all.available_permits() == 0);
            read.extend_from_slice(&data);
            assert_eq!(
                body.size_hint().exact(),
                Some((text.len() - read.len()) as u64)
            );
        }
        assert!(read == text && body.is_end_stream());
        drop(body);
        assert_eq!(bound.all.available_permits(), 1);
    }
}

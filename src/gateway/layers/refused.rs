//! The future of a layer that refuses a request: ready at once.
//!
//! It holds a failure and not a whole answer, for every future of a chain is moved with the room
//! for this one.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;

use crate::body::Body;
use crate::error::Failure;

/// Ready with a failure.
pub struct Refused(Option<Failure>);

impl Refused {
    #[inline]
    pub fn new(failure: Failure) -> Self {
        Self(Some(failure))
    }
}

impl Future for Refused {
    type Output = Result<Response<Body>, Failure>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        self.0
            .take()
            .map_or(Poll::Pending, |failure| Poll::Ready(Err(failure)))
    }
}

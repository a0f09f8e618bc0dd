//! Sheds load: refuses requests once as many are in flight as the gateway takes.

use std::num::NonZeroUsize;
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::Response;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::Body;
use crate::error::Failure;
use crate::gateway::exchange::Exchange;
use crate::gateway::layers::refused::Refused;

/// The most requests in flight on a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestBound {
    pub max: NonZeroUsize,
    /// Whether tunnels count.
    pub with_tunnels: bool,
}

/// Puts a service behind a bound on requests in flight.
#[derive(Clone, Copy)]
pub struct ShedLayer(pub RequestBound);

/// A service behind a bound on requests in flight.
#[derive(Clone)]
pub struct Shed<S> {
    inner: S,
    bound: RequestBound,
}

impl RequestBound {
    /// Whether as many others were in flight when the request came.
    #[inline]
    pub fn is_reached(&self, exchange: &Exchange<'_>) -> bool {
        let Self { max, with_tunnels } = *self;
        let before = exchange.context.in_flight_before;
        // Rare, so that an ordinary request reads one number.
        before >= max.get()
            && (with_tunnels
                || before - exchange.worker.in_flight.tunnels().min(before) >= max.get())
    }
}

impl<S> Layer<S> for ShedLayer {
    type Service = Shed<S>;

    fn layer(&self, inner: S) -> Shed<S> {
        Shed {
            inner,
            bound: self.0,
        }
    }
}

impl<'a, 'g, S> Service<&'a mut Exchange<'g>> for Shed<S>
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
        if self.bound.is_reached(exchange) {
            return Either::Left(Refused::new(Failure::Overloaded));
        }
        Either::Right(self.inner.call(exchange))
    }
}

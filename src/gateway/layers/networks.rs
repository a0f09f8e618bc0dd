//! Refuses clients whose addresses the listener or the route does not take.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::Response;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::Body;
use crate::error::Failure;
use crate::gateway::exchange::Exchange;
use crate::gateway::layers::refused::Refused;
use crate::route::networks::NetworkRules;

/// Lets clients pass whom all of these rules take: those of the listener and those of the route.
#[derive(Clone)]
pub struct NetworkLayer(pub Arc<[NetworkRules]>);

/// A service for clients of some networks.
#[derive(Clone)]
pub struct NetworkGuard<S> {
    inner: S,
    rules: Arc<[NetworkRules]>,
}

impl NetworkLayer {
    /// The layer for `rules`. `None`: they take everybody.
    pub fn new<'a>(rules: impl IntoIterator<Item = &'a NetworkRules>) -> Option<Self> {
        let rules: Arc<[_]> = rules.into_iter().filter(|rules| !rules.is_open()).cloned().collect();
        if rules.is_empty() { None } else { Some(Self(rules)) }
    }
}

impl<S> Layer<S> for NetworkLayer {
    type Service = NetworkGuard<S>;

    fn layer(&self, inner: S) -> NetworkGuard<S> {
        NetworkGuard { inner, rules: self.0.clone() }
    }
}

impl<'a, 'g, S> Service<&'a mut Exchange<'g>> for NetworkGuard<S>
where
    S: Service<&'a mut Exchange<'g>, Response = Response<Body>, Error = Failure>,
{
    type Response = Response<Body>;
    type Error = Failure;
    type Future = Either<Refused, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, exchange: &'a mut Exchange<'g>) -> Self::Future {
        let client = exchange.context.origin.client_ip;
        if self.rules.iter().all(|rules| rules.take(client)) {
            Either::Right(self.inner.call(exchange))
        } else {
            Either::Left(Refused::new(Failure::NetworkRefused))
        }
    }
}

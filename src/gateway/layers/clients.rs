//! Refuses clients that the listener or the route does not serve: by their addresses, or during
//! maintenance.

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
use crate::gateway::maintenance::RouteMaintenance;
use crate::route::networks::NetworkRules;

/// A rule on who is served.
#[derive(Clone)]
pub enum ClientRule {
    Networks(NetworkRules),
    Maintenance(Arc<RouteMaintenance>),
}

/// Lets clients pass whom all of these rules take: those of the listener and those of the route.
#[derive(Clone)]
pub struct ClientRuleLayer(Arc<[ClientRule]>);

/// A service for some clients.
#[derive(Clone)]
pub struct ClientGuard<S> {
    inner: S,
    rules: Arc<[ClientRule]>,
}

impl ClientRule {
    /// Why the request is refused, if it is.
    fn refuse(&self, exchange: &mut Exchange<'_>) -> Option<Failure> {
        match self {
            Self::Networks(rules) if rules.take(exchange.context.origin.client_ip) => None,
            Self::Networks(_) => Some(Failure::NetworkRefused),
            Self::Maintenance(maintenance) => maintenance.refuse(exchange),
        }
    }
}

impl ClientRuleLayer {
    /// The layer for `rules`, in this order. `None`: everybody is served.
    pub fn new(rules: impl IntoIterator<Item = ClientRule>) -> Option<Self> {
        let is_open =
            |rule: &ClientRule| matches!(rule, ClientRule::Networks(rules) if rules.is_open());
        let rules: Arc<[_]> = rules.into_iter().filter(|rule| !is_open(rule)).collect();
        if rules.is_empty() {
            None
        } else {
            Some(Self(rules))
        }
    }
}

impl<S> Layer<S> for ClientRuleLayer {
    type Service = ClientGuard<S>;

    fn layer(&self, inner: S) -> ClientGuard<S> {
        ClientGuard {
            inner,
            rules: self.0.clone(),
        }
    }
}

impl<'a, 'g, S> Service<&'a mut Exchange<'g>> for ClientGuard<S>
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
        match self.rules.iter().find_map(|rule| rule.refuse(exchange)) {
            None => Either::Right(self.inner.call(exchange)),
            Some(failure) => Either::Left(Refused::new(failure)),
        }
    }
}

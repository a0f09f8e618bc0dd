//! Finds out who a request is from, and refuses those whose clients do not say so.

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
use crate::identity::authenticator::CredentialSource;
use crate::identity::route::RouteAuthenticators;

/// Lets requests pass whose client one of these authenticators knows.
#[derive(Clone)]
pub struct AuthenticationLayer(pub Arc<RouteAuthenticators>);

/// A service for clients that have authenticated themselves.
#[derive(Clone)]
pub struct Authenticated<S> {
    inner: S,
    authenticators: Arc<RouteAuthenticators>,
}

impl<S> Layer<S> for AuthenticationLayer {
    type Service = Authenticated<S>;

    fn layer(&self, inner: S) -> Authenticated<S> {
        Authenticated { inner, authenticators: self.0.clone() }
    }
}

impl<'a, 'g, S> Service<&'a mut Exchange<'g>> for Authenticated<S>
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
        let source = CredentialSource {
            uri: exchange.request.uri(),
            headers: exchange.request.headers(),
            client_certificate: exchange.context.client_certificate(),
        };
        match self.authenticators.check(source) {
            Ok(identity) => {
                exchange.identify(identity);
                Either::Right(self.inner.call(exchange))
            }
            Err(failure) => Either::Left(Refused::new(failure)),
        }
    }
}

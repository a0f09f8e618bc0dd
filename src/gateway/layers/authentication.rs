//! Finds out who a request is from, and refuses those whose clients do not say so.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use http::Response;
use pin_project_lite::pin_project;
use tollgate_limiter::layer::RateLimitLayer;
use tollgate_limiter::request::rule_set::RuleSet;
use tower_layer::Layer;
use tower_service::Service;

use super::rate_limit::WorkerLimiter;
use super::refused::Refused;
use crate::body::Body;
use crate::error::Failure;
use crate::gateway::client_fields;
use crate::gateway::exchange::Exchange;
use crate::identity::refusal::VerifiedClient;
use crate::identity::route::{PendingAuthentication, RouteAuthenticators, RouteFinding};
use crate::identity::source::{CredentialSource, ExchangeParts};
use crate::proxy::message::headers;

/// Lets requests pass whose client one of these authenticators knows, also those that no route
/// takes: others do not learn which routes there are.
#[derive(Clone)]
pub struct AuthenticationLayer {
    pub authenticators: Arc<RouteAuthenticators>,
    /// The limits of the listener that need no identity. Requests that are refused here are charged
    /// to them: else a client could try credentials without end.
    pub limits: Option<Arc<RuleSet>>,
}

/// A service for clients that have authenticated themselves.
#[derive(Clone)]
pub struct Authenticated<S> {
    inner: S,
    authenticators: Arc<RouteAuthenticators>,
    limits: Option<Arc<RuleSet>>,
}

/// Refuses every request.
#[derive(Clone)]
struct Refusing(Failure);

impl<S> Layer<S> for AuthenticationLayer {
    type Service = Authenticated<S>;

    fn layer(&self, inner: S) -> Authenticated<S> {
        Authenticated {
            inner,
            authenticators: self.authenticators.clone(),
            limits: self.limits.clone(),
        }
    }
}

impl<'a, 'g, S> Service<&'a mut Exchange<'g>> for Authenticated<S>
where
    S: Service<&'a mut Exchange<'g>, Response = Response<Body>, Error = Failure> + Clone,
{
    type Response = Response<Body>;
    type Error = Failure;
    type Future = Authenticating<'a, 'g, S, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, exchange: &'a mut Exchange<'g>) -> Self::Future {
        if let Err(failure) = &exchange.route
            && !matches!(failure, Failure::NoRoute | Failure::MethodNotAllowed(_))
        {
            // It is not for here, or cannot be read: nobody is to send a credential for it.
            let failure = failure.clone();
            return refuse(exchange, failure, self.limits.clone());
        }
        match self.authenticators.check(source(exchange)) {
            RouteFinding::Decided(Ok(client)) => {
                admit(exchange, &self.authenticators, client);
                Authenticating::Passing {
                    answering: self.inner.call(exchange),
                }
            }
            RouteFinding::Decided(Err(failure)) => refuse(exchange, failure, self.limits.clone()),
            RouteFinding::Waits(pending) => {
                // The service that was polled ready must be the one that is called.
                let clone = self.inner.clone();
                let inner = std::mem::replace(&mut self.inner, clone);
                let (authenticators, limits) = (self.authenticators.clone(), self.limits.clone());
                let request = IdentifyingRequest {
                    pending,
                    exchange,
                    inner,
                    authenticators,
                    limits,
                };
                Authenticating::Waiting {
                    request: Some(Box::new(request)),
                }
            }
        }
    }
}

/// A request whose client is not known yet. Boxed: few requests wait, and the room would be in the
/// future of each.
pub struct IdentifyingRequest<'a, 'g, S> {
    pending: PendingAuthentication,
    exchange: &'a mut Exchange<'g>,
    inner: S,
    authenticators: Arc<RouteAuthenticators>,
    limits: Option<Arc<RuleSet>>,
}

pin_project! {
    /// The answer to come.
    #[project = AuthenticatingProjection]
    pub enum Authenticating<'a, 'g, S, F> {
        Waiting { request: Option<Box<IdentifyingRequest<'a, 'g, S>>> },
        Passing { #[pin] answering: F },
        Refused { failure: Option<Failure> },
        Charged { answering: BoxFuture<'a, Result<Response<Body>, Failure>> },
    }
}

impl<'a, 'g, S> Future for Authenticating<'a, 'g, S, S::Future>
where
    S: Service<&'a mut Exchange<'g>, Response = Response<Body>, Error = Failure>,
{
    type Output = Result<Response<Body>, Failure>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let next = match self.as_mut().project() {
                AuthenticatingProjection::Passing { answering } => return answering.poll(cx),
                AuthenticatingProjection::Refused { failure } => {
                    return failure
                        .take()
                        .map_or(Poll::Pending, |failure| Poll::Ready(Err(failure)));
                }
                AuthenticatingProjection::Charged { answering } => {
                    return answering.as_mut().poll(cx);
                }
                AuthenticatingProjection::Waiting { request } => {
                    let Some(waiting) = request else {
                        return Poll::Pending;
                    };
                    let result = ready!(waiting.pending.wait.as_mut().poll(cx));
                    let place = waiting.pending.place;
                    match waiting.authenticators.conclude(place, result) {
                        Err(failure) => {
                            let Some(waiting) = request.take() else {
                                return Poll::Pending;
                            };
                            let IdentifyingRequest {
                                exchange, limits, ..
                            } = *waiting;
                            refuse(exchange, failure, limits)
                        }
                        Ok(client) => {
                            let Some(waiting) = request.take() else {
                                return Poll::Pending;
                            };
                            let IdentifyingRequest {
                                exchange,
                                mut inner,
                                authenticators,
                                ..
                            } = *waiting;
                            admit(exchange, &authenticators, client);
                            Self::Passing {
                                answering: inner.call(exchange),
                            }
                        }
                    }
                }
            };
            self.set(next);
        }
    }
}

/// Refuses the request with `failure`, or as `limits` say, which count it. A request that nobody
/// could be asked about is free.
fn refuse<'a, 'g, S, F>(
    exchange: &'a mut Exchange<'g>,
    failure: Failure,
    limits: Option<Arc<RuleSet>>,
) -> Authenticating<'a, 'g, S, F> {
    let limits = limits.filter(|_| {
        !matches!(
            failure,
            Failure::AuthenticationUnavailable {
                has_cost: false,
                ..
            }
        )
    });
    let Some(rules) = limits else {
        return Authenticating::Refused {
            failure: Some(failure),
        };
    };
    let mut limited = RateLimitLayer::of_rules(WorkerLimiter, rules).layer(Refusing(failure));
    Authenticating::Charged {
        answering: Box::pin(limited.call(exchange)),
    }
}

impl<'a, 'g> Service<&'a mut Exchange<'g>> for Refusing {
    type Response = Response<Body>;
    type Error = Failure;
    type Future = Refused;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: &'a mut Exchange<'g>) -> Refused {
        Refused::new(self.0.clone())
    }
}

/// Takes note of who the client is, and sets the fields that only an authenticator sets.
fn admit(
    exchange: &mut Exchange<'_>,
    authenticators: &RouteAuthenticators,
    client: VerifiedClient,
) {
    exchange.identify(client.identity);
    if authenticators.own_fields().is_empty() {
        return;
    }
    client_fields::remove(exchange.request, authenticators.own_fields());
    // First, or a field that is set here would pass for a client's claim later.
    headers::strip_claims(
        exchange.request.headers_mut(),
        exchange.context.origin.peer_trusted,
    );
    exchange.has_own_fields = true;
    for (name, value) in client.fields.iter().flat_map(|fields| fields.iter()) {
        exchange.request.headers_mut().append(name, value.clone());
    }
}

fn source<'r>(exchange: &'r Exchange<'_>) -> CredentialSource<'r> {
    CredentialSource {
        uri: exchange.request.uri(),
        headers: exchange.request.headers(),
        client_certificate: exchange.context.client_certificate(),
        client_ip: exchange.context.origin.client_ip,
        exchange: ExchangeParts {
            method: exchange.request.method(),
            origin: &exchange.context.origin,
            request_id: &exchange.context.request_id,
            sockets: exchange.sockets,
            limiter: &exchange.worker.limiter,
            proxy: &exchange.worker.proxy,
            upstreams: exchange.upstreams,
        },
    }
}

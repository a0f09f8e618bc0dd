//! Finds out who a request is from, and refuses those whose clients do not say so.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::Response;
use tollgate_limiter::layer::RateLimitLayer;
use tower_layer::Layer as _;
use tower_service::Service;

use super::rate_limit::WorkerLimiter;
use crate::client_fields;
use crate::exchange::{AnswerResult, Exchange};
use tollgate_identity::refusal::VerifiedClient;
use tollgate_identity::route::{PendingAuthentication, RouteAuthenticators, RouteFinding};
use tollgate_identity::source::{CredentialSource, ExchangeParts};
use tollgate_proxy::message::headers;
use tollgate_wire::body::Body;
use tollgate_wire::error::Failure;

/// The rest of an authentication that has to wait.
type Waiting<'a> = BoxFuture<'a, Result<(), Failure>>;

/// Lets requests pass whose client one of these authenticators knows. Requests that no route takes
/// are checked too: clients that nobody knows do not learn which routes there are.
pub struct Authentication {
    pub authenticators: Arc<RouteAuthenticators>,
    /// The limits of the listener that need no identity. Requests that are refused here are charged
    /// to them: else a client could try credentials without end.
    pub limits: Option<RateLimitLayer<WorkerLimiter>>,
}

/// A service that refuses every request.
#[derive(Clone)]
pub(crate) struct Refusal(pub Failure);

impl Authentication {
    /// Finds out who the client is. `Some`: that has to be waited for.
    ///
    /// # Errors
    /// When the request is refused at once, and charged to no limit.
    pub fn check<'a>(
        &'a self,
        exchange: &'a mut Exchange<'_>,
    ) -> Result<Option<Waiting<'a>>, Failure> {
        if let Err(failure) = &exchange.route
            && !matches!(failure, Failure::NoRoute | Failure::MethodNotAllowed(_))
        {
            // The request belongs elsewhere, or cannot be read: nobody is to send a credential for
            // it.
            let failure = failure.clone();
            return self.refuse(exchange, failure).map(Some);
        }
        match self.authenticators.check(source(exchange)) {
            RouteFinding::Decided(Ok(client)) => {
                self.admit(exchange, client);
                Ok(None)
            }
            RouteFinding::Decided(Err(failure)) => self.refuse(exchange, failure).map(Some),
            RouteFinding::Waits(pending) => Ok(Some(Box::pin(self.wait(exchange, pending)))),
        }
    }

    /// Waits for the authenticator that has found its credential.
    async fn wait(
        &self,
        exchange: &mut Exchange<'_>,
        pending: PendingAuthentication,
    ) -> Result<(), Failure> {
        let result = pending.wait.await;
        match self.authenticators.conclude(pending.place, result) {
            Ok(client) => {
                self.admit(exchange, client);
                Ok(())
            }
            Err(failure) => self.refuse(exchange, failure)?.await,
        }
    }

    /// Refuses the request with `failure`, or as the limits say that count it: the future always
    /// ends in an error. A request that nobody could be asked about is free.
    fn refuse<'a>(
        &'a self,
        exchange: &'a mut Exchange<'_>,
        failure: Failure,
    ) -> Result<Waiting<'a>, Failure> {
        let is_free = matches!(
            failure,
            Failure::AuthenticationUnavailable {
                has_cost: false,
                ..
            }
        );
        if let Some(limits) = &self.limits
            && !is_free
        {
            let charging = limits.layer(Refusal(failure.clone())).call(exchange);
            return Ok(Box::pin(async move { charging.await.and(Err(failure)) }));
        }
        Err(failure)
    }

    /// Takes note of who the client is, and sets the fields that only an authenticator sets.
    fn admit(&self, exchange: &mut Exchange<'_>, client: VerifiedClient) {
        exchange.identify(client.identity);
        let own_fields = self.authenticators.own_fields();
        if own_fields.is_empty() {
            return;
        }
        client_fields::remove(exchange.request, own_fields);
        // Claims go first, or a field that is set here would pass for a client's claim later.
        headers::strip_claims(
            exchange.request.headers_mut(),
            exchange.context.origin.peer_trusted,
        );
        exchange.has_own_fields = true;
        for (name, value) in client.fields.iter().flat_map(|fields| fields.iter()) {
            exchange.request.headers_mut().append(name, value.clone());
        }
    }
}

impl<'a, 'g> Service<&'a mut Exchange<'g>> for Refusal {
    type Response = Response<Body>;
    type Error = Failure;
    type Future = Ready<AnswerResult>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: &'a mut Exchange<'g>) -> Self::Future {
        ready(Err(self.0.clone()))
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

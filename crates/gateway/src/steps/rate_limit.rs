//! The rate limit of a pipeline: the layer of `tollgate-limiter` over an [`Exchange`], with what it
//! needs to read and answer one.

use std::ops::ControlFlow;

use http::Response;
use http_body::Body as _;
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::layer::{Admitted, LimitedRequest, LimiterOf};
use tollgate_limiter::limit::client_address::TrustedProxies;
use tollgate_limiter::limit::key::Facts;
use tollgate_limiter::limit::key::host::RequestHost;
use tollgate_limiter::request::denial::Denial;
use tollgate_limiter::request::headers::RateLimitFields;

use crate::exchange::Exchange;
use tollgate_wire::body::Body;
use tollgate_wire::error::Failure;

/// The limiter of the worker that has the request: all workers share the pipelines of a
/// configuration.
#[derive(Clone, Copy)]
pub struct WorkerLimiter;

impl<'a, 'g> LimiterOf<&'a mut Exchange<'g>> for WorkerLimiter {
    #[inline]
    fn limiter<'r>(&'r self, exchange: &'r &'a mut Exchange<'g>) -> &'r Limiter {
        &exchange.worker.limiter
    }
}

impl LimitedRequest<Response<Body>, Failure> for &mut Exchange<'_> {
    type Response = Response<Body>;
    type Kept = ();
    type Immediate = Failure;

    #[inline]
    fn with_facts<T>(&self, _: Option<&TrustedProxies>, read: impl FnOnce(&Facts<'_>) -> T) -> T {
        let request = &*self.request;
        read(&Facts {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: Some(request.extensions()),
            body_length: request.body().size_hint().exact(),
            client_ip: Some(self.context.origin.client_ip),
            client_certificate: self.context.client_certificate(),
            client_identity: self.identity.as_deref(),
            host: RequestHost::Of(request.uri(), request.headers()),
            route: self.counted_as(),
            param: &|name| {
                self.route
                    .as_ref()
                    .ok()?
                    .route
                    .matches
                    .param(name, self.path())
            },
        })
    }

    /// The permit is dropped with the request's account.
    #[inline]
    fn admit(&mut self, admitted: Admitted) -> ControlFlow<Failure> {
        let Admitted {
            fields,
            permit,
            degraded,
        } = admitted;
        permit.prepare(self.request.headers_mut());
        self.answer.limits = fields;
        self.account.permit = permit;
        self.degraded = degraded;
        ControlFlow::Continue(())
    }

    #[inline]
    fn refuse(self, denial: Denial, fields: RateLimitFields) -> Failure {
        self.answer.limits = fields;
        if self.account.log.is_some() {
            log_denial(self, &denial);
        }
        denial.into()
    }

    #[inline]
    fn answer(failure: Failure) -> Result<Response<Body>, Failure> {
        Err(failure)
    }

    #[inline]
    fn finish((): (), answer: Response<Body>) -> Response<Body> {
        answer
    }
}

/// Writes the limit and the bucket into the request's line of the access log.
#[cold]
fn log_denial(exchange: &mut Exchange<'_>, denial: &Denial) {
    let Some(limit) = denial.limit() else { return };
    // The line is taken out meanwhile: the facts are those of the whole exchange.
    let Some(mut request) = exchange.account.log.take() else {
        return;
    };
    let metrics = exchange.account.metrics.clone();
    if let Some(log) = &metrics.log {
        exchange.with_facts(None, |facts| request.deny(&log.limits, limit, facts));
    }
    exchange.account.log = Some(request);
}

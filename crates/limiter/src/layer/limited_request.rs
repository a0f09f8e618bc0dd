//! The view that a layer has of a request, and how the request is answered.

use std::ops::ControlFlow;

use crate::decide::limiter::Limiter;
use crate::limit::client_address::TrustedProxies;
use crate::limit::key::Facts;
use crate::limit::on_limit::Degrade;
use crate::request::denial::Denial;
use crate::request::headers::RateLimitFields;
use crate::request::permit::Permit;

/// A request that limits can be put before, where the service behind them answers `A` or fails with
/// `E`.
pub trait LimitedRequest<A, E>: Sized {
    /// The response in the end.
    type Response;
    /// The part of the admission that is kept until the service has answered.
    type Kept;
    /// An answer that the service has no part in. It is moved with the future of the answer, so a
    /// small type is cheap.
    type Immediate;

    /// Lets `read` see what keys and costs are made of. `trusted`: the proxies whose word on the
    /// client's address the layer believes.
    fn with_facts<T>(
        &self,
        trusted: Option<&TrustedProxies>,
        read: impl FnOnce(&Facts<'_>) -> T,
    ) -> T;

    /// The request passes its limits: `Continue` lets the service answer it, `Break` answers it
    /// here.
    fn admit(&mut self, admitted: Admitted) -> ControlFlow<Self::Immediate, Self::Kept>;

    /// A limit refuses the request.
    fn refuse(self, denial: Denial, fields: RateLimitFields) -> Self::Immediate;

    /// The answer in full.
    ///
    /// # Errors
    /// A failure of the service's kind, where the request has such.
    fn answer(immediate: Self::Immediate) -> Result<Self::Response, E>;

    /// The service has answered.
    fn finish(kept: Self::Kept, answer: A) -> Self::Response;
}

/// A passed request's fields, permit and degradation.
#[derive(Debug)]
pub struct Admitted {
    /// For the answer.
    pub fields: RateLimitFields,
    /// To be held until the response has ended.
    pub permit: Permit,
    /// The lesser thing that the request gets.
    pub degraded: Option<Degrade>,
}

/// Which limiter decides on a request.
pub trait LimiterOf<R> {
    fn limiter<'a>(&'a self, request: &'a R) -> &'a Limiter;
}

/// A single limiter decides on all requests.
impl<R> LimiterOf<R> for Limiter {
    #[inline]
    fn limiter<'a>(&'a self, _: &'a R) -> &'a Limiter {
        self
    }
}

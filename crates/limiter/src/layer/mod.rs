//! The limiter as a tower layer, for any service: `Router::layer` of axum takes it as it is.
//!
//! A request that a limit denies is answered 429 at once and its body is never read; every answer says what is left. The
//! Tollgate gateway runs this layer in its own chain. Not to be mistaken for `tower::limit::RateLimitLayer`, which makes
//! requests wait and knows no clients.

mod http_request;
mod limited_request;
mod service;
#[cfg(test)]
mod tests;

pub use limited_request::{Admitted, LimitedRequest, LimiterOf};
pub use service::{RateLimit, RateLimited};

use std::sync::Arc;

use tower_layer::Layer;

use crate::decide::limiter::Limiter;
use crate::limit::algorithm::QuotaError;
use crate::limit::definition::{Limit, LimitUse};
use crate::request::compiled_limit::LargestCosts;
use crate::request::rule::LimitStates;
use crate::request::rule_set::RuleSet;

/// Puts limits before a service.
#[derive(Clone)]
pub struct RateLimitLayer<L = Limiter> {
    limiter: L,
    rules: Arc<RuleSet>,
}

impl RateLimitLayer {
    /// A layer that holds every request to all of `limits`: a request that one of them denies charges none.
    ///
    /// `client_ip` is the peer's address as axum's `ConnectInfo<SocketAddr>` tells it, `route` the `MatchedPath`; path
    /// parameters are not known here.
    ///
    /// # Errors
    /// When a limit's rate or burst is out of bounds.
    pub fn new(limiter: Limiter, limits: &[LimitUse]) -> Result<Self, QuotaError> {
        let limits: Vec<LimitUse> = limits.iter().map(without_upstreams).collect();
        let costs = LargestCosts::over(limits.iter());
        let rules = RuleSet::new(limits.iter(), &costs, &LimitStates::default(), false)?;
        Ok(Self::of_rules(limiter, Arc::new(rules)))
    }
}

/// A layer has no other upstream to send a request to.
fn without_upstreams(LimitUse { limit, cost }: &LimitUse) -> LimitUse {
    let limit = Limit { on_limit: limit.on_limit.without_upstreams(), ..(**limit).clone() };
    LimitUse { limit: Arc::new(limit), cost: cost.clone() }
}

impl<L> RateLimitLayer<L> {
    /// A layer of limits that were prepared before. `limiter` says which limiter decides on a request.
    pub fn of_rules(limiter: L, rules: Arc<RuleSet>) -> Self {
        Self { limiter, rules }
    }
}

impl<S, L: Clone> Layer<S> for RateLimitLayer<L> {
    type Service = RateLimit<S, L>;

    fn layer(&self, inner: S) -> RateLimit<S, L> {
        RateLimit::new(inner, self.limiter.clone(), self.rules.clone())
    }
}

//! The limiter as a tower layer, for any service: `Router::layer` of axum takes it as it is.
//!
//! A request that a limit denies is answered 429 at once and its body is never read; every answer
//! says what is left. The Tollgate gateway runs this layer in its routes. Not to be mistaken for
//! `tower::limit::RateLimitLayer`, which makes requests wait and knows no clients.

mod http_request;
mod limited_request;
mod service;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use ipnet::IpNet;
use tower_layer::Layer;

use crate::decide::limiter::Limiter;
use crate::layer::service::LayerLimits;
use crate::limit::algorithm::QuotaError;
use crate::limit::builder::{LimitBuilder, LimitError};
use crate::limit::definition::{Limit, LimitUse};
use crate::request::compiled_limit::LargestCosts;
use crate::request::rule::LimitStates;
use crate::request::rule_set::RuleSet;
use crate::store::memory::MemoryStore;

pub use limited_request::{Admitted, LimitedRequest, LimiterOf};
pub use service::{RateLimit, RateLimited};

/// Buckets of a layer without a store at most. What makes room is counted on (see
/// [`MemoryStore`](crate::store::memory::MemoryStore)).
const MAX_BUCKETS: usize = 100_000;

/// Puts limits before a service. `L` says which limiter decides on a request: mostly one for all.
///
#[cfg_attr(feature = "axum", doc = "```")]
#[cfg_attr(not(feature = "axum"), doc = "```ignore")]
/// use axum::{Router, routing::get};
/// use tollgate_limiter::{Limit, RateLimitLayer, client_ip, everyone};
///
/// let limits = [
///     Limit::per_second("per-client", 10).burst(20).key(client_ip()),
///     Limit::in_flight("all-together", 100).key(everyone()),
/// ];
/// let layer = RateLimitLayer::in_memory(limits)?.trust_proxies(["10.0.0.0/8".parse()?]);
/// let app: Router = Router::new().route("/", get(async || "hello")).layer(layer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RateLimitLayer<L = Limiter>(LayerLimits<L>);

impl RateLimitLayer {
    /// A layer that holds every request to all of `limits`, with buckets in this process: a request
    /// that one of the limits denies charges none.
    ///
    /// # Errors
    /// When a limit cannot be one: the message names it.
    pub fn in_memory(limits: impl IntoIterator<Item = LimitBuilder>) -> Result<Self, LimitError> {
        Self::new(
            Limiter::local(Arc::new(MemoryStore::new(MAX_BUCKETS))),
            limits,
        )
    }

    /// Like [`Self::in_memory`], with buckets where `limiter` keeps them: `&SharedLimiter` for a
    /// fleet's.
    ///
    /// # Errors
    /// When a limit cannot be one: the message names it.
    pub fn new(
        limiter: impl Into<Limiter>,
        limits: impl IntoIterator<Item = LimitBuilder>,
    ) -> Result<Self, LimitError> {
        let limits = limits
            .into_iter()
            .map(LimitBuilder::build)
            .collect::<Result<Vec<_>, _>>()?;
        let mut names = HashSet::new();
        if let Some(twice) = limits.iter().find(|one| !names.insert(&one.limit.name)) {
            return Err(LimitError::Twice(twice.limit.name.clone()));
        }
        let limiter = limiter.into();
        if let Some(unread) = limits
            .iter()
            .find(|one| one.limit.plans.is_some() && !limiter.reads_plans())
        {
            return Err(LimitError::PlansUnread(unread.limit.name.clone()));
        }
        Self::of_uses(limiter, &limits).map_err(|error| LimitError::Quota {
            limit: "".into(),
            error,
        })
    }

    /// A layer of limits that were put together field by field. Where a limit would send a request
    /// to another upstream, it is refused: a layer has none.
    ///
    /// # Errors
    /// When a limit's rate or burst is out of bounds.
    pub fn of_uses(limiter: Limiter, limits: &[LimitUse]) -> Result<Self, QuotaError> {
        let limits: Vec<LimitUse> = limits.iter().map(without_upstreams).collect();
        let costs = LargestCosts::over(limits.iter());
        let rules = RuleSet::new(limits.iter(), &costs, &LimitStates::default(), false)?;
        Ok(Self::of_rules(limiter, Arc::new(rules)))
    }

    /// Believes `X-Forwarded-For` as far as these proxies wrote it. Without it, the client's
    /// address is the peer's.
    #[must_use]
    pub fn trust_proxies(self, networks: impl IntoIterator<Item = IpNet>) -> Self {
        let networks: Vec<IpNet> = networks.into_iter().collect();
        Self(LayerLimits {
            trusted: Some(Arc::new(networks.into())),
            ..self.0
        })
    }
}

impl<L> RateLimitLayer<L> {
    /// A layer of limits that were prepared before.
    pub fn of_rules(limiter: L, rules: Arc<RuleSet>) -> Self {
        Self(LayerLimits {
            limiter,
            rules,
            trusted: None,
        })
    }
}

/// A layer has no other upstream to send a request to.
fn without_upstreams(LimitUse { limit, cost }: &LimitUse) -> LimitUse {
    let limit = Limit {
        on_limit: limit.on_limit.without_upstreams(),
        ..(**limit).clone()
    };
    LimitUse {
        limit: Arc::new(limit),
        cost: cost.clone(),
    }
}

impl<S, L: Clone> Layer<S> for RateLimitLayer<L> {
    type Service = RateLimit<S, L>;

    fn layer(&self, inner: S) -> RateLimit<S, L> {
        RateLimit::new(inner, self.0.clone())
    }
}

//! What an operator asks for: a named limit. Plain data, checked at the edge by `config`.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::limit::algorithm::{Algorithm, Rate};
use crate::limit::cost::Cost;
use crate::limit::exemption::Exemption;
use crate::limit::key::KeySpec;
use crate::limit::on_limit::OnLimit;
use crate::limit::plan::Plans;
use crate::limit::rollout::Rollout;

/// What happens to a limit's requests while the store is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum OnOutage {
    /// This node enforces its share of the limit.
    #[default]
    Local,
    /// Every request passes.
    Allow,
    /// Every request is denied.
    Deny,
}

/// How closely nodes keep to one limit together. The limit holds either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Consistency {
    /// The store is asked for each request.
    #[default]
    Exact,
    /// A node takes a few tokens ahead and spends them in process, at the price of a part of the burst. A limit whose
    /// burst is too small for that is exact.
    Leased,
}

/// A limit by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    pub name: Arc<str>,
    pub key: KeySpec,
    pub algorithm: Algorithm,
    /// Tokens one request takes, unless the route or the client's plan says otherwise.
    pub cost: Cost,
    pub on_outage: OnOutage,
    pub on_limit: OnLimit,
    /// The keys that the limit acts on. Requests of the others are counted as if it did, and pass.
    pub rollout: Rollout,
    /// Requests that the limit skips.
    pub exemption: Exemption,
    /// Other rates for some clients.
    pub plans: Option<Plans>,
    pub consistency: Consistency,
}

/// A limit as one route (or listener) uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitUse {
    pub limit: Arc<Limit>,
    /// Tokens one request takes here, at most the burst. `None`: as many as the client's plan or the limit says.
    pub cost: Option<Cost>,
}

impl Limit {
    /// A token bucket that counts by `key`, one token a request, with all else at its default.
    pub fn new(name: &str, key: KeySpec, rate: Rate, burst: NonZeroU64) -> Self {
        Self {
            name: name.into(),
            key,
            algorithm: Algorithm::TokenBucket { rate, burst },
            cost: Cost::Fixed(NonZeroU64::MIN),
            on_outage: OnOutage::default(),
            consistency: Consistency::default(),
            on_limit: OnLimit::default(),
            rollout: Rollout::default(),
            exemption: Exemption::default(),
            plans: None,
        }
    }
}

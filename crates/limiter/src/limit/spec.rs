//! What an operator asks for: a named limit. Plain data, checked at the edge by `config`.

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use crate::limit::algorithm_kind::{Algorithm, Rate};
use crate::limit::cost::Cost;
use crate::limit::exemption::Exemption;
use crate::limit::fixed_response::FixedResponse;
use crate::limit::key::KeySpec;
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

/// What happens to a request that a limit denies.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum OnLimit {
    /// It is refused with 429 and a problem.
    #[default]
    Reject,
    /// It is refused with this answer.
    Answer(Arc<FixedResponse>),
    /// It waits for its tokens, where there is somewhere to wait.
    Queue(Queueing),
    /// It passes, to something cheaper.
    Degrade(Degrade),
}

/// How long and how many requests wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queueing {
    pub max_wait: Duration,
    /// On this node, whatever they wait for.
    pub max_waiting: NonZeroUsize,
}

/// What a request over the limit gets instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Degrade {
    /// Another upstream, by name.
    Upstream(Arc<str>),
    /// A fixed answer.
    Respond(Arc<FixedResponse>),
}

/// How closely nodes keep to one limit together. The limit holds either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Consistency {
    /// The store is asked for each request.
    #[default]
    Exact,
    /// A node takes a few tokens ahead and spends them in process, at the price of a part of the burst. A limit whose burst
    /// is too small for that is exact.
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
    pub enforced: Rollout,
    /// Requests that the limit skips.
    pub exempt: Exemption,
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
            enforced: Rollout::default(),
            exempt: Exemption::default(),
            plans: None,
        }
    }
}

impl OnLimit {
    /// The same where a request can neither wait nor go elsewhere: then it is refused.
    #[must_use]
    pub fn on_the_spot(&self) -> Self {
        match self {
            Self::Queue(_) | Self::Degrade(Degrade::Upstream(_)) => Self::Reject,
            Self::Reject | Self::Answer(_) | Self::Degrade(Degrade::Respond(_)) => self.clone(),
        }
    }
}

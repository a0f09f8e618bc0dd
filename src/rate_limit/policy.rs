//! What an operator asks for: a named limit. Plain data, checked at the edge by `config`.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::key::KeySpec;

/// `tokens` every `period_us` microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub tokens: NonZeroU64,
    pub period_us: NonZeroU64,
}

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
    /// A node takes a few tokens ahead and spends them in process, at the price of a part of the burst. A limit whose burst
    /// is too small for that is exact.
    Leased,
}

/// A limit by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    pub name: Arc<str>,
    pub key: KeySpec,
    pub rate: Rate,
    /// Tokens in a full bucket.
    pub burst: NonZeroU64,
    /// Tokens one request takes, unless the route says otherwise.
    pub cost: NonZeroU64,
    pub on_outage: OnOutage,
    pub consistency: Consistency,
}

/// A limit as one route (or listener) uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitUse {
    pub limit: Arc<Limit>,
    /// Tokens one request takes here. At most the limit's burst.
    pub cost: NonZeroU64,
}

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

/// Tokens in a full bucket at most.
pub const MAX_BURST: u64 = 1_000_000_000;

/// Tokens per second at most.
pub const MAX_TOKENS_PER_SECOND: u64 = 10_000_000;

/// Microseconds that an empty bucket may take to fill at most: 366 days.
pub const MAX_FILL_US: u64 = 366 * 86_400 * 1_000_000;

/// Why a rate and a burst are beyond what the arithmetic holds exactly (integers below 2^53).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutOfBounds {
    #[error("the rate is over 10000000 tokens per second")]
    Rate,
    #[error("the burst is over 1000000000 tokens")]
    Burst,
    #[error("an empty bucket would take over 366 days to fill")]
    Fill,
}

impl Rate {
    /// The bounds of a limit, the same wherever limits are made.
    pub fn check(self, burst: NonZeroU64) -> Result<(), OutOfBounds> {
        let (tokens, period) = (u128::from(self.tokens.get()), u128::from(self.period_us.get()));
        if tokens * 1_000_000 > u128::from(MAX_TOKENS_PER_SECOND) * period {
            return Err(OutOfBounds::Rate);
        }
        if burst.get() > MAX_BURST {
            return Err(OutOfBounds::Burst);
        }
        if u128::from(burst.get()) * period > u128::from(MAX_FILL_US) * tokens {
            return Err(OutOfBounds::Fill);
        }
        Ok(())
    }
}

/// What happens to a limit's requests while the store is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnOutage {
    /// This node enforces its share of the limit.
    #[default]
    Local,
    /// Every request passes.
    Allow,
    /// Every request is denied.
    Deny,
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
}

/// A limit as one route (or listener) uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitUse {
    pub limit: Arc<Limit>,
    /// Tokens one request takes here. At most the limit's burst.
    pub cost: NonZeroU64,
}

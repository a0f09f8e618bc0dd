//! How much a limit allows, whatever its algorithm: what the limiter asks of all of them alike.
//!
//! Guarantees that each algorithm answers each question; what the answers come from is in [`bucket`](crate::algorithm::token_bucket) and
//! [`window`](crate::algorithm::window). Refuses to know clocks, keys and stores.

use crate::algorithm::token_bucket::TokenBucket;
use crate::algorithm::window::{Timestamp, Window};

/// The numbers of a limit, as the arithmetic uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quota {
    /// Tokens that flow back one by one.
    TokenBucket(TokenBucket),
    /// Tokens that come back with the time they were taken at.
    Window(Window),
}

impl Quota {
    /// The part of it that one of `nodes` equal nodes enforces.
    pub fn shared_by(self, nodes: u32) -> Self {
        match self {
            Self::TokenBucket(shape) => Self::TokenBucket(shape.shared_by(nodes)),
            Self::Window(window) => Self::Window(window.shared_by(nodes)),
        }
    }

    /// Of how many equal parts of `whole` this is one.
    pub fn parts_of(self, whole: Self) -> u32 {
        let parts = match (self, whole) {
            (Self::TokenBucket(part), Self::TokenBucket(whole)) => part.emission() / whole.emission(),
            (Self::Window(part), Self::Window(whole)) => u64::from(part.weight() / whole.weight()),
            _ => 1,
        };
        u32::try_from(parts).unwrap_or(u32::MAX)
    }

    /// The same limit, for tokens that may be spent a while after they were taken. Only buckets know such a thing.
    pub fn leased(self, largest_cost: u64) -> Self {
        match self {
            Self::TokenBucket(shape) => Self::TokenBucket(shape.leased(largest_cost)),
            Self::Window(_) => self,
        }
    }

    /// Microseconds from the moment it was asked for that a token taken ahead may be spent; 0: none may be.
    pub fn lease_us(self) -> u64 {
        match self {
            Self::TokenBucket(shape) => shape.lease_us(),
            Self::Window(_) => 0,
        }
    }

    /// Tokens that may be taken at once, at most.
    pub fn burst(self) -> u64 {
        match self {
            Self::TokenBucket(shape) => shape.burst(),
            Self::Window(window) => window.quota(),
        }
    }

    /// Microseconds in which all of them are back for sure.
    pub fn fill_us(self) -> u64 {
        match self {
            Self::TokenBucket(shape) => shape.micros(shape.capacity()),
            Self::Window(window) => window.width_us(),
        }
    }

    /// Microseconds before all tokens are back at which a request of `tokens` passes for sure.
    pub fn spare_us(self, tokens: u64) -> u64 {
        match self {
            Self::TokenBucket(shape) => shape.micros(shape.usable().saturating_sub(shape.charge(tokens))),
            Self::Window(_) => 0,
        }
    }

    /// A time of a clock that read 0 at `epoch_us` microseconds since 1970-01-01T00:00Z, with what windows need of it.
    pub fn timestamp(self, now_us: u64, epoch_us: u64) -> Timestamp {
        match self {
            Self::TokenBucket(_) => Timestamp { now_us, expires_at_us: u64::MAX },
            Self::Window(window) => Timestamp { now_us, expires_at_us: window.span().expires_at(now_us, epoch_us) },
        }
    }

    /// What `tokens` weigh: ticks of a bucket, tokens of a window.
    pub fn charge(self, tokens: u64) -> u64 {
        match self {
            Self::TokenBucket(shape) => shape.charge(tokens),
            Self::Window(window) => window.charge(tokens),
        }
    }

    /// Whether a request of `tokens` can ever pass.
    pub fn holds(self, tokens: u64) -> bool {
        match self {
            Self::TokenBucket(shape) => shape.charge(tokens) <= shape.usable(),
            Self::Window(window) => window.charge(tokens) <= window.quota(),
        }
    }

    /// Microseconds in which `tokens` flow back, rounded down; none where they come back together.
    pub fn flow_us(self, tokens: u64) -> u64 {
        match self {
            Self::TokenBucket(shape) => shape.charge(tokens) / shape.ticks_per_us(),
            Self::Window(_) => 0,
        }
    }

    /// Microseconds that a request waits longer, at least, for `tokens` more than another waits for.
    pub fn dearer_us(self, tokens: u64) -> u64 {
        match self {
            Self::TokenBucket(shape) => shape.micros(shape.charge(tokens)),
            Self::Window(_) => 0,
        }
    }

    /// Microseconds from one request of `tokens` to the next, on average, when there are as many as may be.
    pub fn pace_us(self, tokens: u64) -> u64 {
        match self {
            Self::TokenBucket(shape) => shape.micros(shape.charge(tokens)),
            Self::Window(window) => {
                let all = u128::from(window.width_us()) * u128::from(window.charge(tokens));
                u64::try_from(all.div_ceil(window.quota().max(1).into())).unwrap_or(u64::MAX)
            }
        }
    }
}

impl From<TokenBucket> for Quota {
    fn from(shape: TokenBucket) -> Self {
        Self::TokenBucket(shape)
    }
}

impl From<Window> for Quota {
    fn from(window: Window) -> Self {
        Self::Window(window)
    }
}

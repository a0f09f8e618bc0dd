//! The state of a key: how it is charged and corrected, whatever the algorithm. With
//! [`quota`](crate::algorithm::quota) this is the one place that tells the algorithms apart.
//!
//! Guarantees that a limit whose rate, burst or quota changes forgets nothing. A limit whose
//! algorithm changes begins anew: a state of another algorithm counts as absent, and the next
//! charge overwrites it. Debts and refunds leave it as it is while tokens are missing by it, since
//! they belong to one algorithm as well. Fixed and sliding windows have the same states, so a
//! change between them forgets nothing. `lua/values.lua` and the scripts behind it do the same.

use crate::algorithm::level::Level;
use crate::algorithm::quota::Quota;
use crate::algorithm::token_bucket::conversion::Backlog;
use crate::algorithm::token_bucket::state::TokenBucketState;
use crate::algorithm::window::state::WindowState;
use crate::algorithm::window::{Timestamp, WindowEntries};

/// A key's state as it is stored, at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredState {
    TokenBucket(Backlog),
    Window(WindowEntries),
}

/// A key's state as a limit reads it, at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaState {
    algorithm: AlgorithmState,
    changed: bool,
    /// Another algorithm's state is stored, and tokens are missing by it.
    begins_anew: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum AlgorithmState {
    TokenBucket(TokenBucketState),
    Window(WindowState),
}

impl StoredState {
    /// No token is missing.
    #[inline]
    pub fn full(quota: Quota) -> Self {
        match quota {
            Quota::TokenBucket(bucket) => Self::TokenBucket(Backlog::full(bucket)),
            Quota::Window(_) => Self::Window(WindowEntries::default()),
        }
    }

    /// `tokens` are missing; those of a window expire as if they were taken now.
    #[inline]
    pub fn lacking(quota: Quota, tokens: u64, at: Timestamp) -> Self {
        match quota {
            Quota::TokenBucket(bucket) => {
                Self::TokenBucket(Backlog::new(bucket, bucket.charge(tokens)))
            }
            Quota::Window(_) => Self::Window(WindowEntries::new(tokens, at.expires_at_us)),
        }
    }

    /// The state in a reply of `lua/grant.lua`, given at `now_us`. `None`: no such reply.
    pub fn from_reply(quota: Quota, numbers: &[u64], now_us: u64) -> Option<Self> {
        match quota {
            Quota::TokenBucket(bucket) => {
                Backlog::from_reply(bucket, numbers).map(Self::TokenBucket)
            }
            Quota::Window(_) => WindowEntries::from_reply(numbers, now_us).map(Self::Window),
        }
    }

    /// This state as the limit with this quota reads it.
    #[inline]
    pub fn read_as(self, quota: Quota, at: Timestamp) -> QuotaState {
        match quota {
            Quota::TokenBucket(bucket) => {
                if let Self::TokenBucket(backlog) = self {
                    return TokenBucketState::new(bucket, backlog, at.now_us).into();
                }
            }
            Quota::Window(window) => {
                if let Self::Window(entries) = self {
                    return WindowState::new(window, entries, at).into();
                }
            }
        }
        QuotaState {
            begins_anew: self.is_out(at.now_us),
            ..Self::full(quota).read_as(quota, at)
        }
    }

    /// Whether tokens are missing still.
    fn is_out(&self, now_us: u64) -> bool {
        match self {
            Self::TokenBucket(backlog) => backlog.ticks > 0,
            Self::Window(entries) => entries.last_us() > now_us,
        }
    }
}

impl QuotaState {
    /// Whether it must be stored again.
    #[inline]
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    /// This state, to be stored again in any case.
    #[must_use]
    #[inline]
    pub fn changed(self) -> Self {
        Self {
            changed: true,
            ..self
        }
    }

    /// The state to store.
    #[inline]
    pub fn stored(&self) -> StoredState {
        match &self.algorithm {
            AlgorithmState::TokenBucket(bucket) => StoredState::TokenBucket(bucket.stored()),
            AlgorithmState::Window(window) => StoredState::Window(window.stored().clone()),
        }
    }

    /// Microseconds until all tokens are back, by the rate that the state is stored by.
    #[inline]
    pub fn full_in_us(&self) -> u64 {
        match &self.algorithm {
            AlgorithmState::TokenBucket(bucket) => bucket.full_in_us(),
            AlgorithmState::Window(window) => window.full_in_us(),
        }
    }

    /// How many of `units` requests of `cost_tokens` each fit, where the limit is divided into
    /// `parts` and this is one of them.
    #[inline]
    pub fn fitting(&self, parts: u32, cost_tokens: u64, units: u32) -> u32 {
        match &self.algorithm {
            AlgorithmState::TokenBucket(bucket) => bucket.fitting(parts, cost_tokens, units),
            AlgorithmState::Window(window) => window.fitting(parts, cost_tokens, units),
        }
    }

    /// Charges `granted` of the `units` asked for to one of `parts` of the limit.
    #[inline]
    pub fn charge(&mut self, parts: u32, cost_tokens: u64, granted: u32, units: u32) -> Level {
        self.changed |= granted > 0;
        match &mut self.algorithm {
            AlgorithmState::TokenBucket(bucket) => {
                bucket.charge(parts, cost_tokens, granted, units)
            }
            AlgorithmState::Window(window) => window.charge(parts, cost_tokens, granted),
        }
    }

    /// The level that a request of `cost_tokens` would meet. Charges nothing.
    pub fn level(&self, parts: u32, cost_tokens: u64) -> Level {
        self.clone().charge(parts, cost_tokens, 0, 1)
    }

    /// Charges tokens that were admitted `age_us` microseconds ago without asking, and were to
    /// expire at `expires_at_us`. All of them count, however little there is: what would be cut off
    /// could be admitted again. Does nothing where another algorithm's state is stored.
    pub fn charge_debt(&mut self, charge: u64, age_us: u64, expires_at_us: u64) {
        if self.begins_anew {
            return;
        }
        self.correct(|algorithm| match algorithm {
            AlgorithmState::TokenBucket(bucket) => bucket.charge_debt(charge, age_us),
            AlgorithmState::Window(window) => window.charge_debt(charge, expires_at_us),
        });
    }

    /// Refunds a charge that was made at `taken_us`, when it was to expire at `expired_at_us`.
    pub fn refund(&mut self, charge: u64, taken_us: u64, expired_at_us: u64) {
        self.correct(|algorithm| match algorithm {
            AlgorithmState::TokenBucket(bucket) => bucket.refund(charge, taken_us),
            AlgorithmState::Window(window) => window.refund(charge, taken_us, expired_at_us),
        });
    }

    /// Grants `tokens`, though not more than all.
    pub fn grant(&mut self, tokens: u64) {
        self.correct(|algorithm| match algorithm {
            AlgorithmState::TokenBucket(bucket) => bucket.grant(tokens),
            AlgorithmState::Window(window) => window.grant(tokens),
        });
    }

    /// Makes all tokens be back in at most `full_in_us` microseconds.
    pub fn lower_to(&mut self, full_in_us: u64) {
        self.correct(|algorithm| match algorithm {
            AlgorithmState::TokenBucket(bucket) => bucket.lower_to(full_in_us),
            AlgorithmState::Window(window) => window.lower_to(full_in_us),
        });
    }

    /// Takes over a level that the store replied: at least so much is missing from now on.
    pub fn observe(&mut self, level: &Level) {
        self.correct(|algorithm| match algorithm {
            AlgorithmState::TokenBucket(bucket) => bucket.observe(level),
            AlgorithmState::Window(window) => window.observe(level),
        });
    }

    /// Corrects the state, and remembers whether that changed what is to be stored.
    fn correct(&mut self, correction: impl FnOnce(&mut AlgorithmState)) {
        let before = self.stored();
        correction(&mut self.algorithm);
        self.changed |= self.stored() != before;
    }
}

impl From<TokenBucketState> for QuotaState {
    #[inline]
    fn from(bucket: TokenBucketState) -> Self {
        Self {
            changed: bucket.is_converted(),
            algorithm: AlgorithmState::TokenBucket(bucket),
            begins_anew: false,
        }
    }
}

impl From<WindowState> for QuotaState {
    #[inline]
    fn from(window: WindowState) -> Self {
        Self {
            changed: window.is_converted(),
            algorithm: AlgorithmState::Window(window),
            begins_anew: false,
        }
    }
}

#[cfg(test)]
mod tests;

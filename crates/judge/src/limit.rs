//! The limit that a run tests: what an operator wrote, and the bound that it puts on every window.

use std::fmt;
use std::num::NonZeroU64;

use tollgate_limiter::limit::algorithm::Rate;

/// A rate and a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestedLimit {
    pub rate: Rate,
    pub burst: NonZeroU64,
}

impl TestedLimit {
    /// `tokens` per second.
    #[cfg(test)]
    pub fn per_second(tokens: u64, burst: u64) -> Self {
        fn nonzero(number: u64) -> NonZeroU64 {
            NonZeroU64::new(number).unwrap()
        }
        Self {
            rate: Rate {
                tokens: nonzero(tokens),
                period_us: nonzero(1_000_000),
            },
            burst: nonzero(burst),
        }
    }

    /// Tokens per period.
    pub fn tokens(&self) -> u128 {
        self.rate.tokens.get().into()
    }

    /// The period in microseconds.
    pub fn period(&self) -> u128 {
        self.rate.period_us.get().into()
    }

    /// Whole tokens that a window of `length_us` may admit.
    pub fn bound(&self, length_us: u64) -> u64 {
        let refilled = u128::from(length_us) * self.tokens() / self.period();
        u64::try_from(refilled)
            .unwrap_or(u64::MAX)
            .saturating_add(self.burst.get())
    }

    /// Tokens that flow in within `length_us`, and the part of one.
    pub fn tokens_in(&self, length_us: u64) -> u64 {
        let tokens = (u128::from(length_us) * self.tokens()).div_ceil(self.period());
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }

    pub fn per_second_f64(&self) -> f64 {
        self.rate.tokens.get() as f64 * 1e6 / self.rate.period_us.get() as f64
    }

    /// A part of rate and burst, at least one token each.
    pub fn divided_by(&self, parts: NonZeroU64) -> Self {
        fn part(number: NonZeroU64, parts: NonZeroU64) -> NonZeroU64 {
            NonZeroU64::new(number.get() / parts).unwrap_or(NonZeroU64::MIN)
        }
        Self {
            rate: Rate {
                tokens: part(self.rate.tokens, parts),
                ..self.rate
            },
            burst: part(self.burst, parts),
        }
    }
}

/// Shows rate and burst: `100/s, burst 200`.
impl fmt::Display for TestedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = self.rate.tokens;
        let seconds = self.rate.period_us.get() as f64 / 1e6;
        match self.rate.period_us.get() {
            1_000_000 => write!(f, "{tokens}/s, burst {}", self.burst),
            _ => write!(f, "{tokens}/{seconds}s, burst {}", self.burst),
        }
    }
}

//! The unit that a limit counts in, as its clients are told.
//!
//! Guarantees that a limit whose requests differ in cost never claims to count requests.

use std::num::{NonZeroU32, NonZeroU64};

use crate::limit::cost::Cost;

/// The most that an integer of a structured field may be (RFC 9651 §3.3.1).
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// The unit of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaUnit {
    /// Every request takes as much.
    Requests,
    /// Tokens of the limit, which a header field or the response counts.
    Tokens,
    /// Bytes of the request's body, so many to a token.
    ContentBytes(NonZeroU32),
}

/// The unit in which a client is shown tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaScale {
    /// Tokens that an ordinary request takes.
    pub typical_cost: NonZeroU64,
    pub unit: QuotaUnit,
}

impl QuotaUnit {
    /// The unit of a limit whose requests cost this.
    pub fn for_cost(cost: &Cost) -> Self {
        match cost {
            Cost::Fixed(_) => Self::Requests,
            Cost::Header { .. } | Cost::Response(_) => Self::Tokens,
            Cost::Body { unit, .. } => {
                NonZeroU32::try_from(*unit).map_or(Self::Tokens, Self::ContentBytes)
            }
        }
    }
}

impl QuotaScale {
    /// Tokens, in the unit.
    #[inline]
    pub fn quota(self, tokens: u64) -> u64 {
        match self.unit {
            QuotaUnit::Requests => tokens / self.typical_cost,
            QuotaUnit::Tokens => tokens,
            QuotaUnit::ContentBytes(unit) => tokens
                .saturating_mul(u64::from(unit.get()))
                .min(MAX_INTEGER),
        }
    }

    /// Tokens that are left, in the unit: nothing where an ordinary request would be denied.
    #[inline]
    pub fn remaining(self, tokens: u64) -> u64 {
        if tokens < self.typical_cost.get() {
            0
        } else {
            self.quota(tokens)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_counts_in_the_unit_and_is_nothing_below_an_ordinary_request() {
        fn nonzero(number: u64) -> NonZeroU64 {
            NonZeroU64::new(number).unwrap()
        }
        fn left(unit: QuotaUnit, tokens: u64) -> u64 {
            let typical_cost = nonzero(10);
            QuotaScale { typical_cost, unit }.remaining(tokens)
        }
        assert_eq!(
            [9, 10, 29].map(|tokens| left(QuotaUnit::Requests, tokens)),
            [0, 1, 2]
        );
        assert_eq!(
            [9, 10, 29].map(|tokens| left(QuotaUnit::Tokens, tokens)),
            [0, 10, 29]
        );
        fn body(unit: u64) -> QuotaUnit {
            QuotaUnit::for_cost(&Cost::Body {
                unit: nonzero(unit),
                max: Cost::UNBOUNDED,
            })
        }
        assert_eq!(
            [9, 10, 29].map(|tokens| left(body(1_024), tokens)),
            [0, 10_240, 29_696]
        );
        assert_eq!(left(body(u32::MAX.into()), 1_000_000_000), MAX_INTEGER);
        assert_eq!(body(u64::MAX), QuotaUnit::Tokens, "no body is as long");
    }
}

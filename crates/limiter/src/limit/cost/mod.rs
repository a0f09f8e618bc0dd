//! How many tokens a request takes.
//!
//! Guarantees at least one token, and that a request whose cost cannot be read from its head pays
//! the most. A cost that only the response tells is reserved before and settled after. No request's
//! body is read for it.

pub mod json_path;
pub mod quota_unit;
mod response;

use std::num::NonZeroU64;
use std::sync::Arc;

use http::HeaderName;

use crate::limit::key::{Facts, field_values};

pub use crate::limit::cost::response::{CostField, JsonTerm, ResponseCost};

/// The tokens that a request takes.
///
/// ```
/// use std::num::NonZeroU64;
/// use std::sync::Arc;
/// use tollgate_limiter::limit::cost::json_path::JsonPath;
/// use tollgate_limiter::limit::cost::{Cost, ResponseCost};
/// use tollgate_limiter::limit::definition::Limit;
/// use tollgate_limiter::client_ip;
///
/// let nonzero = |number| NonZeroU64::new(number).unwrap();
/// let field = JsonPath::parse("usage.total_tokens")?.into();
/// let (reserve, max) = (nonzero(100), nonzero(8_000));
/// let cost = Cost::Response(Arc::new(ResponseCost { field, reserve, max, absent: None }));
/// let limit = Limit::per_minute("tokens", 10_000).key(client_ip()).build()?.limit;
/// let limit = Limit { cost, ..(*limit).clone() };
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Every request takes as many tokens.
    Fixed(NonZeroU64),
    /// A header field says how many, also under a name that servers take for it: `default` tokens
    /// without it, `max` at most, and `max` if it is not one number above 0.
    Header {
        name: HeaderName,
        default: NonZeroU64,
        max: NonZeroU64,
    },
    /// A token for each `unit` of bytes that the body begins: `max` at most, and `max` for a body
    /// of unknown length.
    Body { unit: NonZeroU64, max: NonZeroU64 },
    /// The response says how many.
    Response(Arc<ResponseCost>),
}

impl Cost {
    /// No bound but the burst.
    pub const UNBOUNDED: NonZeroU64 = NonZeroU64::MAX;

    /// Tokens that this request takes of a bucket of `burst` tokens. A cost that varies is never
    /// more than a full bucket.
    pub fn tokens(&self, facts: &Facts<'_>, burst: NonZeroU64) -> NonZeroU64 {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Header { name, default, max } => header_cost(facts, name, *default, *max)
                .min(*max)
                .min(burst),
            Self::Body { unit, max } => facts
                .body_length
                .map_or(*max, |length| units(length, *unit))
                .min(*max)
                .min(burst),
            Self::Response(by) => by.reserve.min(burst),
        }
    }

    /// Tokens that an ordinary request takes: where all take as much, the fields of a response
    /// count in these.
    pub fn typical(&self, burst: NonZeroU64) -> NonZeroU64 {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Header { default, max, .. } => (*default).min(*max).min(burst),
            Self::Body { .. } => NonZeroU64::MIN,
            Self::Response(by) => by.reserve.min(burst),
        }
    }

    /// The most that any request takes at once, however large its bucket.
    pub fn largest(&self) -> NonZeroU64 {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Header { max, .. } | Self::Body { max, .. } => *max,
            Self::Response(by) => by.reserve,
        }
    }

    /// The cost to settle after the response.
    pub fn later(&self) -> Option<&Arc<ResponseCost>> {
        match self {
            Self::Response(by) => Some(by),
            Self::Fixed(_) | Self::Header { .. } | Self::Body { .. } => None,
        }
    }
}

impl From<NonZeroU64> for Cost {
    fn from(cost: NonZeroU64) -> Self {
        Self::Fixed(cost)
    }
}

fn header_cost(
    facts: &Facts<'_>,
    name: &HeaderName,
    default: NonZeroU64,
    max: NonZeroU64,
) -> NonZeroU64 {
    let mut values = field_values(facts.headers, name);
    match (values.next(), values.next()) {
        (None, _) => default,
        (Some(value), None) => number(value.as_bytes())
            .and_then(NonZeroU64::new)
            .unwrap_or(max),
        (Some(_), Some(_)) => max,
    }
}

/// Digits only: no sign, no space. `None`: anything else, or beyond 64 bits.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(text)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok()
}

fn units(length: u64, unit: NonZeroU64) -> NonZeroU64 {
    NonZeroU64::new(length.div_ceil(unit.get())).unwrap_or(NonZeroU64::MIN)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const BURST: u64 = 50;

    fn nonzero(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).unwrap()
    }

    fn cost(cost: &Cost, said: &[&'static str], body_length: Option<u64>) -> u64 {
        let request = said.iter().fold(Request::get("/"), |request, value| {
            request.header("x-cost", *value)
        });
        let request = request.body(()).unwrap();
        cost.tokens(
            &Facts {
                body_length,
                ..Facts::from_request(&request)
            },
            nonzero(BURST),
        )
        .get()
    }

    #[test]
    fn a_header_says_it_and_what_it_says_wrong_costs_the_most() {
        let by = Cost::Header {
            name: HeaderName::from_static("x-cost"),
            default: nonzero(2),
            max: nonzero(40),
        };
        for (said, taken) in [
            (&[][..], 2),
            (&["7"], 7),
            (&["007"], 7),
            (&["40"], 40),
            (&["41"], 40),
        ] {
            assert_eq!(cost(&by, said, None), taken, "{said:?}");
        }
        for wrong in [
            "",
            "0",
            "-1",
            "+1",
            "1.5",
            "1 ",
            "18446744073709551616",
            "many",
        ] {
            assert_eq!(cost(&by, &[wrong], None), 40, "{wrong:?}");
        }
        assert_eq!(cost(&by, &["1", "1"], None), 40);
        assert_eq!((by.typical(nonzero(1)).get(), by.largest().get()), (1, 40));
    }

    #[test]
    fn a_field_that_an_upstream_takes_for_the_cost_says_it() {
        let by = Cost::Header {
            name: HeaderName::from_static("x-cost"),
            default: nonzero(2),
            max: nonzero(40),
        };
        let taken = |names: &[&'static str]| {
            let request = names.iter().fold(Request::get("/"), |request, name| {
                request.header(*name, "7")
            });
            let request = request.body(()).unwrap();
            by.tokens(&Facts::from_request(&request), nonzero(BURST))
                .get()
        };
        assert_eq!(taken(&["x_cost"]), 7);
        assert_eq!(taken(&["x-cost", "x_cost"]), 40);
        assert_eq!(taken(&["x_costs", "x-co-st"]), 2);
    }

    #[test]
    fn a_body_costs_by_the_unit_it_begins() {
        let by = Cost::Body {
            unit: nonzero(1_024),
            max: Cost::UNBOUNDED,
        };
        for (length, taken) in [
            (0, 1),
            (1, 1),
            (1_024, 1),
            (1_025, 2),
            (10_240, 10),
            (u64::MAX, BURST),
        ] {
            assert_eq!(cost(&by, &[], Some(length)), taken, "{length}");
        }
        assert_eq!(cost(&by, &[], None), BURST);
        assert_eq!(
            cost(
                &Cost::Body {
                    unit: nonzero(1),
                    max: nonzero(5)
                },
                &[],
                None
            ),
            5
        );
    }
}

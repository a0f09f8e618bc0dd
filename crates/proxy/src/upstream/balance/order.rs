//! The order in which endpoints of different weights have their turns.
//!
//! Guarantees that each has its share of the turns, spread evenly, and that equal weights need no
//! order at all.

use std::sync::LazyLock;

/// The most turns of an order: with more endpoints than that, each has one.
const MOST_TURNS: u64 = 4096;

/// Turns, as the places of endpoints. Empty: each endpoint has one, in the order of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnOrder(Box<[u32]>);

/// The order of endpoints that have one turn each.
pub static EACH_IN_TURN: LazyLock<TurnOrder> = LazyLock::new(TurnOrder::default);

impl TurnOrder {
    /// The order of endpoints with these weights, each at least 1.
    pub fn from_weights(weights: &[u64]) -> Self {
        let mut divisor = 0;
        for weight in weights {
            divisor = gcd(divisor, *weight);
        }
        let divisor = divisor.max(1);
        if weights.iter().all(|weight| weight == &divisor) {
            return Self::default();
        }
        let mut sum = 0_u64;
        for weight in weights {
            sum = sum.saturating_add(weight / divisor);
        }
        let mut turns = Vec::new();
        for (place, weight) in (0_u32..).zip(weights) {
            let parts = weight / divisor;
            let count = if sum <= MOST_TURNS {
                parts
            } else {
                (parts * MOST_TURNS / sum).max(1)
            };
            for turn in 0..count {
                // The middle of each of the endpoint's parts of the round.
                let middle = (2 * turn + 1) * u64::from(u32::MAX) / (2 * count);
                turns.push((middle, place));
            }
        }
        turns.sort_unstable();
        Self(turns.into_iter().map(|(_, place)| place).collect())
    }

    /// How many turns a round of `count` endpoints has.
    pub fn turns(&self, count: usize) -> usize {
        if self.0.is_empty() {
            count
        } else {
            self.0.len()
        }
    }

    /// The place of the endpoint whose turn is number `turn` of a round.
    pub fn place(&self, turn: usize) -> usize {
        self.0.get(turn).map_or(turn, |place| *place as usize)
    }
}

fn gcd(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn places(weights: &[u64]) -> Vec<usize> {
        let order = TurnOrder::from_weights(weights);
        (0..order.turns(weights.len()))
            .map(|turn| order.place(turn))
            .collect()
    }

    #[test]
    fn turns_are_spread_over_the_round() {
        assert_eq!(places(&[1, 1, 1]), [0, 1, 2]);
        assert_eq!(places(&[7, 7]), [0, 1]);
        assert_eq!(places(&[4, 2, 1]), [0, 1, 0, 2, 0, 1, 0]);
        assert_eq!(places(&[100, 300]), [1, 0, 1, 1]);
    }

    proptest! {
        #[test]
        fn each_endpoint_has_its_share_of_the_turns(weights in prop::collection::vec(1_u64..1_000_000, 1..40)) {
            let places = places(&weights);
            let sum: u64 = weights.iter().sum();
            for (place, weight) in weights.iter().enumerate() {
                let turns = places.iter().filter(|at| **at == place).count();
                let exact = *weight as f64 / sum as f64 * places.len() as f64;
                prop_assert!(turns >= 1 && (turns as f64 - exact).abs() <= 1.5 + exact * 0.02, "{turns} of {exact}");
            }
        }
    }
}

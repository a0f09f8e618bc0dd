//! The pauses between the attempts of a request.
//!
//! Guarantees that the pauses of many requests which failed at once are spread: each is drawn from
//! zero to a bound that doubles ("full jitter", as in Envoy).

use std::time::Duration;

/// How long a request waits before it is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOff {
    /// The longest pause before the second attempt.
    pub base: Duration,
    /// The longest pause of all.
    pub max: Duration,
}

impl BackOff {
    /// The pauses of Envoy.
    pub const DEFAULT: Self = Self {
        base: Duration::from_millis(25),
        max: Duration::from_millis(250),
    };

    /// A pause after `attempts`, of which there was one at least.
    pub fn pause(&self, attempts: u32) -> Duration {
        self.longest(attempts).mul_f64(fastrand::f64())
    }

    fn longest(&self, attempts: u32) -> Duration {
        let factor = 1_u32
            .checked_shl(attempts.saturating_sub(1))
            .unwrap_or(u32::MAX);
        self.base
            .saturating_mul(factor)
            .min(self.max.max(self.base))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_pause_doubles_up_to_the_bound() {
        let longest = (1..7).map(|attempts| BackOff::DEFAULT.longest(attempts).as_millis());
        assert_eq!(longest.collect::<Vec<_>>(), [25, 50, 100, 200, 250, 250]);
        assert_eq!(BackOff::DEFAULT.longest(u32::MAX), BackOff::DEFAULT.max);
    }

    #[test]
    fn pauses_are_spread_from_nothing_to_the_longest() {
        let pauses: Vec<_> = (0..1000)
            .map(|_| BackOff::DEFAULT.pause(3).as_millis())
            .collect();
        assert!(pauses.iter().all(|pause| *pause <= 100));
        for quarter in 0..4 {
            let within = pauses
                .iter()
                .filter(|pause| (quarter * 25..=quarter * 25 + 25).contains(*pause));
            assert!(within.count() > 150, "{quarter}");
        }
    }
}

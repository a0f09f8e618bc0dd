//! The clock of the store, as the driver of a run knows it.
//!
//! Guarantees that the store's time of an event is within what it says: it knows no more than
//! questions and answers show.

/// A difference that small may be the time that the answers took.
const READING_US: u64 = 1_000;

/// The store's clock, by the clock of the run: how far it is ahead at least and at most, in
/// microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerClock {
    pub least_us: i64,
    pub most_us: i64,
}

impl ServerClock {
    /// The clock that read `server_us` between a question and its answer.
    pub fn new(server_us: u64, asked_us: u64, answered_us: u64) -> Self {
        Self {
            least_us: signed(server_us).saturating_sub(signed(answered_us)),
            most_us: signed(server_us).saturating_sub(signed(asked_us)),
        }
    }

    /// Microseconds by which it was set or slewed: tokens flow in meanwhile, too.
    pub fn gained_us(self) -> u64 {
        let gained_us = self.most_us.abs_diff(self.least_us);
        if gained_us < READING_US { 0 } else { gained_us }
    }

    /// The clock that was read twice, however it was set or slewed between.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            least_us: self.least_us.min(other.least_us),
            most_us: self.most_us.max(other.most_us),
        }
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_slewed_has_gained_what_answers_do_not_take() {
        let before = ServerClock::new(7_000_000, 100, 300);
        assert_eq!(before.gained_us(), 0);
        let after = ServerClock::new(17_050_000, 10_000_100, 10_000_300);
        let gained_us = before.or(after).gained_us();
        assert!((50_000..=50_200).contains(&gained_us), "{gained_us}");
    }
}

//! The clock of the store, as the driver of a run knows it.
//!
//! Guarantees that the store's time of an event is within what it says: it knows no more than
//! questions and answers show.

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

//! The clock of the store, as the driver of a run knows it.
//!
//! Guarantees that the store's time of an event is within what it says: it knows no more than
//! questions and answers told.

/// The store's clock, by the clock of the run: how far it is ahead at least and at most, in
/// microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerClock {
    pub least_us: i64,
    pub most_us: i64,
}

impl ServerClock {
    /// The clock that told `server_us` to a question of this time with an answer of that.
    pub fn told(server_us: u64, (asked_us, answered_us): (u64, u64)) -> Self {
        let ahead = |of_us: u64| signed(server_us).saturating_sub(signed(of_us));
        Self {
            least_us: ahead(answered_us),
            most_us: ahead(asked_us),
        }
    }

    /// The clock that was told twice, however it was set or slewed between.
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

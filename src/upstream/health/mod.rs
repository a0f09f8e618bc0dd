//! Which endpoints are fit for requests. `ejection` judges by the requests themselves, `check`
//! describes what is asked of an endpoint, and `condition` keeps what became of it.

pub mod check;
pub mod condition;
pub mod ejection;

use std::time::Duration;

use crate::clock;

/// A share of endpoints, in whole percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percentage(u8);

impl Percentage {
    pub const ALL: Self = Self(100);

    /// Anything above 100 is 100.
    pub fn new(percent: u8) -> Self {
        Self(percent.min(100))
    }

    /// This share of `count`, rounded down.
    pub fn of(self, count: usize) -> usize {
        count.saturating_mul(usize::from(self.0)) / 100
    }

    /// Whether `part` of `count` is less than this share.
    pub fn exceeds(self, part: usize, count: usize) -> bool {
        part.saturating_mul(100) < count.saturating_mul(usize::from(self.0))
    }
}

/// The time after `wait`, in microseconds of the monotonic clock.
pub(in crate::upstream) fn after(wait: Duration) -> u64 {
    clock::monotonic_micros().saturating_add(micros(wait))
}

/// In microseconds.
pub(in crate::upstream) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

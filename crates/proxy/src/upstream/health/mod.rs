//! Which endpoints are fit for requests. `ejection` judges by the requests themselves, and
//! `condition` keeps the state of an endpoint.

pub mod condition;
pub mod ejection;

use std::time::Duration;

pub use super::spec::health as check;
pub use super::spec::health::Percentage;
use tollgate_limiter::clock;

/// The time after `wait`, in microseconds of the monotonic clock.
pub(in crate::upstream) fn after(wait: Duration) -> u64 {
    clock::monotonic_micros().saturating_add(micros(wait))
}

/// A span in microseconds.
pub(in crate::upstream) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

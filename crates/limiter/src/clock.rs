//! The one place that reads time, so that tests can pause it.
//!
//! Guarantees that every other module sees the same clocks. Knows nothing of what the time is for.

use std::sync::OnceLock;
use std::time::SystemTime;

pub use tokio::time::Instant;

/// The monotonic clock. Follows tokio's paused time in tests.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the file they are disallowed for"
)]
pub fn now() -> Instant {
    Instant::now()
}

/// Microseconds of monotonic time since the process first asked.
pub fn monotonic_micros() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let now = now();
    let origin = *ORIGIN.get_or_init(|| now);
    u64::try_from(now.saturating_duration_since(origin).as_micros()).unwrap_or(u64::MAX)
}

/// Microseconds since 1970-01-01T00:00Z by the wall clock: only for where fixed windows begin
/// without a shared store, and for how long a month is that clients are told of.
pub fn unix_micros() -> u64 {
    let since = wall()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The wall clock: for logs, dates shown to people, and calendars; never for how much time has
/// passed.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the file they are disallowed for"
)]
pub fn wall() -> SystemTime {
    SystemTime::now()
}

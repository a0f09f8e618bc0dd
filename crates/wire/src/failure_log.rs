//! When a failure is worth a line in the log: the first of its kind at once, those after it once in
//! a while.
//!
//! Guarantees at most one line per [`PERIOD`], which counts the failures that had none.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tollgate_limiter::clock;

/// Between two lines of a kind.
const PERIOD: Duration = Duration::from_secs(10);

/// The failures of a kind, all workers together.
#[derive(Debug, Default)]
pub struct FailureLog {
    /// Until then, no line is written: in microseconds of the monotonic clock.
    quiet_until: AtomicU64,
    unlogged: AtomicU32,
}

impl FailureLog {
    /// Counts a failure. The number of those without a line before it, if this one has its line.
    pub fn admit(&self) -> Option<u32> {
        let now = clock::monotonic_micros();
        let period = u64::try_from(PERIOD.as_micros()).unwrap_or(u64::MAX);
        let claimed =
            self.quiet_until
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |quiet_until| {
                    (quiet_until <= now).then_some(now.saturating_add(period))
                });
        if claimed.is_ok() {
            return Some(self.unlogged.swap(0, Ordering::Relaxed));
        }
        self.unlogged.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_failures_have_few_lines_which_count_them() {
        let log = FailureLog::default();
        assert_eq!(
            (log.admit(), log.admit(), log.admit()),
            (Some(0), None, None)
        );
        tokio::time::advance(PERIOD).await;
        assert_eq!((log.admit(), log.admit()), (Some(2), None));
    }
}

//! An estimate of Redis's clock, for deadlines.
//!
//! Guarantees that a deadline is never too early; it is late by the latency of the last reply at
//! most.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// The clock of one server. The arithmetic of buckets never uses it.
pub(crate) struct ServerTime {
    /// Redis's microseconds less this node's monotonic ones.
    offset_us: AtomicI64,
}

/// The offset before any reply: each deadline has passed, so that the first call learns the time
/// instead of charging.
const UNKNOWN: i64 = i64::MIN;

impl Default for ServerTime {
    fn default() -> Self {
        Self {
            offset_us: AtomicI64::new(UNKNOWN),
        }
    }
}

impl ServerTime {
    /// Redis's time when `timeout` has passed since `sent_us`, or up to the latency of the last
    /// reply later.
    pub fn after(&self, sent_us: u64, timeout: Duration) -> i64 {
        match self.offset_us.load(Ordering::Relaxed) {
            UNKNOWN => 0,
            offset => offset
                .saturating_add(signed(sent_us))
                .saturating_add(signed(timeout.as_micros())),
        }
    }

    /// A call sent at `sent_us` found Redis at `now`. It ran after it was sent, so this offset is
    /// not too small.
    pub fn learn(&self, sent_us: u64, now: i64) {
        self.offset_us
            .store(now.saturating_sub(signed(sent_us)), Ordering::Relaxed);
    }
}

fn signed(micros: impl TryInto<i64>) -> i64 {
    micros.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(20_000);

    #[test]
    fn before_the_first_reply_every_deadline_has_passed() {
        assert_eq!(ServerTime::default().after(u64::MAX, LIMIT), 0);
    }

    #[test]
    fn a_deadline_is_a_time_limit_after_sending_and_at_most_a_latency_more() {
        let time = ServerTime::default();
        // Redis's clock reads 5_000_000 when this node's reads 1_000; the reply took some of the
        // time from 900 on.
        time.learn(900, 5_000_000);
        assert_eq!(time.after(2_000, LIMIT), 5_001_000 + 20_000 + 100);
    }

    #[test]
    fn a_clock_that_steps_is_learned_anew_in_both_directions() {
        let time = ServerTime::default();
        for now in [5_000_000, 9_000_000_000, 1_000_000] {
            time.learn(1_000, now);
            assert_eq!(time.after(1_000, LIMIT), now + 20_000);
        }
    }
}

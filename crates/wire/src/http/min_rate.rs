//! The least rate at which a client sends a body, or takes one.
//!
//! A body falls behind while the client is waited for, and catches up with each byte. Once it is
//! behind by the time that a single wait may take, the client is too slow. Guarantees that no other
//! time counts: neither that of an upstream that takes nothing, nor that of a queue. A fast client
//! saves no time for later: a body is never ahead.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use metrics::Counter;

use crate::body::BodyFailure;
use tollgate_limiter::clock::Instant;

/// The least rates of the bodies of a listener.
#[derive(Clone, Debug)]
pub struct MinBodyRates {
    pub request: BodyLag,
    pub response: BodyLag,
}

/// How far a body is behind its least rate, if it has one.
#[derive(Clone, Debug, Default)]
pub struct BodyLag {
    rate: Option<Arc<MinRate>>,
    behind: Duration,
}

#[derive(Debug)]
struct MinRate {
    bytes_per_second: NonZeroU64,
    too_slow: Counter,
}

impl MinBodyRates {
    /// The rates of a listener with this setting. The recorder that is installed now counts slow
    /// clients.
    pub fn new(bytes_per_second: Option<NonZeroU64>) -> Self {
        let slow_requests = metrics::counter!("tollgate_slow_bodies_total", "kind" => "request");
        let slow_responses = metrics::counter!("tollgate_slow_bodies_total", "kind" => "response");
        Self {
            request: BodyLag::new(bytes_per_second, slow_requests),
            response: BodyLag::new(bytes_per_second, slow_responses),
        }
    }
}

impl BodyLag {
    fn new(bytes_per_second: Option<NonZeroU64>, too_slow: Counter) -> Self {
        too_slow.increment(0);
        let rate = bytes_per_second.map(|bytes_per_second| MinRate {
            bytes_per_second,
            too_slow,
        });
        Self {
            rate: rate.map(Arc::new),
            behind: Duration::ZERO,
        }
    }

    /// Begins with another body.
    pub fn reset(&mut self) {
        self.behind = Duration::ZERO;
    }

    /// The time from which a wait that begins at `now` counts: a body that is behind has less time
    /// left.
    pub fn count_from(&self, now: Instant) -> Instant {
        now.checked_sub(self.behind).unwrap_or(now)
    }

    /// Records that `bytes` have passed at `now`. `waiting_since`: from when a wait for them
    /// counts, if there was one.
    pub fn record(
        &mut self,
        bytes: usize,
        waiting_since: Option<Instant>,
        now: impl FnOnce() -> Instant,
    ) {
        let Some(rate) = &self.rate else { return };
        if let Some(since) = waiting_since {
            self.behind = now().saturating_duration_since(since);
        }
        self.behind = self.behind.saturating_sub(rate.time_for(bytes));
    }

    /// Records that the client has used up its time. Returns whether the least rate is the reason.
    pub fn record_overdue(&self) -> bool {
        match &self.rate {
            Some(rate) if !self.behind.is_zero() => {
                rate.too_slow.increment(1);
                true
            }
            Some(_) | None => false,
        }
    }

    /// The failure of a request whose client has used up its time.
    pub fn failure(&self) -> BodyFailure {
        if self.record_overdue() {
            BodyFailure::TooSlow
        } else {
            BodyFailure::Timeout
        }
    }
}

impl MinRate {
    fn time_for(&self, bytes: usize) -> Duration {
        let micros = (bytes as u64).saturating_mul(1_000_000) / self.bytes_per_second;
        Duration::from_micros(micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_limiter::clock;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_body_falls_behind_while_it_is_waited_for_and_is_never_ahead() {
        let mut lag = MinBodyRates::new(NonZeroU64::new(100)).request;
        let now = clock::now() + 60 * SECOND;
        lag.record(100_000, None, || now);
        assert_eq!(lag.failure(), BodyFailure::Timeout);
        // Five seconds for the bytes of two.
        lag.record(200, Some(lag.count_from(now)), || now + 5 * SECOND);
        assert_eq!(lag.count_from(now), now - 3 * SECOND);
        assert_eq!(lag.failure(), BodyFailure::TooSlow);
        // Bytes that nobody waited for.
        lag.record(100, None, || now);
        assert_eq!(lag.count_from(now), now - 2 * SECOND);
        lag.reset();
        assert_eq!(
            (lag.count_from(now), lag.failure()),
            (now, BodyFailure::Timeout)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_without_a_least_rate_is_never_behind() {
        let mut lag = MinBodyRates::new(None).request;
        let now = clock::now();
        lag.record(1, Some(now), || now + 60 * SECOND);
        assert_eq!(
            (lag.count_from(now), lag.failure()),
            (now, BodyFailure::Timeout)
        );
    }
}

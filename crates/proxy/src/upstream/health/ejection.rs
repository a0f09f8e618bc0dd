//! Passive health: an endpoint that fails several requests in a row, or is far slower than the
//! others, is ejected for a while.
//!
//! Guarantees that a success costs a load, that no more endpoints are out than the rule lets, and
//! that an endpoint which fails again soon after its return stays out for longer.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;

use super::micros;
pub use crate::upstream::spec::health::EjectSpec;

/// Why an endpoint is ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EjectionReason {
    /// Several requests in a row failed.
    Failures,
    /// The endpoint is far slower than the others.
    Latency,
}

/// The record of an endpoint's requests.
#[derive(Default)]
pub struct EjectionRecord {
    /// Failures in a row.
    consecutive: AtomicU32,
    /// In microseconds of the monotonic clock. 0: it is not ejected.
    until: AtomicU64,
    /// Ejections that count for how long the next one is.
    level: AtomicU32,
    /// When it came back, in microseconds of the monotonic clock.
    returned_at: AtomicU64,
    /// Whether the last ejection was for its latency.
    slow: AtomicBool,
    /// How often it was ejected, by reason.
    totals: [AtomicU64; EjectionReason::ALL.len()],
}

impl EjectionReason {
    pub const ALL: [Self; 2] = [Self::Failures, Self::Latency];

    /// The name of the reason in metrics and on pages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Failures => "failures",
            Self::Latency => "latency",
        }
    }
}

/// Whether a response says that its endpoint is at fault. 501 and 505 are about the request, which
/// HAProxy holds too: no client is to get an endpoint ejected by asking for what does not exist.
pub fn is_failure(status: StatusCode) -> bool {
    status.is_server_error() && !matches!(status.as_u16(), 501 | 505)
}

impl EjectionRecord {
    pub fn is_out(&self) -> bool {
        self.until.load(Ordering::Relaxed) != 0
    }

    /// Until when it is out, in microseconds of the monotonic clock.
    pub fn until(&self) -> Option<u64> {
        Some(self.until.load(Ordering::Relaxed)).filter(|until| *until != 0)
    }

    /// Failures in a row.
    pub fn consecutive(&self) -> u32 {
        self.consecutive.load(Ordering::Relaxed)
    }

    /// Why it was ejected last.
    pub fn reason(&self) -> EjectionReason {
        if self.slow.load(Ordering::Relaxed) {
            EjectionReason::Latency
        } else {
            EjectionReason::Failures
        }
    }

    /// How often it was ejected for this reason.
    pub fn total_for(&self, reason: EjectionReason) -> u64 {
        self.totals
            .get(reason as usize)
            .map_or(0, |total| total.load(Ordering::Relaxed))
    }

    /// How often it was ejected.
    pub fn total(&self) -> u64 {
        EjectionReason::ALL
            .into_iter()
            .map(|reason| self.total_for(reason))
            .sum()
    }

    #[inline]
    pub(in crate::upstream) fn succeeded(&self) {
        if self.consecutive.load(Ordering::Relaxed) != 0 {
            self.consecutive.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the number of failures in a row.
    pub(in crate::upstream) fn failed(&self) -> u32 {
        self.consecutive
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1)
    }

    /// Ejects it at `now`. Returns for how long.
    pub(in crate::upstream) fn eject(
        &self,
        now: u64,
        spec: &EjectSpec,
        reason: EjectionReason,
    ) -> Duration {
        let base = micros(spec.base).max(1);
        let good_time = now.saturating_sub(self.returned_at.load(Ordering::Relaxed)) / base;
        let kept = u64::from(self.level.load(Ordering::Relaxed)).saturating_sub(good_time);
        let level = u32::try_from(kept).unwrap_or(u32::MAX).saturating_add(1);
        self.level.store(level, Ordering::Relaxed);
        self.slow
            .store(reason == EjectionReason::Latency, Ordering::Relaxed);
        if let Some(total) = self.totals.get(reason as usize) {
            total.fetch_add(1, Ordering::Relaxed);
        }
        let time = spec
            .base
            .saturating_mul(level)
            .min(spec.longest.max(spec.base));
        self.until
            .store(now.saturating_add(micros(time)), Ordering::Relaxed);
        time
    }

    /// Takes it back at `now`, if its time is over. If it had failed, its next failure ejects it
    /// again.
    pub(in crate::upstream) fn review(&self, now: u64, spec: &EjectSpec) -> bool {
        if self.until().is_none_or(|until| now < until) {
            return false;
        }
        self.until.store(0, Ordering::Relaxed);
        self.returned_at.store(now, Ordering::Relaxed);
        let failures = if self.reason() == EjectionReason::Failures {
            spec.after.saturating_sub(1)
        } else {
            0
        };
        self.consecutive.store(failures, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::spec::health::Percentage;

    const SECOND: u64 = 1_000_000;

    fn spec() -> EjectSpec {
        let [base, longest] = [30, 100].map(Duration::from_secs);
        EjectSpec {
            after: 5,
            base,
            longest,
            at_most: Percentage::new(50),
            latency: None,
        }
    }

    #[test]
    fn an_endpoint_that_fails_again_soon_stays_out_for_longer_up_to_the_longest_time() {
        let record = EjectionRecord::default();
        let spec = spec();
        let mut now = 1_000 * SECOND;
        let mut times = Vec::new();
        for _ in 0..5 {
            let time = record.eject(now, &spec, EjectionReason::Failures);
            times.push(time.as_secs());
            assert!(!record.review(now + micros(time) - 1, &spec));
            now += micros(time);
            assert!(record.review(now, &spec) && !record.is_out());
        }
        assert_eq!(times, [30, 60, 90, 100, 100]);
        // Three times its base in service: as much is forgotten.
        now += 3 * 30 * SECOND;
        assert_eq!(
            record.eject(now, &spec, EjectionReason::Latency).as_secs(),
            90
        );
        assert_eq!(
            (record.total(), record.total_for(EjectionReason::Latency)),
            (6, 1)
        );
    }

    #[test]
    fn the_first_failure_after_its_return_is_one_too_many() {
        let record = EjectionRecord::default();
        let spec = spec();
        record.eject(0, &spec, EjectionReason::Failures);
        assert!(record.review(30 * SECOND, &spec));
        assert_eq!(record.failed(), spec.after);
        record.succeeded();
        assert_eq!(record.failed(), 1);
    }

    #[test]
    fn an_endpoint_that_was_slow_and_is_back_may_fail_as_often_as_any_other() {
        let record = EjectionRecord::default();
        let spec = spec();
        record.failed();
        record.eject(0, &spec, EjectionReason::Latency);
        assert!(record.review(30 * SECOND, &spec));
        assert_eq!(record.failed(), 1);
    }

    #[test]
    fn one_endpoint_of_several_may_be_out_and_the_only_one_may_not() {
        for (percent, count, most) in [
            (50, 1, 0),
            (50, 2, 1),
            (50, 3, 1),
            (50, 4, 2),
            (10, 4, 1),
            (100, 1, 1),
            (100, 4, 4),
            (0, 4, 1),
        ] {
            let spec = EjectSpec {
                at_most: Percentage::new(percent),
                ..spec()
            };
            assert_eq!(spec.most_of(count), most, "{percent}% of {count}");
        }
    }

    #[test]
    fn only_statuses_that_tell_of_the_endpoint_are_failures() {
        let failures = (100..600).filter(|code| is_failure(StatusCode::from_u16(*code).unwrap()));
        assert_eq!(failures.count(), 98);
        assert!(is_failure(StatusCode::BAD_GATEWAY) && !is_failure(StatusCode::NOT_IMPLEMENTED));
    }
}

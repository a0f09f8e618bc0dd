//! The condition of an endpoint: its requests in flight, its failures, and whether it is fit for
//! more.
//!
//! Guarantees that it outlives a reload: an endpoint that stays keeps it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use super::after;
use super::ejection::EjectionRecord;
use crate::upstream::latency::EndpointLatency;
pub use crate::upstream::spec::health::ProbeThresholds;
use tollgate_limiter::clock;
use tollgate_wire::failure_log::FailureLog;

/// How long an endpoint that refused a connection is passed over, while others are left. Long
/// enough that a dead endpoint costs at most one connect attempt a second, short enough to notice a
/// restart.
const BACK_OFF: Duration = Duration::from_secs(1);

/// The condition of an endpoint, shared by all workers.
#[derive(Default)]
pub struct EndpointCondition {
    pub(in crate::upstream) in_flight: AtomicUsize,
    /// In microseconds of the monotonic clock. 0: the last attempt to connect succeeded, or there
    /// was none.
    backing_off_until: AtomicU64,
    pub(in crate::upstream) failures: FailureLog,
    /// When it came into service after others, in microseconds of the monotonic clock. 0: it was
    /// there from the start.
    started_at: AtomicU64,
    ejection: EjectionRecord,
    probes: ProbeRecord,
    /// The latency, in an upstream that judges by it.
    latency: OnceLock<Box<EndpointLatency>>,
}

/// The outcomes of an endpoint's probes.
#[derive(Default)]
pub struct ProbeRecord {
    unhealthy: AtomicBool,
    /// Outcomes in a row that contradict what it counts as.
    contrary: AtomicU32,
    passed: AtomicU64,
    failed: AtomicU64,
    /// When the next is due, in microseconds of the monotonic clock. 0: at once.
    pub(in crate::upstream) due: AtomicU64,
    pub(in crate::upstream) under_way: AtomicBool,
    /// Why the last one failed, if it did.
    error: Mutex<Option<Arc<str>>>,
}

impl EndpointCondition {
    /// The requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Whether it lately refused a connection.
    pub fn is_backing_off(&self) -> bool {
        let until = self.backing_off_until.load(Ordering::Relaxed);
        until != 0 && clock::monotonic_micros() < until
    }

    /// Records that a connection was opened. Returns whether the last attempt had failed.
    pub fn record_connected(&self) -> bool {
        self.backing_off_until.load(Ordering::Relaxed) != 0
            && self.backing_off_until.swap(0, Ordering::Relaxed) != 0
    }

    /// Records that no connection could be opened. Returns whether the last attempt had succeeded.
    pub fn record_refused(&self) -> bool {
        self.backing_off_until
            .swap(after(BACK_OFF), Ordering::Relaxed)
            == 0
    }

    /// Whether nothing is said against sending it requests.
    pub fn is_in_service(&self) -> bool {
        !self.ejection.is_out() && !self.probes.is_unhealthy()
    }

    /// When it came into service after others, in microseconds of the monotonic clock.
    pub fn started_at(&self) -> Option<u64> {
        match self.started_at.load(Ordering::Relaxed) {
            0 => None,
            at => Some(at),
        }
    }

    /// Records that it came into service at `now`.
    pub(in crate::upstream) fn start(&self, now: u64) {
        self.started_at.store(now, Ordering::Relaxed);
    }

    pub fn ejection(&self) -> &EjectionRecord {
        &self.ejection
    }

    pub fn probes(&self) -> &ProbeRecord {
        &self.probes
    }

    /// `None`: none was recorded.
    pub fn latency(&self) -> Option<&EndpointLatency> {
        self.latency.get().map(|latency| &**latency)
    }

    /// Records the time that it took from a whole request to the head of the response.
    #[inline]
    pub(in crate::upstream) fn record_latency(&self, latency: Duration) {
        self.latency.get_or_init(Box::default).record(latency);
    }
}

impl ProbeRecord {
    pub fn is_unhealthy(&self) -> bool {
        self.unhealthy.load(Ordering::Relaxed)
    }

    /// How many passed, and how many failed.
    pub fn counts(&self) -> (u64, u64) {
        (
            self.passed.load(Ordering::Relaxed),
            self.failed.load(Ordering::Relaxed),
        )
    }

    /// Why the last one failed, if it did.
    pub fn error(&self) -> Option<Arc<str>> {
        self.error.lock().clone()
    }

    /// Records an outcome. Returns whether it changes what the endpoint counts as: the first one
    /// ever decides at once.
    pub(in crate::upstream) fn record(
        &self,
        outcome: Result<(), Arc<str>>,
        thresholds: ProbeThresholds,
    ) -> bool {
        let first = self.counts() == (0, 0);
        let passed = outcome.is_ok();
        let count = if passed { &self.passed } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
        *self.error.lock() = outcome.err();
        if passed != self.is_unhealthy() {
            self.contrary.store(0, Ordering::Relaxed);
            return false;
        }
        let needed = if passed {
            thresholds.healthy_after
        } else {
            thresholds.unhealthy_after
        };
        if !first && self.contrary.fetch_add(1, Ordering::Relaxed) + 1 < needed {
            return false;
        }
        self.contrary.store(0, Ordering::Relaxed);
        self.unhealthy.store(!passed, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THRESHOLDS: ProbeThresholds = ProbeThresholds {
        unhealthy_after: 3,
        healthy_after: 2,
    };

    /// The state of the endpoint after each of these outcomes: `+` passed, `-` failed.
    fn after_each(record: &ProbeRecord, outcomes: &str) -> String {
        let mut states = String::new();
        for outcome in outcomes.chars() {
            let result = if outcome == '+' {
                Ok(())
            } else {
                Err("down".into())
            };
            let before = record.is_unhealthy();
            let changed = record.record(result, THRESHOLDS);
            assert_eq!(changed, before != record.is_unhealthy());
            states.push(if record.is_unhealthy() { '-' } else { '+' });
        }
        states
    }

    #[test]
    fn so_many_probes_in_a_row_change_what_an_endpoint_counts_as() {
        let record = ProbeRecord::default();
        assert_eq!(after_each(&record, "+--+---+-++"), "++++++----+");
        assert_eq!(record.counts(), (5, 6));
    }

    #[test]
    fn the_first_probe_decides_at_once() {
        assert_eq!(after_each(&ProbeRecord::default(), "-+-++"), "----+");
    }
}

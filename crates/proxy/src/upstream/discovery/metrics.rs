//! The metrics of a discovery. Guarantees that the first failure is a rise.

use metrics::{Counter, Gauge, counter, gauge};

use tollgate_limiter::clock;

/// The metrics of one upstream's discovery.
pub struct DiscoveryMetrics {
    answered: Counter,
    empty: Counter,
    failed: Counter,
    cut: Counter,
    changes: Counter,
    endpoints: Gauge,
    last_success: Gauge,
}

impl DiscoveryMetrics {
    pub fn new(upstream: &str) -> Self {
        let [answered, empty, failed, cut] = ["answered", "empty", "failed", "cut"].map(|outcome| {
            let counter = counter!("tollgate_discovery_lookups_total", "upstream" => upstream.to_owned(), "outcome" => outcome);
            counter.increment(0);
            counter
        });
        Self {
            answered,
            empty,
            failed,
            cut,
            changes: counter!("tollgate_discovery_changes_total", "upstream" => upstream.to_owned()),
            endpoints: gauge!("tollgate_discovery_endpoints", "upstream" => upstream.to_owned()),
            last_success: gauge!("tollgate_discovery_last_success_timestamp_seconds", "upstream" => upstream.to_owned()),
        }
    }

    pub fn answered(&self) {
        self.answered.increment(1);
        self.last_success
            .set((clock::unix_micros() / 1_000) as f64 / 1e3);
    }

    pub fn empty(&self) {
        self.empty.increment(1);
    }

    pub fn failed(&self) {
        self.failed.increment(1);
    }

    /// Counts an answer that had more endpoints than are used.
    pub fn cut(&self) {
        self.cut.increment(1);
    }

    /// Counts a new list, with so many endpoints.
    pub fn changed(&self, endpoints: usize) {
        self.changes.increment(1);
        self.endpoints.set(endpoints as f64);
    }
}

//! Counts the calls to the store, and how often its breaker opened, by the limiter's own metrics,
//! so that it measures what an operator sees.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

const CALLS: &str = "tollgate_store_calls_total";
const TRANSITIONS: &str = "tollgate_store_breaker_transitions_total";

/// The calls of every store client that resolves its metrics while this is the local recorder.
#[derive(Clone, Debug, Default)]
pub struct StoreCalls {
    ok: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    opened: Arc<AtomicU64>,
}

impl StoreCalls {
    pub fn all(&self) -> u64 {
        self.ok.load(Ordering::Relaxed) + self.failed()
    }

    /// How often the breaker opened, for any server.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

impl Recorder for StoreCalls {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        if key.name() == TRANSITIONS && key.labels().any(|label| label.value() == "open") {
            return Counter::from_arc(self.opened.clone());
        }
        // A late call was counted as a timeout already.
        if key.name() != CALLS || key.labels().any(|label| label.value() == "late") {
            return Counter::noop();
        }
        let ok = key.labels().any(|label| label.value() == "ok");
        Counter::from_arc(if ok {
            self.ok.clone()
        } else {
            self.failed.clone()
        })
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

//! The latency of an upstream's requests: from a request that was sent whole to the head of its
//! response. `histogram` counts it for all workers, and `outliers` finds the endpoints that are far
//! slower than the others.

pub mod histogram;
pub mod outliers;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use histogram::LatencyHistogram;

/// The latency of one endpoint.
#[derive(Default)]
pub struct EndpointLatency {
    current: LatencyHistogram,
    /// The median of the last window with enough answers, in microseconds. 0: there was none.
    median: AtomicU64,
}

impl EndpointLatency {
    #[inline]
    pub fn record(&self, latency: Duration) {
        self.current.record(latency);
    }

    /// Ends a window. Returns its median in microseconds, if there were `least` answers.
    pub fn end_window(&self, least: u32) -> Option<u64> {
        let counts = self.current.take()?;
        if counts.total() < u64::from(least) {
            return None;
        }
        let median = counts.median();
        self.median.store(median, Ordering::Relaxed);
        Some(median)
    }

    /// Forgets the answers of this window.
    pub fn begin_anew(&self) {
        self.current.take();
    }

    /// The median of the last window with enough answers.
    pub fn median(&self) -> Option<Duration> {
        match self.median.load(Ordering::Relaxed) {
            0 => None,
            micros => Some(Duration::from_micros(micros)),
        }
    }
}

//! Counts latencies in buckets that grow with them.
//!
//! Guarantees that recording one is a single addition without a lock, and that a median is off by
//! six percent at most.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Each doubling has so many buckets.
const STEPS: u64 = 16;
const STEP_BITS: u32 = STEPS.ilog2();

/// Up to the longest latency that is distinguished from longer ones: 71 minutes.
const LONGEST: u64 = u32::MAX as u64;
const BUCKETS: usize = (STEPS * (LONGEST.ilog2() - STEP_BITS + 2) as u64) as usize;

/// Latencies, counted by all workers.
pub struct LatencyHistogram {
    buckets: [AtomicU32; BUCKETS],
}

/// Latencies that were counted. At least one.
pub struct LatencyCounts {
    buckets: Box<[u32]>,
    total: u64,
}

impl LatencyHistogram {
    #[inline]
    pub fn record(&self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        if let Some(bucket) = self.buckets.get(place(micros)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many were counted.
    pub fn total(&self) -> u64 {
        self.buckets
            .iter()
            .map(|bucket| u64::from(bucket.load(Ordering::Relaxed)))
            .sum()
    }

    /// The latencies that were counted, and begins anew. `None`: there are none.
    pub fn take(&self) -> Option<LatencyCounts> {
        let mut buckets = Vec::with_capacity(BUCKETS);
        let mut total = 0;
        for bucket in &self.buckets {
            let count = match bucket.load(Ordering::Relaxed) {
                0 => 0,
                _ => bucket.swap(0, Ordering::Relaxed),
            };
            total += u64::from(count);
            buckets.push(count);
        }
        if total == 0 {
            return None;
        }
        Some(LatencyCounts {
            buckets: buckets.into(),
            total,
        })
    }
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self {
            buckets: [const { AtomicU32::new(0) }; BUCKETS],
        }
    }
}

impl LatencyCounts {
    /// How many there are.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// In microseconds: at most half of them are longer.
    pub fn median(&self) -> u64 {
        let rank = self.total.div_ceil(2);
        let mut before = 0;
        for (place, count) in self
            .buckets
            .iter()
            .map(|count| u64::from(*count))
            .enumerate()
        {
            if before + count >= rank {
                let (least, width) = range(place as u64);
                // Latencies of a bucket are taken to be spread evenly.
                return least + width * (2 * (rank - before) - 1) / (2 * count);
            }
            before += count;
        }
        LONGEST
    }
}

/// The bucket of a latency in microseconds.
fn place(micros: u64) -> usize {
    let micros = micros.min(LONGEST);
    if micros < STEPS {
        return micros as usize;
    }
    let shift = micros.ilog2() - STEP_BITS;
    (u64::from(shift) * STEPS + (micros >> shift)) as usize
}

/// The shortest latency of a bucket, and how many there are, in microseconds.
fn range(place: u64) -> (u64, u64) {
    if place < STEPS {
        return (place, 1);
    }
    let shift = place / STEPS - 1;
    ((place % STEPS + STEPS) << shift, 1 << shift)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn median(micros: impl IntoIterator<Item = u64>) -> Option<u64> {
        let histogram = LatencyHistogram::default();
        micros
            .into_iter()
            .for_each(|micros| histogram.record(Duration::from_micros(micros)));
        histogram.take().map(|counts| counts.median())
    }

    #[test]
    fn each_latency_has_the_bucket_after_that_of_a_shorter_one() {
        let mut next = 0;
        for at in 0..BUCKETS as u64 {
            let (least, width) = range(at);
            assert_eq!(least, next, "{at}");
            assert_eq!(
                (place(least), place(least + width - 1)),
                (at as usize, at as usize)
            );
            next = least + width;
        }
        assert_eq!(next, LONGEST + 1);
        assert_eq!(place(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn there_is_no_median_of_nothing_and_what_was_taken_is_gone() {
        assert_eq!(median([]), None);
        let histogram = LatencyHistogram::default();
        histogram.record(Duration::from_millis(1));
        assert_eq!(histogram.total(), 1);
        assert!(histogram.take().is_some() && histogram.take().is_none());
    }

    #[test]
    fn a_median_is_that_of_most_and_not_of_the_slowest() {
        let of_ten =
            |slow| median((0..10).map(|n| if n < slow { 1_000_000 } else { 1_000 })).unwrap();
        assert!(of_ten(5) < 1_100 && of_ten(6) > 900_000);
    }

    proptest! {
        #[test]
        fn a_median_is_off_by_little(mut micros in prop::collection::vec(0_u64..10_000_000_000, 1..200)) {
            let found = median(micros.iter().copied()).unwrap() as f64;
            micros.sort_unstable();
            let exact = micros[(micros.len() - 1) / 2].min(LONGEST) as f64;
            prop_assert!((found - exact).abs() <= exact / 16.0 + 1.0, "{found} of {exact}");
        }
    }
}

//! The recorder of the process's metrics: the Prometheus exporter's, with histograms and counters
//! of our own.
//!
//! Histograms of the exporter keep each value, with its time, until somebody drains them. Ours keep
//! a count for each bucket and the sum. Counters of the exporter can only be read as text; ours by
//! the console, too. Guarantees that recording a value takes two additions and no lock, and that
//! histograms do not grow.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use metrics_exporter_prometheus::{PrometheusHandle, PrometheusRecorder};
use tokio::time::Instant;

use super::series::{MetricValue, SeriesTable, braced};

/// Upper bounds of the buckets of the histogram with this name, the least first.
pub type BucketBounds = fn(&str) -> &'static [f64];

/// The recorder.
pub struct MetricsRecorder {
    bounds: BucketBounds,
    prometheus: PrometheusRecorder,
    tables: Arc<MetricTables>,
}

/// Renders the metrics of a recorder, and reads some of them.
#[derive(Clone)]
pub struct MetricsHandle {
    prometheus: PrometheusHandle,
    tables: Arc<MetricTables>,
}

#[derive(Default)]
struct MetricTables {
    counters: SeriesTable<AtomicU64>,
    histograms: SeriesTable<BucketCounts>,
}

/// The values of one histogram.
pub struct BucketCounts {
    bounds: &'static [f64],
    /// A count for each bound, and a last one for values over all of them.
    counts: Box<[AtomicU64]>,
    /// The bits of a double.
    sum: AtomicU64,
}

impl MetricsRecorder {
    pub fn new(prometheus: PrometheusRecorder, bounds: BucketBounds) -> Self {
        Self {
            bounds,
            prometheus,
            tables: Arc::default(),
        }
    }

    pub fn handle(&self) -> MetricsHandle {
        MetricsHandle {
            prometheus: self.prometheus.handle(),
            tables: Arc::clone(&self.tables),
        }
    }
}

impl MetricsHandle {
    /// All metrics in Prometheus's text format.
    pub fn render(&self) -> String {
        let mut text = self.prometheus.render();
        self.tables.counters.render(&mut text);
        self.tables.histograms.render(&mut text);
        text
    }

    /// Forgets counters and histograms whose subject has been gone for long and that nobody counts
    /// any more. Gauges stay.
    pub fn forget(&self, now: Instant, is_gone: impl Fn(&Key) -> bool) {
        self.tables.counters.forget(now, &is_gone);
        self.tables.histograms.forget(now, &is_gone);
    }

    /// Lends the value of each counter with this name.
    pub fn visit_counters(&self, name: &str, mut see: impl FnMut(&Key, u64)) {
        self.tables
            .counters
            .visit(name, |key, count| see(key, count.load(Relaxed)));
    }

    /// Lends each histogram with this name.
    pub fn visit_histograms(&self, name: &str, see: impl FnMut(&Key, &BucketCounts)) {
        self.tables.histograms.visit(name, see);
    }
}

impl Recorder for MetricsRecorder {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.tables
            .counters
            .describe(name.as_str(), help.into_owned());
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.prometheus.describe_gauge(name, unit, help);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.tables
            .histograms
            .describe(name.as_str(), help.into_owned());
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.tables.counters.register(key, || AtomicU64::new(0)))
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.prometheus.register_gauge(key, metadata)
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let bounds = (self.bounds)(key.name());
        Histogram::from_arc(
            self.tables
                .histograms
                .register(key, || BucketCounts::new(bounds)),
        )
    }
}

impl BucketCounts {
    fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    /// Upper bounds of the buckets, in seconds: the least first, and none for the last bucket.
    pub fn bounds(&self) -> &'static [f64] {
        self.bounds
    }

    /// The number of values in each bucket.
    pub fn counts(&self) -> impl Iterator<Item = u64> {
        self.counts.iter().map(|count| count.load(Relaxed))
    }
}

impl MetricValue for BucketCounts {
    const TYPE: &'static str = "histogram";

    // Writing to a String cannot fail.
    fn render(&self, text: &mut String, name: &str, labels: &str) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut count = 0;
        for (index, within) in self.counts.iter().enumerate() {
            let bound = match self.bounds.get(index) {
                Some(bound) => bound.to_string(),
                None => "+Inf".to_owned(),
            };
            count += within.load(Relaxed);
            let _ = writeln!(
                text,
                "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}"
            );
        }
        let labels = braced(labels);
        let _ = writeln!(
            text,
            "{name}_sum{labels} {}",
            f64::from_bits(self.sum.load(Relaxed))
        );
        let _ = writeln!(text, "{name}_count{labels} {count}");
    }
}

impl HistogramFn for BucketCounts {
    fn record(&self, value: f64) {
        self.record_many(value, 1);
    }

    #[inline]
    fn record_many(&self, value: f64, count: usize) {
        // The search begins at the least bound: most values are small.
        let bucket = self
            .bounds
            .iter()
            .position(|bound| value <= *bound)
            .unwrap_or(self.bounds.len());
        if let Some(within) = self.counts.get(bucket) {
            within.fetch_add(count as u64, Relaxed);
        }
        let added = value * count as f64;
        let _ = self.sum.fetch_update(Relaxed, Relaxed, |sum| {
            Some((f64::from_bits(sum) + added).to_bits())
        });
    }
}

#[cfg(test)]
mod tests {
    use metrics::{counter, describe_counter, describe_histogram, histogram};
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;
    use crate::observe::series::{GONE_SERIES_KEPT, MOST_GONE_SERIES, label};
    use tollgate_limiter::clock;

    fn rendered(record: impl FnOnce()) -> String {
        let recorder = MetricsRecorder::new(PrometheusBuilder::new().build_recorder(), |name| {
            if name == "tollgate_store_batch_requests" {
                &[1.0, 10.0]
            } else {
                &[0.25, 2.5]
            }
        });
        metrics::with_local_recorder(&recorder, record);
        recorder.handle().render()
    }

    #[test]
    fn a_histogram_has_its_help_its_buckets_its_sum_and_its_count() {
        let text = rendered(|| {
            describe_histogram!("tollgate_request_duration_seconds", "How long.");
            let waits = histogram!("tollgate_request_duration_seconds", "route" => "a\"\\\nb");
            for value in [0.25, 0.5, 2.5, 3.0] {
                waits.record(value);
            }
            counter!("tollgate_panics_total").increment(1);
        });
        let labels = r#"route="a\"\\\nb""#;
        let name = "tollgate_request_duration_seconds";
        let expected = format!(
            "# HELP {name} How long.\n# TYPE {name} histogram\n\
             {name}_bucket{{{labels},le=\"0.25\"}} 1\n{name}_bucket{{{labels},le=\"2.5\"}} 3\n\
             {name}_bucket{{{labels},le=\"+Inf\"}} 4\n{name}_sum{{{labels}}} 6.25\n{name}_count{{{labels}}} 4\n\n"
        );
        assert!(text.ends_with(&expected), "{text}");
        assert!(text.contains("\ntollgate_panics_total 1\n"), "{text}");
    }

    #[test]
    fn a_counter_that_is_registered_again_goes_on_and_can_be_read() {
        let recorder = MetricsRecorder::new(PrometheusBuilder::new().build_recorder(), |_| &[]);
        metrics::with_local_recorder(&recorder, || {
            describe_counter!("tollgate_requests_total", "How many.");
            counter!("tollgate_requests_total", "route" => "a\"\n", "status" => "200").increment(2);
            counter!("tollgate_requests_total", "route" => "a\"\n", "status" => "200").increment(3);
            counter!("tollgate_panics_total").increment(0);
        });
        let mut read = Vec::new();
        recorder
            .handle()
            .visit_counters("tollgate_requests_total", |key, count| {
                read.push((label(key, "route").to_owned() + label(key, "method"), count))
            });
        assert_eq!(read, [("a\"\n".to_owned(), 5)]);
        let expected = "# TYPE tollgate_panics_total counter\ntollgate_panics_total 0\n\n\
             # HELP tollgate_requests_total How many.\n# TYPE tollgate_requests_total counter\n\
             tollgate_requests_total{route=\"a\\\"\\n\",status=\"200\"} 5\n\n";
        assert_eq!(recorder.handle().render(), expected);
    }

    #[test]
    fn what_is_gone_is_forgotten_once_nobody_counts_it_and_it_could_be_scraped() {
        let recorder = MetricsRecorder::new(PrometheusBuilder::new().build_recorder(), |_| &[1.0]);
        let held = metrics::with_local_recorder(&recorder, || {
            counter!("tollgate_requests_total", "route" => "gone").increment(1);
            histogram!("tollgate_request_duration_seconds", "route" => "gone").record(0.5);
            counter!("tollgate_requests_total", "route" => "here").increment(1);
            counter!("tollgate_requests_total", "route" => "ending")
        });
        held.increment(1);
        let handle = recorder.handle();
        let start = clock::now();
        assert_eq!(kept_routes(&handle, start), "gone here ending");
        let half = GONE_SERIES_KEPT / 2;
        assert_eq!(kept_routes(&handle, start + half), "gone here ending");
        // The route is there again, and goes again.
        handle.forget(start, |_| false);
        let gone_at = start + GONE_SERIES_KEPT * 2;
        assert_eq!(kept_routes(&handle, gone_at), "gone here ending");
        let later = gone_at + GONE_SERIES_KEPT + half;
        assert_eq!(kept_routes(&handle, later), "here ending");
        drop(held);
        let later = start + GONE_SERIES_KEPT * 4;
        assert_eq!(kept_routes(&handle, later), "here ending");
        let later = start + GONE_SERIES_KEPT * 6;
        assert_eq!(kept_routes(&handle, later), "here");
        assert!(
            !handle
                .render()
                .contains("tollgate_request_duration_seconds")
        );
    }

    /// The routes that are left after series were forgotten at `now`, at which all but `here` are
    /// gone.
    fn kept_routes(handle: &MetricsHandle, now: Instant) -> String {
        handle.forget(now, |key| label(key, "route") != "here");
        let text = handle.render();
        let mut kept = vec!["gone", "here", "ending"];
        kept.retain(|route| text.contains(route));
        kept.join(" ")
    }

    fn count_requests(recorder: &MetricsRecorder, routes: std::ops::Range<usize>) {
        metrics::with_local_recorder(recorder, || {
            for route in routes {
                counter!("tollgate_requests_total", "route" => format!("r{route}.")).increment(1);
            }
        });
    }

    #[test]
    fn of_many_series_that_are_gone_the_oldest_are_forgotten_early() {
        let recorder = MetricsRecorder::new(PrometheusBuilder::new().build_recorder(), |_| &[1.0]);
        let handle = recorder.handle();
        let now = clock::now();
        let second = std::time::Duration::from_secs(1);
        count_requests(&recorder, 0..100);
        handle.forget(now, |_| true);
        count_requests(&recorder, 100..MOST_GONE_SERIES + 150);
        handle.forget(now + second, |key| label(key, "route") != "r149.");
        let text = handle.render();
        assert!(
            text.contains("r149.") && !(0..100).any(|name| text.contains(&format!("\"r{name}.\"")))
        );
        let left = text
            .lines()
            .filter(|line| line.starts_with("tollgate_requests_total{"))
            .count();
        assert_eq!(left, MOST_GONE_SERIES + 1);
    }

    #[test]
    fn a_histogram_that_is_registered_again_goes_on() {
        let text = rendered(|| {
            describe_histogram!(
                "tollgate_store_call_duration_seconds",
                "No series, no metric."
            );
            histogram!("tollgate_store_batch_requests").record(7);
            histogram!("tollgate_store_batch_requests").record_many(10.5, 2);
        });
        let name = "tollgate_store_batch_requests";
        let expected = format!(
            "# TYPE {name} histogram\n{name}_bucket{{le=\"1\"}} 0\n{name}_bucket{{le=\"10\"}} 1\n\
             {name}_bucket{{le=\"+Inf\"}} 3\n{name}_sum 28\n{name}_count 3\n\n"
        );
        assert_eq!(text, expected);
    }
}

//! The recorder of the process's metrics: that of the Prometheus exporter, with histograms of our own.
//!
//! Those of the exporter keep each value, with its time, until somebody drains them. Ours keep a count for each bucket and
//! the sum. Guarantees that recording a value takes two additions and no lock, and that histograms do not grow.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::{PrometheusHandle, PrometheusRecorder};
use parking_lot::Mutex;

/// Upper bounds of the buckets of the histogram with this name, the least first.
pub type BucketBounds = fn(&str) -> &'static [f64];

/// The recorder.
pub struct MetricsRecorder {
    prometheus: PrometheusRecorder,
    histograms: Arc<HistogramTable>,
}

/// Renders the metrics of a recorder.
#[derive(Clone)]
pub struct MetricsHandle {
    prometheus: PrometheusHandle,
    histograms: Arc<HistogramTable>,
}

struct HistogramTable {
    bounds: BucketBounds,
    by_name: Mutex<BTreeMap<String, HistogramFamily>>,
}

/// The histograms with one name.
#[derive(Default)]
struct HistogramFamily {
    help: String,
    /// By their labels, as they are rendered.
    series: BTreeMap<String, Arc<BucketCounts>>,
}

/// The values of one histogram.
struct BucketCounts {
    bounds: &'static [f64],
    /// A count for each bound, and a last one for values over all of them.
    counts: Box<[AtomicU64]>,
    /// The bits of a double.
    sum: AtomicU64,
}

impl MetricsRecorder {
    pub fn new(prometheus: PrometheusRecorder, bounds: BucketBounds) -> Self {
        let histograms = HistogramTable { bounds, by_name: Mutex::default() };
        Self { prometheus, histograms: Arc::new(histograms) }
    }

    pub fn handle(&self) -> MetricsHandle {
        MetricsHandle { prometheus: self.prometheus.handle(), histograms: Arc::clone(&self.histograms) }
    }
}

impl MetricsHandle {
    /// All metrics in Prometheus's text format.
    pub fn render(&self) -> String {
        let mut text = self.prometheus.render();
        self.histograms.render(&mut text);
        text
    }
}

impl Recorder for MetricsRecorder {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.prometheus.describe_counter(name, unit, help);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.prometheus.describe_gauge(name, unit, help);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        let mut by_name = self.histograms.by_name.lock();
        by_name.entry(name.as_str().to_owned()).or_default().help = help.into_owned();
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.prometheus.register_counter(key, metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.prometheus.register_gauge(key, metadata)
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let mut by_name = self.histograms.by_name.lock();
        let family = by_name.entry(key.name().to_owned()).or_default();
        let bounds = self.histograms.bounds;
        let counts =
            family.series.entry(labels_of(key)).or_insert_with(|| Arc::new(BucketCounts::new(bounds(key.name()))));
        Histogram::from_arc(Arc::clone(counts))
    }
}

impl HistogramTable {
    // Writing to a String cannot fail.
    fn render(&self, text: &mut String) {
        for (name, family) in self.by_name.lock().iter().filter(|(_, family)| !family.series.is_empty()) {
            if !family.help.is_empty() {
                let _ = writeln!(text, "# HELP {name} {}", family.help);
            }
            let _ = writeln!(text, "# TYPE {name} histogram");
            for (labels, values) in &family.series {
                values.render(text, name, labels);
            }
            text.push('\n');
        }
    }
}

impl BucketCounts {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(), sum: AtomicU64::new(0) }
    }

    fn render(&self, text: &mut String, name: &str, labels: &str) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut count = 0;
        let bounds = self.bounds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        for (bound, within) in bounds.zip(&self.counts) {
            count += within.load(Relaxed);
            let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}");
        }
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(text, "{name}_sum{labels} {}", f64::from_bits(self.sum.load(Relaxed)));
        let _ = writeln!(text, "{name}_count{labels} {count}");
    }
}

impl HistogramFn for BucketCounts {
    fn record(&self, value: f64) {
        self.record_many(value, 1);
    }

    #[inline]
    fn record_many(&self, value: f64, count: usize) {
        // From the least bound on: most values are small.
        let bucket = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        if let Some(within) = self.counts.get(bucket) {
            within.fetch_add(count as u64, Relaxed);
        }
        let added = value * count as f64;
        let _ = self.sum.fetch_update(Relaxed, Relaxed, |sum| Some((f64::from_bits(sum) + added).to_bits()));
    }
}

/// The labels of a series, in Prometheus's text format: without the braces.
fn labels_of(key: &Key) -> String {
    let escape = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let labels = key.labels().map(|label| format!("{}=\"{}\"", label.key(), escape(label.value())));
    labels.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use metrics::{counter, describe_histogram, histogram};
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    fn rendered(record: impl FnOnce()) -> String {
        let recorder = MetricsRecorder::new(PrometheusBuilder::new().build_recorder(), |name| {
            if name == "tollgate_store_batch_requests" { &[1.0, 10.0] } else { &[0.25, 2.5] }
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
    fn a_histogram_that_is_registered_again_goes_on() {
        let text = rendered(|| {
            describe_histogram!("tollgate_store_call_duration_seconds", "No series, no metric.");
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

//! Metrics by name and labels: rendered in Prometheus's text format, and read by the console.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use metrics::Key;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The time for which a series can still be scraped after its subject, such as a route, is gone.
pub const GONE_SERIES_KEPT: Duration = Duration::from_secs(15 * 60);

/// Series of gone subjects that are kept, of one kind: people who may change policies could have
/// made any number within that time.
pub const MOST_GONE_SERIES: usize = 50_000;

/// The series of one kind, such as all counters.
pub struct SeriesTable<T>(Mutex<BTreeMap<String, SeriesFamily<T>>>);

/// The series with one name.
struct SeriesFamily<T> {
    help: String,
    /// The series by their labels, as they are rendered.
    series: BTreeMap<String, LabelledValue<T>>,
}

struct LabelledValue<T> {
    key: Key,
    value: Arc<T>,
    /// The time since which the subject is gone.
    gone_since: Option<Instant>,
}

/// A value in Prometheus's text format.
pub trait MetricValue {
    const TYPE: &'static str;

    /// Writes the lines of the series with this name and these labels, which have no braces.
    fn render(&self, text: &mut String, name: &str, labels: &str);
}

impl<T: MetricValue> SeriesTable<T> {
    pub fn describe(&self, name: &str, help: String) {
        self.0.lock().entry(name.to_owned()).or_default().help = help;
    }

    /// The value of `key`: the present one, or `new`.
    pub fn register(&self, key: &Key, new: impl FnOnce() -> T) -> Arc<T> {
        let mut families = self.0.lock();
        let family = families.entry(key.name().to_owned()).or_default();
        let series = family
            .series
            .entry(rendered_labels(key))
            .or_insert_with(|| LabelledValue {
                key: key.clone(),
                value: Arc::new(new()),
                gone_since: None,
            });
        series.value.clone()
    }

    /// Forgets series whose subject has been gone for [`GONE_SERIES_KEPT`] and that nobody counts
    /// any more, and the oldest of more than [`MOST_GONE_SERIES`].
    pub fn forget(&self, now: Instant, is_gone: impl Fn(&Key) -> bool) {
        let mut families = self.0.lock();
        for family in families.values_mut() {
            family.series.retain(|_, series| {
                if Arc::strong_count(&series.value) > 1 || !is_gone(&series.key) {
                    series.gone_since = None;
                    return true;
                }
                let since = *series.gone_since.get_or_insert(now);
                now.saturating_duration_since(since) < GONE_SERIES_KEPT
            });
        }
        let mut gone: Vec<Instant> = Vec::new();
        for family in families.values() {
            gone.extend(
                family
                    .series
                    .values()
                    .filter_map(|series| series.gone_since),
            );
        }
        let excess = gone.len().saturating_sub(MOST_GONE_SERIES);
        if excess == 0 {
            return;
        }
        gone.sort_unstable();
        let last = gone[excess - 1];
        // Many may have gone at once, at the time `last`: only some of these are forgotten.
        let mut forgotten_of_last = excess - gone.partition_point(|since| *since < last);
        for family in families.values_mut() {
            family.series.retain(|_, series| match series.gone_since {
                Some(since) if since == last && forgotten_of_last > 0 => {
                    forgotten_of_last -= 1;
                    false
                }
                Some(since) => since >= last,
                None => true,
            });
        }
    }

    /// Lends each series with this name.
    pub fn visit(&self, name: &str, mut see: impl FnMut(&Key, &T)) {
        if let Some(family) = self.0.lock().get(name) {
            for series in family.series.values() {
                see(&series.key, &series.value);
            }
        }
    }

    // Writing to a String cannot fail.
    pub fn render(&self, text: &mut String) {
        for (name, family) in &*self.0.lock() {
            if family.series.is_empty() {
                continue;
            }
            if !family.help.is_empty() {
                let _ = writeln!(text, "# HELP {name} {}", family.help);
            }
            let _ = writeln!(text, "# TYPE {name} {}", T::TYPE);
            for (labels, series) in &family.series {
                series.value.render(text, name, labels);
            }
            text.push('\n');
        }
    }
}

impl<T> Default for SeriesTable<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Default for SeriesFamily<T> {
    fn default() -> Self {
        Self {
            help: String::new(),
            series: BTreeMap::new(),
        }
    }
}

/// A counter.
impl MetricValue for AtomicU64 {
    const TYPE: &'static str = "counter";

    fn render(&self, text: &mut String, name: &str, labels: &str) {
        let _ = writeln!(text, "{name}{} {}", braced(labels), self.load(Relaxed));
    }
}

/// The labels in braces. Empty without labels.
pub fn braced(labels: &str) -> String {
    if labels.is_empty() {
        String::new()
    } else {
        format!("{{{labels}}}")
    }
}

/// The value of a label. Empty without it.
pub fn label<'a>(key: &'a Key, name: &str) -> &'a str {
    key.labels()
        .find(|label| label.key() == name)
        .map_or("", |label| label.value())
}

/// The labels of a series, in Prometheus's text format: without the braces.
fn rendered_labels(key: &Key) -> String {
    let mut text = String::new();
    for label in key.labels() {
        if !text.is_empty() {
            text.push(',');
        }
        let value = label
            .value()
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        let _ = write!(text, "{}=\"{value}\"", label.key());
    }
    text
}

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{env, fs};

use super::*;

const PAGE_BEGIN: &str = "\
# Metrics

`GET /metrics` on the admin port answers in Prometheus's format. [operating.md](operating.md#metrics) says which metrics to
look at first, and `deploy/prometheus/alerts.yaml` has alert rules.

A client's key is never a label. Histograms have `_bucket`, `_sum` and `_count` as usual. This page is generated from the
table in `crates/gateway/src/observe/metrics.rs`: `UPDATE_DOCS=1 cargo test -p tollgate-gateway --lib observe::` writes it.

| metric | labels | meaning |
|---|---|---|
";

const PAGE_END: &str = "
On Linux there are also `process_*`: CPU time, memory, file descriptors, threads and start time, by the names that
Prometheus's own clients use.
";

#[test]
fn the_page_in_docs_says_what_the_table_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let rows: String = METRICS.iter().map(row).collect();
    let page = format!("{PAGE_BEGIN}{rows}{PAGE_END}");
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path, &page).unwrap();
    }
    let present = fs::read_to_string(path).unwrap_or_default();
    assert!(
        present == page,
        "docs/metrics.md is not what the table says: run with UPDATE_DOCS=1"
    );
}

fn row(metric: &Metric) -> String {
    let labels: Vec<String> = metric
        .labels
        .iter()
        .map(|label| format!("`{label}`"))
        .collect();
    let kind = match metric.kind {
        MetricKind::Counter | MetricKind::Gauge => "",
        MetricKind::Histogram(_) => "histogram: ",
    };
    let columns = [
        format!("`{}`", metric.name),
        labels.join(", "),
        format!("{kind}{}", metric.meaning),
    ];
    let line = format!("| {} |\n", columns.join(" | "));
    line.replace("|  |", "| |")
}

#[test]
fn every_metric_in_the_sources_has_a_row_with_its_kind_and_labels_and_every_row_is_counted() {
    let sources = sources();
    let mut counted = counted_metrics(&sources);
    let rendered = METRICS
        .iter()
        .filter(|metric| sources.contains(&format!("name: \"{}\"", metric.name)));
    for metric in rendered {
        counted.insert(metric.name, signature(metric));
    }
    assert!(counted.len() > 70, "{counted:?}");
    let described: BTreeMap<&str, String> = METRICS
        .iter()
        .map(|metric| (metric.name, signature(metric)))
        .collect();
    assert_eq!(described.len(), METRICS.len(), "a metric has two rows");
    let differences: Vec<_> = counted
        .keys()
        .chain(described.keys())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|name| (*name, counted.get(name), described.get(name)))
        .filter(|(_, counted, described)| counted != described)
        .collect();
    assert!(
        differences.is_empty(),
        "metrics whose calls in the sources and whose row differ: {differences:#?}"
    );
}

/// Labels whose values are ours.
const NAMED_VALUES: [&str; 7] = [
    "action",
    "decided_by",
    "kind",
    "outcome",
    "reason",
    "to",
    "verdict",
];

#[test]
fn the_values_of_a_label_are_named_where_its_metric_is() {
    for metric in METRICS {
        let has_values = metric
            .labels
            .iter()
            .any(|label| NAMED_VALUES.contains(label));
        let is_named = metric.meaning.contains('`') || metric.meaning.contains("](");
        assert!(!has_values || is_named, "{}", metric.name);
    }
}

fn signature(metric: &Metric) -> String {
    let kind = match metric.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram(_) => "histogram",
    };
    format!("{kind}{:?}", metric.labels)
}

/// Kind and labels of each metric that a macro of `metrics` names. Tests count with fewer labels:
/// the most labels are those of the metric.
fn counted_metrics(sources: &str) -> BTreeMap<&str, String> {
    let mut found: BTreeMap<&str, (usize, String)> = BTreeMap::new();
    for kind in ["counter", "gauge", "histogram"] {
        for call in sources.split(&format!("{kind}!(")).skip(1) {
            let Some(call) = call.trim_start().strip_prefix('"') else {
                continue;
            };
            let (name, rest) = call.split_once('"').unwrap();
            if !name.starts_with("tollgate_") {
                continue;
            }
            let arguments = &rest[..closing_bracket(rest)];
            let mut labels: Vec<&str> = Vec::new();
            // The last piece is a value.
            let (before_last, _) = arguments.rsplit_once("=>").unwrap_or_default();
            for piece in before_last.split("=>") {
                let label = piece.trim_end().strip_suffix('"');
                labels.extend(label.and_then(|label| label.rsplit('"').next()));
            }
            let signature = (labels.len(), format!("{kind}{labels:?}"));
            let most = found.entry(name).or_default();
            if signature.0 >= most.0 {
                *most = signature;
            }
        }
    }
    found
        .into_iter()
        .map(|(name, (_, signature))| (name, signature))
        .collect()
}

/// Where the bracket that is open before `text` ends.
fn closing_bracket(text: &str) -> usize {
    let mut depth = 1;
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// All of the workspace's code that counts in a gateway.
fn sources() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut text = String::new();
    read_sources(&root.join("src"), &mut text);
    read_sources(&root.join("crates"), &mut text);
    text
}

fn read_sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !path.ends_with(file!())
        {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn help_texts_are_meanings_without_markdown() {
    let meaning = "bodies for which [`keep_body`](retries.md#the-budget) had `no` memory";
    assert_eq!(
        plain_text(meaning),
        "bodies for which keep_body had no memory"
    );
}

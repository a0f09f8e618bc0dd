//! Metrics cost a request nothing to look up, and have few series.

use crate::imports::Workspace;
use crate::source::{Source, block};

/// Metric handles resolved elsewhere than in a constructor: file, function, why that is not once
/// per request.
const RESOLVED_OUTSIDE_CONSTRUCTORS: [(&str, &str, &str); 2] = [
    (
        "src/app",
        "gateway",
        "builds the gateway: once per configuration",
    ),
    (
        "crates/gateway/src/observe/metrics",
        "install",
        "once per process",
    ),
];

/// Names of labels. Each has few values, all known from the configuration or the code.
const LABELS: &str = "action authenticator certificate decided_by endpoint grpc_status kind limit listener method outcome route status to upstream verdict version";

/// A metric's handle is looked up by a constructor, and kept: looking it up formats and hashes its
/// labels.
pub fn handles_are_resolved_once(workspace: &Workspace) -> Vec<String> {
    let elsewhere =
        metric_macros(&workspace.sources).filter(|(source, at)| !is_in_constructor(source, *at));
    elsewhere
        .map(|(source, at)| {
            format!(
                "{}: resolves a metric's handle outside of a constructor: keep it",
                source.at(at)
            )
        })
        .collect()
}

/// Rows of the tables above that nothing needs.
pub fn rows_without_need(workspace: &Workspace) -> Vec<String> {
    let resolves = |place: &str, name: &str| {
        let within = workspace
            .sources
            .iter()
            .filter(|source| source.is_in(place));
        within
            .filter(|source| {
                metric_macros(&workspace.sources).any(|(other, _)| other.path == source.path)
            })
            .any(|source| {
                source
                    .find("fn")
                    .iter()
                    .any(|at| source.code[at + 2..].trim_start().starts_with(name))
            })
    };
    let idle = RESOLVED_OUTSIDE_CONSTRUCTORS
        .iter()
        .filter(|(place, name, _)| !resolves(place, name));
    let idle = idle.map(|(place, name, _)| {
        format!("{place}: `{name}` resolves no metric's handle: drop its row")
    });
    let is_used = |label: &&str| {
        workspace
            .sources
            .iter()
            .any(|source| source.text.contains(&format!("\"{label}\" =>")))
    };
    let unused = LABELS.split(' ').filter(|label| !is_used(label));
    idle.chain(unused.map(|label| format!("LABELS: {label:?} is no label any more: drop it")))
        .collect()
}

fn metric_macros(sources: &[Source]) -> impl Iterator<Item = (&Source, usize)> {
    const MACROS: [&str; 3] = ["counter!", "gauge!", "histogram!"];
    sources.iter().flat_map(|source| {
        MACROS
            .iter()
            .flat_map(move |name| source.find(name).into_iter().map(move |at| (source, at)))
    })
}

/// The function around it makes a `Self` and has none yet.
fn is_in_constructor(source: &Source, at: usize) -> bool {
    let Some(begin) = source.find("fn").into_iter().rfind(|begin| *begin < at) else {
        return false;
    };
    let rest = source.code[begin + 2..].trim_start();
    let signature = rest.split('{').next().unwrap_or_default();
    let name = signature.split(['(', '<']).next().unwrap_or_default();
    let makes_self = signature
        .split_once("->")
        .is_some_and(|(_, result)| result.contains("Self"));
    let has_self = signature.contains("self");
    let excepted =
        |(place, function, _): &(&str, &str, &str)| source.is_in(place) && *function == name;
    makes_self && !has_self || RESOLVED_OUTSIDE_CONSTRUCTORS.iter().any(excepted)
}

/// Labels are written out, from [`LABELS`], and none is made of a key.
pub fn labels_are_few(workspace: &Workspace) -> Vec<String> {
    metric_macros(&workspace.sources)
        .filter_map(|(source, at)| unbounded_label(source, at))
        .collect()
}

fn unbounded_label(source: &Source, at: usize) -> Option<String> {
    let open = at + source.code[at..].find('(')?;
    let call = open..open + block(&source.code[open..]).len();
    // Literals are blank in `code`, so their commas and brackets are not in the way; names are read
    // off `text`.
    let mut end = call.start + 1;
    for argument in source.code[call.start + 1..call.end - 1]
        .split(',')
        .skip(1)
        .filter(|text| !text.trim().is_empty())
    {
        end += source.code[end..].find(argument)?;
        let written = &source.text[end..end + argument.len()];
        let Some((name, value)) = written.split_once("=>") else {
            return Some(format!(
                "{}: labels are written out, as \"name\" => value",
                source.at(at)
            ));
        };
        let name = name.trim().trim_matches('"');
        if !LABELS.split(' ').any(|label| label == name) {
            return Some(format!(
                "{}: {name:?} is no label of ours: add it to LABELS if it has few values",
                source.at(at)
            ));
        }
        if value
            .split(|c: char| !c.is_alphanumeric())
            .any(|word| word.eq_ignore_ascii_case("key"))
        {
            return Some(format!(
                "{}: a key never becomes a label: it has as many values as clients",
                source.at(at)
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{assert_found, assert_none, assert_passes, tree, workspace};

    #[test]
    fn metric_handles_are_resolved_by_constructors() {
        assert_none(&handles_are_resolved_once(workspace()));
        let per_event = "impl M { fn hit(&self) { counter!(\"tollgate_x_total\").increment(1); } }";
        assert_found(
            handles_are_resolved_once,
            "src/gateway/account.rs",
            per_event,
        );
        let free = "fn count(route: &str) { metrics::counter!(\"tollgate_x_total\", \"route\" => route.to_owned()); }";
        assert_found(
            handles_are_resolved_once,
            "crates/limiter/src/node/lease.rs",
            free,
        );
        let constructor =
            "impl M { fn new(route: &str) -> Self { Self(counter!(\"tollgate_x_total\")) } }";
        assert_passes(
            handles_are_resolved_once,
            "src/gateway/account.rs",
            constructor,
        );
    }

    #[test]
    fn each_row_of_the_tables_is_needed() {
        assert_none(&rows_without_need(workspace()));
        let idle = rows_without_need(&tree(&[(
            "crates/gateway/src/observe/metrics.rs",
            "fn install() { counter!(\"a\", \"route\" => r) }",
        )]));
        assert!(
            idle.iter()
                .any(|finding| finding.starts_with("src/app: `gateway`")),
            "{idle:?}"
        );
        assert!(
            !idle
                .iter()
                .any(|finding| finding.contains("install") || finding.contains("route")),
            "{idle:?}"
        );
    }

    #[test]
    fn a_key_never_becomes_a_metric_label() {
        assert_none(&labels_are_few(workspace()));
        for misuse in [
            "fn new(k: &Key) -> Self { Self(counter!(\"tollgate_x_total\", \"key\" => k.to_string())) }",
            "fn new(key: Key) -> Self { Self(gauge!(\"tollgate_x\", \"limit\" => key.show())) }",
            "fn new(labels: Vec<Label>) -> Self { Self(gauge!(\"tollgate_x\", labels)) }",
        ] {
            assert_found(
                labels_are_few,
                "crates/limiter/src/decide/limiter.rs",
                misuse,
            );
        }
        let by_limit = "fn new(l: &Limit) -> Self { Self(counter!(\"tollgate_x_total\", \"limit\" => l.name.to_string())) }";
        assert_passes(
            labels_are_few,
            "crates/limiter/src/decide/limiter.rs",
            by_limit,
        );
    }
}

//! The limits that strategies add to the list of a route.

use std::collections::{HashMap, HashSet};

use super::part;
use crate::report::{Location, Report, ValueProblem, quote};
use crate::yaml::node::{NodeEntry, YamlNode, YamlValue};

/// Limits of a route at most, the file's own included.
const MOST_LIMITS: usize = 64;

/// The most that the limits of policies on one route may have in sum: each request is looked
/// through for all of it.
const MOST_WORK: [(usize, &str); 3] = [
    (128, "parts of keys"),
    (512, "exempt clients and header fields"),
    (16, "values of JSON responses"),
];

/// A limit of a resource, and where that is said.
pub type LimitReference = (String, Location);

/// The work that a request costs by one limit, in the order of [`MOST_WORK`].
#[derive(Clone, Copy, Default)]
pub struct LimitWork([usize; 3]);

impl LimitWork {
    /// The work of a limit as it is written, its plans included.
    pub fn new(limit: &YamlNode) -> Self {
        let YamlValue::Map(entries) = &limit.value else {
            return Self::default();
        };
        Self([
            leaves_at(entries, "key"),
            leaves_at(entries, "exempt"),
            values_of(limit, JSON_PATHS),
        ])
    }
}

/// The texts in the tree at `key`.
fn leaves_at(entries: &[NodeEntry], key: &str) -> usize {
    match part::entry(entries, key) {
        Some(entry) => leaves(&entry.value),
        None => 0,
    }
}

/// The key of a cost by values of JSON responses.
const JSON_PATHS: &str = "response_json";

/// The texts in a tree.
fn leaves(node: &YamlNode) -> usize {
    match &node.value {
        YamlValue::Scalar { .. } => 1,
        YamlValue::List(items) => items.iter().map(leaves).sum(),
        YamlValue::Map(entries) => entries.iter().map(|entry| leaves(&entry.value)).sum(),
        YamlValue::Unusable => 0,
    }
}

/// The texts below each `key` in a tree.
fn values_of(node: &YamlNode, key: &str) -> usize {
    match &node.value {
        YamlValue::List(items) => items.iter().map(|item| values_of(item, key)).sum(),
        YamlValue::Map(entries) => {
            let mut values = 0;
            for entry in entries {
                values += if entry.key == key {
                    leaves(&entry.value)
                } else {
                    values_of(&entry.value, key)
                };
            }
            values
        }
        YamlValue::Scalar { .. } | YamlValue::Unusable => 0,
    }
}

/// Reports that a route's limits of policies have more to look at than its requests can be.
pub fn check_work(
    route: &YamlNode,
    limits: [&[LimitReference]; 2],
    works: &HashMap<String, LimitWork>,
    report: &mut Report,
) {
    for (at, (most, what)) in MOST_WORK.into_iter().enumerate() {
        if let Some(location) = first_beyond(most, at, limits, works) {
            let name = part::name_of(route).map_or_else(String::new, quote);
            let problem = ValueProblem::new(format!(
                "the limits of policies on route {name} have more than {most} {what}"
            ));
            report.mistake(
                location,
                problem.hint(
                    "each of its requests is looked through for all of them: make do with fewer",
                ),
            );
        }
    }
}

/// The place of the first limit with which the work of the kind `at` is beyond the `most`.
fn first_beyond<'a>(
    most: usize,
    at: usize,
    limits: [&'a [LimitReference]; 2],
    works: &HashMap<String, LimitWork>,
) -> Option<&'a Location> {
    let mut sum = 0;
    let mut seen = HashSet::new();
    for (limit, location) in limits.into_iter().flatten() {
        if seen.insert(limit)
            && let Some(work) = works.get(limit)
        {
            sum += work.0[at];
            if sum > most {
                return Some(location);
            }
        }
    }
    None
}

/// Adds limits to the list of a route. A limit that it lists already is left out: two resources may
/// be one route.
pub fn add_references(route: &mut YamlNode, limits: &[LimitReference], report: &mut Report) {
    let limits = not_listed(route, limits);
    check_count(route, &limits, report);
    let location = route.location.clone();
    let YamlValue::Map(entries) = &mut route.value else {
        return;
    };
    if limits.is_empty() {
        return;
    }
    let at = match entries.iter().position(|entry| entry.key == "limits") {
        Some(at) if !entries[at].value.value.is_null() => at,
        found => {
            let at = found.unwrap_or(entries.len());
            let place = location.key("limits", location.position());
            let value = YamlNode {
                location: place.clone(),
                value: YamlValue::List(Vec::new()),
            };
            entries.splice(
                at..found.map_or(at, |at| at + 1),
                [NodeEntry {
                    key: "limits".to_owned(),
                    key_location: place,
                    value,
                }],
            );
            at
        }
    };
    let YamlValue::List(items) = &mut entries[at].value.value else {
        return;
    };
    for (name, location) in limits {
        items.push(part::text_node(name, location));
    }
}

/// The limits that a route lists.
fn listed(route: &YamlNode) -> &[YamlNode] {
    let YamlValue::Map(entries) = &route.value else {
        return &[];
    };
    match part::entry(entries, "limits").map(|entry| &entry.value.value) {
        Some(YamlValue::List(items)) => items,
        _ => &[],
    }
}

/// The `limits` that a route does not list, each once.
fn not_listed<'a>(route: &YamlNode, limits: &'a [LimitReference]) -> Vec<&'a LimitReference> {
    let mut known: HashSet<&str> = listed(route).iter().filter_map(part::text_of).collect();
    limits
        .iter()
        .filter(|(name, _)| known.insert(name))
        .collect()
}

/// Reports that a route has more limits, with the `added` ones, than its requests can be charged
/// to.
fn check_count(route: &YamlNode, added: &[&LimitReference], report: &mut Report) {
    let own = listed(route).len();
    if let Some((_, location)) = added.get(MOST_LIMITS.saturating_sub(own)) {
        let name = part::name_of(route).map_or_else(String::new, quote);
        let problem = ValueProblem::new(format!("route {name} has more than {MOST_LIMITS} limits"));
        report.mistake(
            location,
            problem.hint("each of its requests is charged to all of them: make do with fewer"),
        );
    }
}

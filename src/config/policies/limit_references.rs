//! The limits that strategies add to the list of a route.

use std::collections::HashSet;

use super::part;
use crate::config::report::{Location, Report, ValueProblem, quote};
use crate::config::yaml::node::{NodeEntry, YamlNode, YamlValue};

/// Limits of a route at most, the file's own included.
const MOST_LIMITS: usize = 64;

/// A limit of a resource, and where that is said.
pub type LimitReference = (String, Location);

/// Adds limits to those that a route lists. Those that it lists already are left out: two resources may be one route.
pub fn add_references(route: &mut YamlNode, limits: &[LimitReference], report: &mut Report) {
    check_count(route, limits, report);
    let location = route.location.clone();
    let YamlValue::Map(entries) = &mut route.value else { return };
    if limits.is_empty() {
        return;
    }
    let at = match entries.iter().position(|entry| entry.key == "limits") {
        Some(at) if !entries[at].value.value.is_null() => at,
        found => {
            let at = found.unwrap_or(entries.len());
            let place = location.key("limits", location.position());
            let value = YamlNode { location: place.clone(), value: YamlValue::List(Vec::new()) };
            entries.splice(
                at..found.map_or(at, |at| at + 1),
                [NodeEntry { key: "limits".to_owned(), key_location: place, value }],
            );
            at
        }
    };
    let YamlValue::List(items) = &mut entries[at].value.value else { return };
    let mut known: HashSet<String> = items.iter().filter_map(part::text_of).map(str::to_owned).collect();
    for (name, location) in limits {
        if known.insert(name.clone()) {
            let value = YamlValue::Scalar { text: name.clone(), plain: false };
            items.push(YamlNode { location: location.clone(), value });
        }
    }
}

/// Reports that a route has more limits than its requests can be charged to.
fn check_count(route: &YamlNode, limits: &[LimitReference], report: &mut Report) {
    let YamlValue::Map(entries) = &route.value else { return };
    let own = match part::entry(entries, "limits").map(|entry| &entry.value.value) {
        Some(YamlValue::List(items)) => items.len(),
        _ => 0,
    };
    if let Some((_, location)) = limits.get(MOST_LIMITS.saturating_sub(own)) {
        let name = part::name_of(route).map_or_else(String::new, quote);
        let problem = ValueProblem::new(format!("route {name} has more than {MOST_LIMITS} limits"));
        report.mistake(location, problem.hint("each of its requests is charged to all of them: make do with fewer"));
    }
}

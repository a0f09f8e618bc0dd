//! A part of a route: a copy whose match is narrower, under a name of its own.

use crate::config::check;
use crate::config::file::route::RawMatch;
use crate::config::report::{Location, Report, ValueProblem, quote};
use crate::config::yaml::decode::{Decode, Setting};
use crate::config::yaml::node::{NodeEntry, YamlNode, YamlValue};
use crate::route::Match;

use super::within::{WidenedCondition, widened};

/// The key of a route's conditions.
const MATCH: &str = "match";

/// The conditions that a route's tree has. `None`: they have a mistake, which the check of the file
/// reports.
pub fn match_of(route: &[NodeEntry]) -> Option<Match> {
    let node = entry(route, MATCH)
        .map(|entry| &entry.value)
        .filter(|node| !node.value.is_null());
    let mut unheard = Report::new("");
    let raw = match node {
        None => Setting::Absent,
        Some(node) => RawMatch::decode(node, &mut unheard).map_or(Setting::Invalid, Setting::Valid),
    };
    check::matches(&raw, &mut unheard)
}

/// Whether `part` has no condition.
pub fn is_whole(part: &YamlNode) -> bool {
    match &part.value {
        YamlValue::Map(entries) => entries.iter().all(|entry| entry.value.value.is_null()),
        value => value.is_null(),
    }
}

/// The route called `name` that takes those requests of `route` which `part` is for, and its match.
/// `None`: a mistake was reported.
pub fn of(
    (route, whole): (&YamlNode, &Match),
    part: &YamlNode,
    (name, at): (&str, &Location),
    report: &mut Report,
) -> Option<(YamlNode, Match)> {
    let YamlValue::Map(entries) = &route.value else {
        return None;
    };
    let own = entry(entries, MATCH).map(|entry| &entry.value);
    let joined = joined(own, part);
    let mut copy: Vec<NodeEntry> = entries
        .iter()
        .filter(|entry| entry.key != MATCH && entry.key != "name")
        .cloned()
        .collect();
    let named = YamlNode {
        location: at.clone(),
        value: YamlValue::Scalar {
            text: name.to_owned(),
            plain: false,
        },
    };
    copy.push(NodeEntry {
        key: "name".to_owned(),
        key_location: at.clone(),
        value: named,
    });
    copy.push(NodeEntry {
        key: MATCH.to_owned(),
        key_location: part.location.clone(),
        value: joined,
    });
    // A part with a mistake of its own is checked no further.
    let narrowed = match_of(&copy)?;
    if let Some(WidenedCondition {
        key,
        shown,
        of_route,
        hint,
    }) = widened(&narrowed, whole)
    {
        let location = match &part.value {
            YamlValue::Map(entries) => {
                entry(entries, key).map_or(&part.location, |entry| &entry.value.location)
            }
            _ => &part.location,
        };
        let of =
            entry(entries, "name").map_or_else(String::new, |entry| match &entry.value.value {
                YamlValue::Scalar { text, .. } => quote(text),
                _ => String::new(),
            });
        let problem = ValueProblem::new(format!(
            "{} is not within the {key} of route {of}: {}",
            quote(&shown),
            quote(&of_route)
        ));
        report.mistake(location, problem.hint(hint));
        return None;
    }
    // Not at the route's line, where another route begins.
    Some((
        YamlNode {
            location: at.clone(),
            value: YamlValue::Map(copy),
        },
        narrowed,
    ))
}

/// The conditions of a route with those of a part in their place; header conditions are added.
fn joined(own: Option<&YamlNode>, part: &YamlNode) -> YamlNode {
    let YamlValue::Map(given) = &part.value else {
        return part.clone();
    };
    let mut given: Vec<NodeEntry> = given
        .iter()
        .filter(|entry| !entry.value.value.is_null())
        .cloned()
        .collect();
    let own = match own.map(|own| &own.value) {
        Some(YamlValue::Map(own)) => own.as_slice(),
        _ => &[],
    };
    for inherited in own {
        match given.iter_mut().find(|entry| entry.key == inherited.key) {
            None => given.push(inherited.clone()),
            Some(NodeEntry {
                key,
                value:
                    YamlNode {
                        value: YamlValue::Map(headers),
                        ..
                    },
                ..
            }) if key == "headers" => {
                let YamlValue::Map(more) = &inherited.value.value else {
                    continue;
                };
                let absent = |other: &&NodeEntry| {
                    !headers
                        .iter()
                        .any(|own| own.key.eq_ignore_ascii_case(&other.key))
                };
                let more: Vec<NodeEntry> = more.iter().filter(absent).cloned().collect();
                headers.extend(more);
            }
            Some(_) => {}
        }
    }
    YamlNode {
        location: part.location.clone(),
        value: YamlValue::Map(given),
    }
}

/// Pairs of a host and a path that `part` of the route `whole` takes: what it leaves out is the
/// route's.
pub fn pairs(part: &YamlNode, whole: &Match) -> usize {
    let YamlValue::Map(entries) = &part.value else {
        return 0;
    };
    let listed = |key, inherited| match entry(entries, key).map(|entry| &entry.value.value) {
        None => inherited,
        Some(value) if value.is_null() => inherited,
        Some(YamlValue::List(items)) => items.len(),
        Some(_) => 1,
    };
    listed("host", whole.hosts.len()).saturating_mul(listed("path", whole.paths.len()))
}

/// The entry of `key`.
pub fn entry<'a>(entries: &'a [NodeEntry], key: &str) -> Option<&'a NodeEntry> {
    entries.iter().find(|entry| entry.key == key)
}

/// The name of a route.
pub fn name_of(route: &YamlNode) -> Option<&str> {
    let YamlValue::Map(entries) = &route.value else {
        return None;
    };
    text_of(&entry(entries, "name")?.value)
}

/// A text, or that of the limit that a list has with a cost.
pub fn text_of(node: &YamlNode) -> Option<&str> {
    match &node.value {
        YamlValue::Scalar { text, .. } => Some(text),
        YamlValue::Map(entries) => match &entry(entries, "limit")?.value.value {
            YamlValue::Scalar { text, .. } => Some(text),
            _ => None,
        },
        _ => None,
    }
}

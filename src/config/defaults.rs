//! `defaults`: what routes, limits and upstreams have that do not say otherwise.
//!
//! Works on the tree, so that a mistake in a default is found where it stands, and every key can have one. A key that an
//! item has itself wins, also without a value.

use super::file::defaults::{DefaultedRecord, RawDefaults, default_keys};
use super::file::limit::RawLimit;
use super::file::route::RawRoute;
use super::file::upstream::RawUpstream;
use super::report::{Report, ValueProblem};
use super::yaml::decode::Decode;
use super::yaml::node::{NodeEntry, YamlNode, YamlValue};

/// Values that are copied at most: long lists for thousands of routes would fill all memory.
const MOST_COPIED: usize = 1_000_000;

/// Completes the items of each section with its defaults.
pub fn apply(root: &mut YamlNode, report: &mut Report) {
    let YamlValue::Map(sections) = &mut root.value else { return };
    let Some(at) = sections.iter().position(|section| section.key == "defaults") else { return };
    let node = sections.remove(at).value;
    let Some(raw) = (!node.value.is_null()).then(|| RawDefaults::decode(&node, report)).flatten() else { return };
    let of_section = [
        (RawRoute::SECTION, raw.routes.is_present(), default_keys::<RawRoute>()),
        (RawLimit::SECTION, raw.limits.is_present(), default_keys::<RawLimit>()),
        (RawUpstream::SECTION, raw.upstreams.is_present(), default_keys::<RawUpstream>()),
    ];
    let YamlValue::Map(defaults) = node.value else { return };
    for NodeEntry { key, value, .. } in defaults {
        let Some((_, _, keys)) = of_section.iter().find(|(section, given, _)| *section == key && *given) else {
            continue;
        };
        let YamlValue::Map(mut given) = value.value else { continue };
        given.retain(|entry| keys.contains(&entry.key.as_str()) && !entry.value.value.is_null());
        let Some(section) = sections.iter_mut().find(|section| section.key == key) else { continue };
        let mut items = items(&mut section.value.value);
        let size: usize = given.iter().map(|entry| entry.value.size()).sum();
        if size.saturating_mul(items.len()) > MOST_COPIED {
            let problem =
                ValueProblem::new(format!("these defaults of {} {key} are over {MOST_COPIED} values", items.len()));
            report.mistake(&value.location, problem.hint("shorten them"));
            continue;
        }
        items.iter_mut().for_each(|item| complete(item, &given));
    }
}

fn items(section: &mut YamlValue) -> Vec<&mut YamlNode> {
    match section {
        YamlValue::List(items) => items.iter_mut().collect(),
        YamlValue::Map(members) => members.iter_mut().map(|member| &mut member.value).collect(),
        YamlValue::Scalar { .. } | YamlValue::Unusable => Vec::new(),
    }
}

/// Adds the defaults that `item` does not have. They keep their places: a mistake in one is told once.
fn complete(item: &mut YamlNode, given: &[NodeEntry]) {
    let YamlValue::Map(entries) = &mut item.value else { return };
    let absent = |entry: &&NodeEntry| !entries.iter().any(|own| own.key == entry.key);
    let missing: Vec<NodeEntry> = given.iter().filter(absent).cloned().collect();
    entries.extend(missing);
}

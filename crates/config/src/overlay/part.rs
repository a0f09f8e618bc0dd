//! A part of a route: a copy whose match is narrower, under a name of its own. It takes only
//! requests that its route takes.

use crate::report::{Location, Report, ValueProblem, quote};
use crate::section::route::matching::conditions::{RawMatch, matches};
use crate::yaml::decode::{Decode, Setting};
use crate::yaml::node::{NodeEntry, YamlNode, YamlValue};
use tollgate_spec::route::{HeaderMatch, HostMatch, Match, PathMatch, Segment};

/// The key of a route's conditions.
const MATCH: &str = "match";

/// The conditions that a route's tree has. `None`: they have a mistake, which the check of the file
/// reports.
pub fn match_of(route: &[NodeEntry]) -> Option<Match> {
    let mut unheard = Report::new("");
    let raw = match entry(route, MATCH) {
        Some(NodeEntry { value: node, .. }) if !node.value.is_null() => {
            match RawMatch::decode(node, &mut unheard) {
                Some(raw) => Setting::Valid(raw),
                None => Setting::Invalid,
            }
        }
        Some(_) | None => Setting::Absent,
    };
    matches(&raw, &mut unheard)
}

/// Whether `part` has no condition.
pub fn is_whole(part: &YamlNode) -> bool {
    match &part.value {
        YamlValue::Map(entries) => entries.iter().all(|entry| entry.value.value.is_null()),
        value => value.is_null(),
    }
}

/// A part of a route, as it is written.
pub struct PartSpec<'a> {
    /// The name of the route that it becomes.
    pub name: String,
    pub at: &'a Location,
    pub conditions: &'a YamlNode,
}

/// The route that takes the requests of `route` which a part is for, and its match. `None`: a
/// mistake was reported.
pub fn of(
    route: &YamlNode,
    whole: &Match,
    spec: &PartSpec<'_>,
    report: &mut Report,
) -> Option<(YamlNode, Match)> {
    let at = spec.at;
    let part = spec.conditions;
    let YamlValue::Map(entries) = &route.value else {
        return None;
    };
    let mut copy = Vec::new();
    let mut own = None;
    for entry in entries {
        match entry.key.as_str() {
            MATCH => own = Some(&entry.value),
            "name" => {}
            _ => copy.push(entry.clone()),
        }
    }
    copy.push(NodeEntry {
        key: "name".to_owned(),
        key_location: at.clone(),
        value: text_node(&spec.name, at),
    });
    copy.push(NodeEntry {
        key: MATCH.to_owned(),
        key_location: part.location.clone(),
        value: joined(own, part),
    });
    // A part with a mistake of its own is checked no further.
    let narrowed = match_of(&copy)?;
    if let Some(widened) = widened(&narrowed, whole) {
        widened.report(route, part, report);
        return None;
    }
    // The location is the part's: another route begins at the route's line.
    let narrow = YamlNode {
        location: at.clone(),
        value: YamlValue::Map(copy),
    };
    Some((narrow, narrowed))
}

/// A text that is written at `location`.
pub fn text_node(text: &str, location: &Location) -> YamlNode {
    YamlNode {
        location: location.clone(),
        value: YamlValue::Scalar {
            text: text.to_owned(),
            plain: false,
        },
    }
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
    if let Some(own) = own
        && let YamlValue::Map(own) = &own.value
    {
        for inherited in own {
            match given.iter_mut().find(|entry| entry.key == inherited.key) {
                None => given.push(inherited.clone()),
                Some(entry) if entry.key == "headers" => {
                    add_headers(&mut entry.value, &inherited.value);
                }
                Some(_) => {}
            }
        }
    }
    YamlNode {
        location: part.location.clone(),
        value: YamlValue::Map(given),
    }
}

/// Adds the `inherited` header conditions whose names a part does not give.
fn add_headers(headers: &mut YamlNode, inherited: &YamlNode) {
    let (YamlValue::Map(headers), YamlValue::Map(inherited)) =
        (&mut headers.value, &inherited.value)
    else {
        return;
    };
    let given = headers.len();
    for header in inherited {
        let mut names = headers[..given].iter().map(|header| &header.key);
        if !names.any(|name| name.eq_ignore_ascii_case(&header.key)) {
            headers.push(header.clone());
        }
    }
}

/// Pairs of a host and a path that `part` of the route `whole` takes: what it leaves out is the
/// route's.
pub fn pairs(part: &YamlNode, whole: &Match) -> usize {
    let YamlValue::Map(entries) = &part.value else {
        return 0;
    };
    let hosts = listed(entries, "host", whole.hosts.len());
    hosts.saturating_mul(listed(entries, "path", whole.paths.len()))
}

/// How many conditions a part lists under `key`: without any, those `inherited` from its route.
fn listed(entries: &[NodeEntry], key: &str, inherited: usize) -> usize {
    let Some(entry) = entry(entries, key) else {
        return inherited;
    };
    match &entry.value.value {
        YamlValue::List(items) => items.len(),
        value if value.is_null() => inherited,
        _ => 1,
    }
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

/// The first of a part's conditions that is not within those of its route.
pub struct WidenedCondition {
    /// The key of the match.
    pub key: &'static str,
    /// The condition, for messages.
    pub shown: String,
    /// The route's conditions, for messages.
    pub of_route: String,
    /// The remedy.
    pub hint: &'static str,
}

impl WidenedCondition {
    /// Reports the condition of a `part` where that is written.
    fn report(&self, route: &YamlNode, part: &YamlNode, report: &mut Report) {
        let mut location = &part.location;
        if let YamlValue::Map(entries) = &part.value
            && let Some(entry) = entry(entries, self.key)
        {
            location = &entry.value.location;
        }
        let route = name_of(route).map_or_else(String::new, quote);
        let problem = ValueProblem::new(format!(
            "{} is not within the {} of route {route}: {}",
            quote(&self.shown),
            self.key,
            quote(&self.of_route)
        ));
        report.mistake(location, problem.hint(self.hint));
    }
}

const NARROW_IT: &str = "a resource is a part of its route: narrow it, or name another route";
const KEEP_THE_NAMES: &str =
    "give its parameters the names that they have in the route, each at its place";

/// The first condition of `part` that lets it take requests that `whole` does not take.
pub fn widened(part: &Match, whole: &Match) -> Option<WidenedCondition> {
    for host in &part.hosts {
        if !whole.hosts.iter().any(|other| host.is_within(other)) {
            let of_route = in_one_line(whole.hosts.iter().map(show_host));
            return Some(condition("host", show_host(host), of_route));
        }
    }
    for path in &part.paths {
        if !whole.paths.iter().any(|other| path.is_within(other)) {
            let of_route = in_one_line(whole.paths.iter().map(PathMatch::to_string));
            return Some(condition("path", path.to_string(), of_route));
        }
    }
    // Limits, rewrites and fields of the route go by the names.
    for path in &part.paths {
        let mut covering = whole.paths.iter().filter(|other| path.is_within(other));
        if !covering.any(|other| names_within(path, other)) {
            let of_route = in_one_line(whole.paths.iter().map(PathMatch::to_string));
            return Some(WidenedCondition {
                hint: KEEP_THE_NAMES,
                ..condition("path", path.to_string(), of_route)
            });
        }
    }
    widened_methods(part, whole).or_else(|| widened_headers(part, whole))
}

fn widened_methods(part: &Match, whole: &Match) -> Option<WidenedCondition> {
    if whole.methods.is_empty() {
        return None;
    }
    let mut methods = part.methods.iter();
    let shown = if part.methods.is_empty() {
        "any".to_owned()
    } else {
        methods
            .find(|method| !whole.methods.contains(method))?
            .to_string()
    };
    let of_route = in_one_line(whole.methods.iter().map(ToString::to_string));
    Some(condition("methods", shown, of_route))
}

fn widened_headers(part: &Match, whole: &Match) -> Option<WidenedCondition> {
    let mut headers = whole.headers.iter();
    let lost = headers.find(|header| !demands(part, header))?;
    // The route's value may be a secret, and is the file's.
    let value = if lost.value.is_some() {
        "a certain value"
    } else {
        "any value"
    };
    let shown = match part.headers.iter().find(|own| own.name == lost.name) {
        Some(own) => show_header(own),
        None => lost.name.to_string(),
    };
    Some(condition(
        "headers",
        shown,
        format!("{}: {value}", lost.name),
    ))
}

/// Whether `part` takes only requests with the `header`.
fn demands(part: &Match, header: &HeaderMatch) -> bool {
    for own in &part.headers {
        if own.name == header.name && (header.value.is_none() || own.value == header.value) {
            return true;
        }
    }
    false
}

fn condition(key: &'static str, shown: String, of_route: String) -> WidenedCondition {
    WidenedCondition {
        key,
        shown,
        of_route,
        hint: NARROW_IT,
    }
}

fn in_one_line(conditions: impl Iterator<Item = String>) -> String {
    conditions.collect::<Vec<_>>().join(", ")
}

/// Whether each parameter of the part that is called like a parameter of the whole stands in its
/// place, and none there has another name.
fn names_within(part: &PathMatch, whole: &PathMatch) -> bool {
    let (PathMatch::Pattern(part), PathMatch::Pattern(whole)) = (part, whole) else {
        return true;
    };
    for (at, segment) in part.segments.iter().enumerate() {
        let Segment::Param(name) = segment else {
            continue;
        };
        let keeps_its_name = match whole.segments.get(at) {
            Some(Segment::Param(other)) => name == other,
            Some(Segment::Literal(_)) | None => !whole.segments.contains(segment),
        };
        if !keeps_its_name {
            return false;
        }
    }
    true
}

fn show_host(host: &HostMatch) -> String {
    match host {
        HostMatch::Any => "any".to_owned(),
        HostMatch::Exact(host) => host.to_string(),
        HostMatch::Suffix(suffix) => format!("*{suffix}"),
    }
}

fn show_header(header: &HeaderMatch) -> String {
    match &header.value {
        Some(value) => {
            let value = String::from_utf8_lossy(value.as_bytes());
            format!("{}: {value}", header.name)
        }
        None => format!("{}: any", header.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_spec::route::PathPattern;

    fn pattern(text: &str) -> PathMatch {
        let (text, rest) = match text.strip_suffix("/*") {
            Some(text) => (text, true),
            None => (text, false),
        };
        let mut segments = Vec::new();
        for segment in text.split('/').skip(1) {
            segments.push(match segment.strip_prefix('{') {
                Some(name) => Segment::Param(name.trim_end_matches('}').into()),
                None => Segment::Literal(segment.into()),
            });
        }
        PathMatch::Pattern(PathPattern { segments, rest })
    }

    fn matches(path: &str) -> Match {
        Match {
            hosts: Vec::new(),
            paths: vec![pattern(path)],
            methods: Vec::new(),
            headers: Vec::new(),
        }
    }

    #[test]
    fn a_part_keeps_the_names_of_its_routes_parameters() {
        for (part, whole) in [
            ("/orders/{tenant}/{id}", "/orders/{tenant}/{id}"),
            ("/orders/{tenant}/7", "/orders/{tenant}/{id}"),
            ("/orders/{tenant}/{id}/{item}", "/orders/{tenant}/{id}/*"),
            ("/orders/{any}/*", "/orders/*"),
        ] {
            assert!(
                names_within(&pattern(part), &pattern(whole)),
                "{part} {whole}"
            );
        }
        for (part, whole) in [
            ("/orders/{id}/{tenant}", "/orders/{tenant}/{id}"),
            ("/orders/{x}/{id}", "/orders/{tenant}/{id}"),
            ("/orders/a/{tenant}", "/orders/{tenant}/*"),
        ] {
            assert!(pattern(part).is_within(&pattern(whole)), "{part} {whole}");
            let widened = widened(&matches(part), &matches(whole)).unwrap();
            assert_eq!(
                (widened.key, widened.hint),
                ("path", KEEP_THE_NAMES),
                "{part} {whole}"
            );
        }
    }
}

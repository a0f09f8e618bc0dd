//! Whether a part of a route is within it: it takes only requests that its route takes.

use crate::report::{Report, ValueProblem, quote};
use crate::section::policies::document::RawPart;
use tollgate_spec::route::{HeaderMatch, HostMatch, Match, PathMatch, Segment};

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
    /// Reports the condition of a part of `route` where that is written.
    pub fn report(&self, route: &str, part: &RawPart, report: &mut Report) {
        let problem = ValueProblem::new(format!(
            "{} is not within the {} of route {}: {}",
            quote(&self.shown),
            self.key,
            quote(route),
            quote(&self.of_route)
        ));
        report.mistake(part.location_of(self.key), problem.hint(self.hint));
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
    use crate::section::route::matching::conditions;
    use crate::yaml::decode::{Decode, Setting};
    use crate::yaml::parse;
    use std::sync::Arc;
    use tollgate_spec::route::table::overlap::MatchIndex;
    use tollgate_spec::route::{Action, PathPattern, Route};

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

    fn written(text: &str) -> Match {
        let mut report = Report::new("test");
        let tree = parse::tree(&report.file(), text, &mut report).unwrap();
        let raw = Setting::Valid(Decode::decode(&tree, &mut report).unwrap());
        conditions::matches(&raw, &mut report).unwrap()
    }

    /// The route that a part of the first would rob.
    fn robbed(part: &str, matches: &[&str]) -> Option<usize> {
        let routes = matches.iter().map(|text| route(text, &[])).collect();
        MatchIndex::new(routes).robbed(&written(part), 0)
    }

    fn route(text: &str, listeners: &[&str]) -> Arc<Route> {
        let action = Action::Echo;
        let mut route = Route::new("r".into(), written(text), action);
        for name in listeners {
            route.listeners.push((*name).into());
        }
        Arc::new(route)
    }

    /// Among routes alike, those that list their listeners go first.
    #[test]
    fn a_part_takes_nothing_from_a_route_that_every_listener_serves() {
        for (listeners, of_other, expected) in [
            (["internal"].as_slice(), [].as_slice(), Some(0)),
            (&["internal"], &["internal"], None),
            (&["internal"], &["public"], None),
            (&[], &["internal"], None),
        ] {
            let routes = vec![
                route("{path: /pay}", of_other),
                route("{path: /*}", listeners),
            ];
            let robbed = MatchIndex::new(routes).robbed(&written("{path: /pay}"), 1);
            assert_eq!(robbed, expected, "{listeners:?} {of_other:?}");
        }
        // Other listeners serve the other route.
        for (of_other, expected) in [("internal", Some(1)), ("public", None)] {
            let routes = vec![
                route("{path: /*}", &["internal"]),
                route("{path: /pay/*}", &[of_other]),
            ];
            let robbed = MatchIndex::new(routes).robbed(&written("{path: /pay/x}"), 0);
            assert_eq!(robbed, expected, "{of_other}");
        }
    }

    #[test]
    fn a_part_takes_nothing_from_a_route_that_goes_before_its_own() {
        for (part, whole, other) in [
            (
                "{path: /pay/x, methods: [POST]}",
                "{path: /*}",
                "{path: /pay/x}",
            ),
            ("{path: /pay/x}", "{path: /*}", "{path: /pay/*}"),
            ("{path: \"/pay/{a}\"}", "{path: /*}", "{path: /pay/*}"),
            ("{path: /pay/x}", "{path: /*}", "{path: \"/{any}/x\"}"),
            (
                "{path: /*, host: a.example.com}",
                "{path: /*}",
                "{path: /*, host: \"*.example.com\"}",
            ),
            (
                "{path: /a, headers: {x: \"1\", y: \"2\"}}",
                "{path: /a}",
                "{path: /a, headers: {x: \"1\"}}",
            ),
            (
                "{path: /v1/pay}",
                "{path: /*}",
                "{path: {regex: \"^/v[0-9]+/\"}}",
            ),
            (
                "{path: \"/v1/{what}\"}",
                "{path: /*}",
                "{path: {regex: \"^/v[0-9]+/\"}}",
            ),
            (
                "{path: \"/v1/{what}\"}",
                "{path: /*}",
                "{path: {regex: pay$}}",
            ),
            (
                "{path: {regex: \"^/a\"}}",
                "{path: /*}",
                "{path: {regex: \"^/ab\"}}",
            ),
        ] {
            assert_eq!(
                robbed(part, &[whole, other]),
                Some(1),
                "{part} of {whole} beside {other}"
            );
        }
    }

    #[test]
    fn a_part_has_what_its_route_has_now() {
        for (part, whole, other) in [
            ("{path: /shop/x}", "{path: /*}", "{path: /pay/*}"),
            (
                "{path: /pay/x, methods: [GET]}",
                "{path: /*}",
                "{path: /pay/*, methods: [POST]}",
            ),
            ("{path: /pay/x}", "{path: /pay/*}", "{path: /*}"),
            ("{path: /pay/x}", "{path: /pay/*}", "{path: /pay/y}"),
            (
                "{path: /a, host: a.org}",
                "{path: /*}",
                "{path: /a, host: b.org}",
            ),
            (
                "{path: /a/b, headers: {x: \"1\"}}",
                "{path: /a/*}",
                "{path: /a/b, headers: {x: \"2\", y: z}}",
            ),
            (
                "{path: /x/pay}",
                "{path: /*}",
                "{path: {regex: \"^/v[0-9]+/\"}}",
            ),
            (
                "{path: \"/orders/{id}\"}",
                "{path: /orders/*}",
                "{path: {regex: \"^/v[0-9]+/\"}}",
            ),
            (
                "{path: \"/v1/{what}\"}",
                "{path: \"/v1/{what}\"}",
                "{path: {regex: \"^/v[0-9]+/\"}}",
            ),
            (
                "{path: {regex: \"^/a\"}, methods: [GET]}",
                "{path: {regex: \"^/a\"}}",
                "{path: {regex: \"^/ab\"}}",
            ),
        ] {
            assert_eq!(
                robbed(part, &[whole, other]),
                None,
                "{part} of {whole} beside {other}"
            );
        }
    }

    /// A request may have a line of a field for each of two routes.
    #[test]
    fn a_part_by_another_value_of_a_field_takes_nothing_from_a_route_behind_its_own() {
        let part = "{path: /pay, headers: {x-tenant: shop}}";
        for other in [
            "{path: /pay, headers: {x-tenant: bank}}",
            "{path: /pay/*, headers: {x-tenant: bank}}",
            "{path: /pay, headers: {x-tenant: bank}, methods: [GET]}",
        ] {
            let expected = if other.contains("methods") {
                None
            } else {
                Some(1)
            };
            assert_eq!(robbed(part, &["{path: /*}", other]), expected, "{other}");
        }
        let routes = ["{path: /pay, headers: {x-tenant: bank}}", "{path: /*}"];
        let first = MatchIndex::new(routes.map(|text| route(text, &[])).to_vec());
        assert_eq!(
            first.robbed(&written(part), 1),
            None,
            "the first of the file goes first"
        );
    }
}

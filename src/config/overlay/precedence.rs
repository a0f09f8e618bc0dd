//! Whether a part of a route would take requests that the file gives to another route.
//!
//! A part is narrower than its route, so it may go before a route that goes before its own: its
//! requests would lose that route's limits, authentication and upstream.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::part;
use super::within::{host_within, path_within};
use crate::config::yaml::node::{YamlNode, YamlValue};
use crate::route::expression::PathExpression;
use crate::route::{HostMatch, Match, PathMatch, PathPattern, Segment};

/// The routes of the file with what each takes, by their places in it.
pub struct FileRoutes {
    names: Vec<String>,
    matches: Vec<Option<Match>>,
    paths: PathTree,
    /// Those with an expression among their paths.
    expressions: Vec<usize>,
}

/// Routes by the segments of their patterns.
#[derive(Default)]
struct PathTree {
    literals: HashMap<String, PathTree>,
    param: Option<Box<PathTree>>,
    /// Those whose patterns end here.
    routes: Vec<usize>,
}

/// A host and a path of a route.
type Way<'a> = (&'a HostMatch, &'a PathMatch);

impl FileRoutes {
    pub fn of(routes: &[YamlNode]) -> Self {
        let matches = |route: &YamlNode| match &route.value {
            YamlValue::Map(entries) => part::match_of(entries),
            _ => None,
        };
        let mut all = Self {
            names: routes
                .iter()
                .map(|route| part::name_of(route).unwrap_or_default().to_owned())
                .collect(),
            matches: routes.iter().map(matches).collect(),
            paths: PathTree::default(),
            expressions: Vec::new(),
        };
        for (at, matches) in all.matches.iter().enumerate() {
            for path in matches.iter().flat_map(|matches| &matches.paths) {
                match path {
                    PathMatch::Pattern(pattern) => all.paths.insert(pattern, at),
                    PathMatch::Expression(_) => all.expressions.push(at),
                }
            }
        }
        all
    }

    /// The requests that the route takes.
    pub fn matches(&self, route: usize) -> Option<&Match> {
        self.matches.get(route)?.as_ref()
    }

    /// The name of a route that has requests now which `part` of the route `whole` would take.
    pub fn robbed(&self, part: &Match, whole: usize) -> Option<&str> {
        let whole_matches = self.matches(whole)?;
        let mut candidates = self.expressions.clone();
        for path in &part.paths {
            match path {
                PathMatch::Pattern(pattern) => {
                    self.paths
                        .collect(&pattern.segments, pattern.rest, &mut candidates)
                }
                PathMatch::Expression(_) => candidates.extend(0..self.matches.len()),
            }
        }
        candidates.sort_unstable();
        candidates.dedup();
        let robs = |other: &usize| {
            self.matches(*other)
                .is_some_and(|matches| takes_from(part, (whole_matches, whole), (matches, *other)))
        };
        let found = candidates
            .into_iter()
            .filter(|other| *other != whole)
            .find(robs)?;
        self.names.get(found).map(String::as_str)
    }
}

impl PathTree {
    fn insert(&mut self, pattern: &PathPattern, route: usize) {
        let mut node = self;
        for segment in &pattern.segments {
            node = match segment {
                Segment::Literal(text) => node.literals.entry(text.to_string()).or_default(),
                Segment::Param(_) => node.param.get_or_insert_default(),
            };
        }
        node.routes.push(route);
    }

    /// Adds routes whose patterns may take a path that this one takes, and perhaps others.
    fn collect(&self, segments: &[Segment], rest: bool, found: &mut Vec<usize>) {
        found.extend(&self.routes);
        let literals = |found: &mut Vec<usize>, below: &[Segment]| {
            self.literals
                .values()
                .for_each(|node| node.collect(below, rest, found));
        };
        let below = match segments.split_first() {
            None if rest => {
                literals(found, &[]);
                &[]
            }
            None => return,
            Some((Segment::Literal(text), below)) => {
                if let Some(node) = self.literals.get(&**text) {
                    node.collect(below, rest, found);
                }
                below
            }
            Some((Segment::Param(_), below)) => {
                literals(found, below);
                below
            }
        };
        if let Some(node) = &self.param {
            node.collect(below, rest, found);
        }
    }
}

/// Whether there may be a request of `other` that goes before `whole`, and behind `part` of that.
fn takes_from(
    part: &Match,
    (whole, at): (&Match, usize),
    (other, other_at): (&Match, usize),
) -> bool {
    let methods = part.methods.is_empty()
        || other.methods.is_empty()
        || part
            .methods
            .iter()
            .any(|method| other.methods.contains(method));
    let disjoint = part.headers.iter().any(|x| {
        other.headers.iter().any(|y| {
            x.name == y.name && matches!((&x.value, &y.value), (Some(x), Some(y)) if x != y)
        })
    });
    if !methods || disjoint {
        return false;
    }
    ways(part).any(|way| {
        ways(other)
            .filter(|theirs| overlap(way, *theirs))
            .any(|theirs| {
                let covers = |own: &Way<'_>| host_within(way.0, own.0) && path_within(way.1, own.1);
                let goes_first =
                    |matches, own| precedes((matches, own, at), (other, theirs, other_at));
                goes_first(part, way)
                    && !ways(whole).filter(covers).any(|own| goes_first(whole, own))
            })
    })
}

fn ways(matches: &Match) -> impl Iterator<Item = Way<'_>> {
    matches
        .hosts
        .iter()
        .flat_map(|host| matches.paths.iter().map(move |path| (host, path)))
}

/// Whether the first goes before the second where both take a request: the order of the route
/// table. A part stands where its route does.
fn precedes(
    (a, (host, path), at): (&Match, Way<'_>, usize),
    (b, (other_host, other_path), other_at): (&Match, Way<'_>, usize),
) -> bool {
    let by_path = || match (path, other_path) {
        (PathMatch::Pattern(own), PathMatch::Pattern(other)) => {
            compare(own, other).then_with(|| {
                let rank = |matches: &Match| (matches.headers.len(), !matches.methods.is_empty());
                rank(a).cmp(&rank(b))
            })
        }
        (PathMatch::Pattern(own), PathMatch::Expression(_)) => (!own.rest).cmp(&own.rest),
        (PathMatch::Expression(_), PathMatch::Pattern(other)) => other.rest.cmp(&!other.rest),
        (PathMatch::Expression(_), PathMatch::Expression(_)) => other_at.cmp(&at),
    };
    host_rank(host)
        .cmp(&host_rank(other_host))
        .then_with(by_path)
        == Ordering::Greater
}

fn host_rank(host: &HostMatch) -> (u8, usize) {
    match host {
        HostMatch::Any => (0, 0),
        HostMatch::Suffix(suffix) => (1, suffix.len()),
        HostMatch::Exact(_) => (2, 0),
    }
}

/// Of two patterns that take one path, the greater goes first.
fn compare(a: &PathPattern, b: &PathPattern) -> Ordering {
    let is_literal = |segment: &Segment| matches!(segment, Segment::Literal(_));
    let segments = a
        .segments
        .iter()
        .map(is_literal)
        .zip(b.segments.iter().map(is_literal));
    let differing = segments
        .map(|(own, other)| own.cmp(&other))
        .find(|order| order.is_ne());
    let length = || {
        a.segments
            .len()
            .cmp(&b.segments.len())
            .then_with(|| b.rest.cmp(&a.rest))
    };
    differing.unwrap_or_else(length)
}

/// Whether a request may be one of both. Of an expression and a pattern with parameters that cannot
/// always be told.
fn overlap((host, path): Way<'_>, (other_host, other_path): Way<'_>) -> bool {
    (host_within(host, other_host) || host_within(other_host, host))
        && match (path, other_path) {
            (PathMatch::Pattern(a), PathMatch::Pattern(b)) => patterns_overlap(a, b),
            (PathMatch::Expression(expression), PathMatch::Pattern(pattern))
            | (PathMatch::Pattern(pattern), PathMatch::Expression(expression)) => {
                may_take(expression, pattern)
            }
            (PathMatch::Expression(a), PathMatch::Expression(b)) => {
                let (a, b) = (literal_start(a), literal_start(b));
                a.starts_with(b) || b.starts_with(a)
            }
        }
}

fn patterns_overlap(a: &PathPattern, b: &PathPattern) -> bool {
    let fits = |(own, other): (&Segment, &Segment)| match (own, other) {
        (Segment::Literal(own), Segment::Literal(other)) => own == other,
        (Segment::Literal(text), Segment::Param(_))
        | (Segment::Param(_), Segment::Literal(text)) => !text.is_empty(),
        (Segment::Param(_), Segment::Param(_)) => true,
    };
    let length = match a.segments.len().cmp(&b.segments.len()) {
        Ordering::Less => a.rest,
        Ordering::Equal => true,
        Ordering::Greater => b.rest,
    };
    length && a.segments.iter().zip(&b.segments).all(fits)
}

fn may_take(expression: &PathExpression, pattern: &PathPattern) -> bool {
    let literals = pattern.segments.iter().map_while(|segment| match segment {
        Segment::Literal(text) => Some(&**text),
        Segment::Param(_) => None,
    });
    let start: String = literals.flat_map(|text| ["/", text]).collect();
    if !pattern.rest
        && pattern
            .segments
            .iter()
            .all(|segment| matches!(segment, Segment::Literal(_)))
    {
        let path = if start.is_empty() { "/" } else { &start };
        return expression.takes(path);
    }
    let fixed = literal_start(expression);
    fixed.starts_with(&start) || start.starts_with(fixed)
}

/// The text that each path begins with which the expression takes, as far as it is easily told.
fn literal_start(expression: &PathExpression) -> &str {
    let text = expression.text();
    // Flags may change what letters mean, and `|` has another start behind it.
    let has_flags = text
        .match_indices("(?")
        .any(|(at, _)| !text[at + 2..].starts_with([':', '<', 'P']));
    let Some(text) = text
        .strip_prefix('^')
        .filter(|text| !has_flags && !text.contains('|'))
    else {
        return "";
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_');
    let end = text.find(|c| !is_plain(c)).unwrap_or(text.len());
    // The last one may be repeated, or be absent.
    let is_counted = text[end..].starts_with(['?', '*', '{', '+']);
    &text[..end.saturating_sub(usize::from(is_counted))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::report::Report;
    use crate::config::yaml::parse;

    /// The routes of a list of matches.
    fn routes(matches: &[&str]) -> FileRoutes {
        let each = matches.iter().enumerate();
        let text: String = each
            .map(|(at, one)| format!("- {{name: r{at}, match: {one}}}\n"))
            .collect();
        let mut report = Report::new("test");
        let tree = parse::tree(&report.file(), &text, &mut report).unwrap();
        let YamlValue::List(items) = tree.value else {
            panic!("no list")
        };
        FileRoutes::of(&items)
    }

    /// The route that a part of the first would rob.
    fn robbed(part: &str, matches: &[&str]) -> Option<String> {
        routes(matches)
            .robbed(routes(&[part]).matches(0).unwrap(), 0)
            .map(str::to_owned)
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
                robbed(part, &[whole, other]).as_deref(),
                Some("r1"),
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

    #[test]
    fn the_start_of_an_expression_is_told_where_it_is_plain() {
        for (text, start) in [
            ("^/v1/a$", "/v1/a"),
            ("^/ab?c", "/a"),
            ("^/a(?<id>[0-9])", "/a"),
            ("^/a.b", "/a"),
            ("/a", ""),
            ("^/a|^/b", ""),
            ("^(?i)/a", ""),
            ("^/a(?i)b", ""),
        ] {
            assert_eq!(
                literal_start(&PathExpression::compile(text).unwrap()),
                start,
                "{text}"
            );
        }
    }
}

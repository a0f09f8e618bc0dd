//! Pairs of routes that take the same requests, where nothing says which goes first.
//!
//! The order of precedence is host, path, number of header conditions, methods, listeners; of
//! expressions it is that of the file. Two routes are ambiguous when they are equal in all of these
//! and a request can meet the conditions of both. Other values of one header field are told apart
//! all the same: of a request that has a line for each, the file says which route goes first.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::report::{Location, Report, ValueProblem, quote};
use tollgate_spec::route::table::listeners::shares_listener;
use tollgate_spec::route::{HostMatch, Match, PathMatch, PathPattern, Route, Segment};

/// A route whose conditions are known.
pub struct MatchedRoute<'a> {
    /// `None`: its name has a mistake.
    pub name: Option<&'a str>,
    pub location: &'a Location,
    pub matches: &'a Match,
    /// The names of the listeners that serve it. Empty: all do.
    pub listeners: Vec<Arc<str>>,
}

impl<'a> MatchedRoute<'a> {
    pub fn new(route: &'a Route, location: &'a Location) -> Self {
        Self {
            name: Some(&route.name),
            location,
            matches: &route.matches,
            listeners: route.listeners.clone(),
        }
    }

    /// The route, for messages.
    fn show(&self) -> String {
        self.name.map_or_else(|| self.location.path(), quote)
    }
}

/// All that ranks a route. Neither the names of path parameters nor the values of its conditions
/// do.
#[derive(PartialEq, Eq, Hash)]
struct RouteRank<'a> {
    host: (u8, &'a str),
    segments: Vec<Option<&'a str>>,
    rest: bool,
    headers: usize,
    any_method: bool,
    any_listener: bool,
}

pub fn report_ambiguities(candidates: &[MatchedRoute<'_>], report: &mut Report) {
    let mut ranks: HashMap<RouteRank<'_>, Vec<&MatchedRoute<'_>>> = HashMap::new();
    for candidate in candidates {
        let mut reported = HashSet::new();
        for rank in all_ranks(candidate) {
            let equals = ranks.entry(rank).or_default();
            if let Some(first) = equals.iter().find(|other| overlap(other, candidate))
                && reported.insert(first.location.path())
            {
                report_pair(first, candidate, report);
            }
            equals.push(candidate);
        }
    }
}

/// The ranks of a route: one for each of its hosts and patterns.
fn all_ranks<'a>(route: &'a MatchedRoute<'_>) -> impl Iterator<Item = RouteRank<'a>> {
    let matches = route.matches;
    matches.hosts.iter().flat_map(move |host| {
        matches.paths.iter().filter_map(move |path| match path {
            PathMatch::Pattern(pattern) => Some(rank(host, pattern, route)),
            PathMatch::Expression(_) => None,
        })
    })
}

fn report_pair(first: &MatchedRoute<'_>, second: &MatchedRoute<'_>, report: &mut Report) {
    let line = first.location.line_beside(second.location);
    let problem = ValueProblem::new(format!(
        "routes {} ({line}) and {} take the same requests, and neither goes first",
        first.show(),
        second.show()
    ));
    report.mistake(
        second.location,
        problem.hint("change the host, path, methods or headers of one of them"),
    );
}

fn rank<'a>(
    host: &'a HostMatch,
    path: &'a PathPattern,
    route: &'a MatchedRoute<'_>,
) -> RouteRank<'a> {
    let PathPattern { segments, rest } = path;
    let matches = route.matches;
    RouteRank {
        host: match host {
            HostMatch::Any => (0, ""),
            HostMatch::Suffix(suffix) => (1, suffix),
            HostMatch::Exact(host) => (2, host),
        },
        segments: segments.iter().map(literal).collect(),
        rest: *rest,
        headers: matches.headers.len(),
        any_method: matches.methods.is_empty(),
        any_listener: route.listeners.is_empty(),
    }
}

fn literal(segment: &Segment) -> Option<&str> {
    match segment {
        Segment::Literal(literal) => Some(literal),
        Segment::Param(_) => None,
    }
}

/// Whether one request can meet the conditions of two routes of the same rank, with a header field
/// in one line alone.
fn overlap(one: &MatchedRoute<'_>, other: &MatchedRoute<'_>) -> bool {
    if !shares_listener(&one.listeners, &other.listeners) {
        return false;
    }
    let a = one.matches;
    let b = other.matches;
    let methods = a.methods.is_empty() || a.methods.iter().any(|method| b.methods.contains(method));
    let disjoint = a.headers.iter().any(|x| {
        b.headers.iter().any(|y| {
            x.name == y.name && matches!((&x.value, &y.value), (Some(x), Some(y)) if x != y)
        })
    });
    methods && !disjoint
}

//! Routes that take the same requests, where nothing says which goes first.
//!
//! The order of precedence is host, path, number of header conditions, methods. Two routes tie when they are equal in all
//! of these and a request can meet the conditions of both.

use std::collections::HashMap;

use crate::config::mistake::{Report, Trouble, quote};
use crate::config::raw;
use crate::route::{HostMatch, Match, PathPattern, Segment};

/// A route whose conditions are known.
pub(super) struct Candidate<'a> {
    pub raw: &'a raw::Route,
    pub matches: Match,
}

/// All that ranks a route, but for what its conditions say: the names of parameters do not tell paths apart.
#[derive(PartialEq, Eq, Hash)]
struct Rank<'a> {
    host: (u8, &'a str),
    segments: Vec<Option<&'a str>>,
    rest: bool,
    headers: usize,
    any_method: bool,
}

pub(super) fn report_ties(candidates: &[Candidate<'_>], report: &mut Report) {
    let mut ranks: HashMap<Rank<'_>, Vec<&Candidate<'_>>> = HashMap::new();
    for candidate in candidates {
        let equals = ranks.entry(rank(&candidate.matches)).or_default();
        if let Some(first) = equals.iter().find(|other| overlap(&other.matches, &candidate.matches)) {
            tie(first.raw, candidate.raw, report);
        }
        equals.push(candidate);
    }
}

fn tie(first: &raw::Route, second: &raw::Route, report: &mut Report) {
    let name = |route: &raw::Route| route.name.value().map_or_else(|| route.place.path(), |name| quote(&name.0));
    let line = first.place.line;
    let trouble = Trouble::new(format!(
        "routes {} (line {line}) and {} take the same requests, and neither goes first",
        name(first),
        name(second)
    ));
    report.mistake(&second.place, trouble.hint("change the host, path, methods or headers of one of them"));
}

fn rank(matches: &Match) -> Rank<'_> {
    let PathPattern { segments, rest } = &matches.path;
    Rank {
        host: match &matches.host {
            HostMatch::Any => (0, ""),
            HostMatch::Suffix(suffix) => (1, suffix),
            HostMatch::Exact(host) => (2, host),
        },
        segments: segments.iter().map(literal).collect(),
        rest: *rest,
        headers: matches.headers.len(),
        any_method: matches.methods.is_empty(),
    }
}

fn literal(segment: &Segment) -> Option<&str> {
    match segment {
        Segment::Literal(literal) => Some(literal),
        Segment::Param(_) => None,
    }
}

/// Whether one request can meet the conditions of two routes of the same rank.
fn overlap(a: &Match, b: &Match) -> bool {
    let methods = a.methods.is_empty() || a.methods.iter().any(|method| b.methods.contains(method));
    let disjoint = a.headers.iter().any(|x| {
        b.headers.iter().any(|y| x.name == y.name && matches!((&x.value, &y.value), (Some(x), Some(y)) if x != y))
    });
    methods && !disjoint
}

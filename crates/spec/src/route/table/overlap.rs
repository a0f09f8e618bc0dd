//! Whether routes take requests of each other, for a check of routes before they are in a table.
//!
//! Guarantees the order of the table: a test compares both.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::sync::Arc;

use super::listeners::shares_listener;
use super::{PathNode, RouteCandidate};
use crate::route::expression::PathExpression;
use crate::route::{HostMatch, Match, PathMatch, PathPattern, Route, Segment};

/// Routes with the requests that each takes, by their places in a list.
#[derive(Debug)]
pub struct MatchIndex {
    routes: Vec<Arc<Route>>,
    paths: PathNode,
    /// The routes with an expression among their paths.
    expressions: Vec<usize>,
}

/// A host and a path of a route, with the rest of its conditions.
#[derive(Clone, Copy)]
struct RoutePlace<'a> {
    matches: &'a Match,
    /// Whether only some listeners serve the route.
    is_of_listeners: bool,
    host: &'a HostMatch,
    path: &'a PathMatch,
    /// The place of the route in the list.
    index: usize,
}

impl MatchIndex {
    pub fn new(routes: Vec<Arc<Route>>) -> Self {
        let mut paths = PathNode::default();
        let mut expressions = Vec::new();
        for (index, route) in routes.iter().enumerate() {
            for path in &route.matches.paths {
                match path {
                    PathMatch::Pattern(pattern) => paths.insert(pattern, at(index)),
                    PathMatch::Expression(_) => expressions.push(index),
                }
            }
        }
        Self {
            routes,
            paths,
            expressions,
        }
    }

    /// The first route that has requests now which a `part` of the route `whole` would take, if it
    /// stood where its route does.
    pub fn robbed(&self, part: &Match, whole: usize) -> Option<usize> {
        self.candidates(part)
            .into_iter()
            .find(|&other| other != whole && self.takes_from(part, whole, other))
    }

    /// The routes that may take a request of `part`, and perhaps others.
    fn candidates(&self, part: &Match) -> Vec<usize> {
        let mut found = self.expressions.clone();
        for path in &part.paths {
            match path {
                PathMatch::Pattern(pattern) => {
                    self.paths
                        .collect(&pattern.segments, pattern.rest, &mut found)
                }
                PathMatch::Expression(_) => found.extend(0..self.routes.len()),
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Whether there may be a request of `other` that goes before the route `whole`, and behind
    /// `part` of that.
    fn takes_from(&self, part: &Match, whole: usize, other: usize) -> bool {
        let (Some(whole_route), Some(other_route)) =
            (self.routes.get(whole), self.routes.get(other))
        else {
            return false;
        };
        let (listeners, other_listeners) = (&whole_route.listeners, &other_route.listeners);
        if !part.may_share_requests(&other_route.matches)
            || !shares_listener(listeners, other_listeners)
        {
            return false;
        }
        for own in places(part, listeners, whole) {
            for theirs in places(&other_route.matches, other_listeners, other) {
                if own.overlaps(theirs)
                    && own.precedes(theirs)
                    && !covering(own, whole_route).any(|place| place.precedes(theirs))
                {
                    return true;
                }
            }
        }
        false
    }
}

/// A candidate that stands for a route.
fn at(index: usize) -> RouteCandidate {
    RouteCandidate {
        index,
        is_prefix: false,
        methods: Arc::from([]),
        headers: Arc::from([]),
        is_of_listeners: false,
    }
}

/// The places of the route at `index`, which these `listeners` serve, or of a part of it.
fn places<'a>(
    matches: &'a Match,
    listeners: &[Arc<str>],
    index: usize,
) -> impl Iterator<Item = RoutePlace<'a>> + use<'a> {
    let is_of_listeners = !listeners.is_empty();
    matches.hosts.iter().flat_map(move |host| {
        matches.paths.iter().map(move |path| RoutePlace {
            matches,
            is_of_listeners,
            host,
            path,
            index,
        })
    })
}

/// The places of the route `whole` that take all requests of a place of its part.
fn covering<'a>(
    part: RoutePlace<'a>,
    whole: &'a Route,
) -> impl Iterator<Item = RoutePlace<'a>> + 'a {
    places(&whole.matches, &whole.listeners, part.index)
        .filter(move |place| part.host.is_within(place.host) && part.path.is_within(place.path))
}

impl PathNode {
    /// Adds the routes whose patterns may take a path of the pattern with these `segments`, and
    /// perhaps others.
    fn collect(&self, segments: &[Segment], rest: bool, found: &mut Vec<usize>) {
        let here = self.ends.iter().chain(&self.rest);
        found.extend(here.map(|candidate| candidate.index));
        let below = match segments.split_first() {
            None if !rest => return,
            None => &[],
            Some((_, below)) => below,
        };
        match segments.first() {
            Some(Segment::Literal(text)) => {
                if let Some(node) = self.literals.get(text) {
                    node.collect(below, rest, found);
                }
            }
            Some(Segment::Param(_)) | None => {
                for node in self.literals.values() {
                    node.collect(below, rest, found);
                }
            }
        }
        if let Some(node) = &self.param {
            node.collect(below, rest, found);
        }
    }
}

impl Match {
    /// Whether a request may have a method that both take. Header fields keep no two routes apart:
    /// a condition is met by any line of a field, and a request may have a line for each.
    fn may_share_requests(&self, other: &Self) -> bool {
        self.methods.is_empty()
            || other.methods.is_empty()
            || self
                .methods
                .iter()
                .any(|method| other.methods.contains(method))
    }
}

impl RoutePlace<'_> {
    /// The rank among routes with one host and pattern: the greater goes first.
    fn specificity(self) -> (usize, bool, bool) {
        let Match {
            headers, methods, ..
        } = self.matches;
        (headers.len(), !methods.is_empty(), self.is_of_listeners)
    }

    /// Whether this place goes before the other where both take a request. Of two that are equal,
    /// the first of the list does.
    fn precedes(self, other: Self) -> bool {
        let by_host = rank(self.host).cmp(&rank(other.host));
        let by_rank = by_host.then_with(|| self.compare_paths(other));
        by_rank.then_with(|| other.index.cmp(&self.index)) == Ordering::Greater
    }

    fn compare_paths(self, other: Self) -> Ordering {
        match (self.path, other.path) {
            (PathMatch::Pattern(own), PathMatch::Pattern(theirs)) => compare_patterns(own, theirs)
                .then_with(|| self.specificity().cmp(&other.specificity())),
            (PathMatch::Pattern(own), PathMatch::Expression(_)) => before_expressions(own),
            (PathMatch::Expression(_), PathMatch::Pattern(theirs)) => {
                before_expressions(theirs).reverse()
            }
            (PathMatch::Expression(_), PathMatch::Expression(_)) => Ordering::Equal,
        }
    }

    /// Whether a request may be one of both places. Of an expression and a pattern with parameters
    /// that is not always known.
    fn overlaps(self, other: Self) -> bool {
        (self.host.is_within(other.host) || other.host.is_within(self.host))
            && self.path.overlaps(other.path)
    }
}

/// The rank of a host: the greater goes first.
fn rank(host: &HostMatch) -> (u8, usize) {
    match host {
        HostMatch::Any => (0, 0),
        HostMatch::Suffix(suffix) => (1, suffix.len()),
        HostMatch::Exact(_) => (2, 0),
    }
}

/// The order of a pattern and an expression: expressions go before a `/*` alone.
fn before_expressions(pattern: &PathPattern) -> Ordering {
    if pattern.rest {
        Ordering::Less
    } else {
        Ordering::Greater
    }
}

/// The order of two patterns that take one path: the greater goes first.
fn compare_patterns(one: &PathPattern, other: &PathPattern) -> Ordering {
    for (own, theirs) in one.segments.iter().zip(&other.segments) {
        match (own, theirs) {
            (Segment::Literal(_), Segment::Param(_)) => return Ordering::Greater,
            (Segment::Param(_), Segment::Literal(_)) => return Ordering::Less,
            (Segment::Literal(_), Segment::Literal(_)) | (Segment::Param(_), Segment::Param(_)) => {
            }
        }
    }
    let by_length = one.segments.len().cmp(&other.segments.len());
    by_length.then_with(|| other.rest.cmp(&one.rest))
}

impl HostMatch {
    /// Whether `whole` takes each host that this takes.
    pub fn is_within(&self, whole: &Self) -> bool {
        match (self, whole) {
            (_, Self::Any) => true,
            (Self::Exact(host) | Self::Suffix(host), Self::Suffix(suffix)) => {
                host.ends_with(&**suffix)
            }
            (Self::Exact(host), Self::Exact(other)) => host == other,
            (Self::Any, _) | (Self::Suffix(_), Self::Exact(_)) => false,
        }
    }
}

impl PathMatch {
    /// Whether `whole` takes each path that this takes. An expression is within patterns only where
    /// these take all paths, and within another expression only if both are alike: no more is
    /// known.
    pub fn is_within(&self, whole: &Self) -> bool {
        match (self, whole) {
            (Self::Pattern(part), Self::Pattern(whole)) => part.is_within(whole),
            (Self::Expression(_), Self::Pattern(whole)) => whole.rest && whole.segments.is_empty(),
            (Self::Expression(part), Self::Expression(whole)) => {
                whole.takes_everything() || part == whole
            }
            (Self::Pattern(part), Self::Expression(whole)) => {
                whole.takes_everything() || part.is_one_path() && whole.takes(&part.to_string())
            }
        }
    }

    /// Whether a path may be one of both.
    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pattern(one), Self::Pattern(other)) => one.overlaps(other),
            (Self::Expression(expression), Self::Pattern(pattern))
            | (Self::Pattern(pattern), Self::Expression(expression)) => {
                may_take(expression, pattern)
            }
            (Self::Expression(one), Self::Expression(other)) => {
                let one = literal_start(one);
                let other = literal_start(other);
                one.starts_with(other) || other.starts_with(one)
            }
        }
    }
}

impl PathPattern {
    /// Whether the pattern takes one path alone.
    fn is_one_path(&self) -> bool {
        !self.rest
            && self
                .segments
                .iter()
                .all(|segment| matches!(segment, Segment::Literal(_)))
    }

    fn is_within(&self, whole: &Self) -> bool {
        let is_long_enough = self.segments.len() == whole.segments.len()
            || whole.rest && self.segments.len() > whole.segments.len();
        let mut pairs = self.segments.iter().zip(&whole.segments);
        is_long_enough
            && (whole.rest || !self.rest)
            && pairs.all(|(own, other)| match (own, other) {
                (Segment::Literal(own), Segment::Literal(other)) => own == other,
                (Segment::Literal(own), Segment::Param(_)) => !own.is_empty(),
                (Segment::Param(_), Segment::Param(_)) => true,
                (Segment::Param(_), Segment::Literal(_)) => false,
            })
    }

    fn overlaps(&self, other: &Self) -> bool {
        let may_be_as_long = match self.segments.len().cmp(&other.segments.len()) {
            Ordering::Less => self.rest,
            Ordering::Equal => true,
            Ordering::Greater => other.rest,
        };
        let mut pairs = self.segments.iter().zip(&other.segments);
        may_be_as_long
            && pairs.all(|(own, other)| match (own, other) {
                (Segment::Literal(own), Segment::Literal(other)) => own == other,
                (Segment::Literal(text), Segment::Param(_))
                | (Segment::Param(_), Segment::Literal(text)) => !text.is_empty(),
                (Segment::Param(_), Segment::Param(_)) => true,
            })
    }
}

/// Whether an expression may take a path of a pattern.
fn may_take(expression: &PathExpression, pattern: &PathPattern) -> bool {
    let mut start = String::new();
    for segment in &pattern.segments {
        let Segment::Literal(text) = segment else {
            break;
        };
        start.push('/');
        start.push_str(text);
    }
    if pattern.is_one_path() {
        let path = if start.is_empty() { "/" } else { &start };
        return expression.takes(path);
    }
    let fixed = literal_start(expression);
    fixed.starts_with(&start) || start.starts_with(fixed)
}

/// The text that each path begins with which the expression takes, as far as that is easily known.
fn literal_start(expression: &PathExpression) -> &str {
    let Some(text) = expression.text().strip_prefix('^') else {
        return "";
    };
    // Flags may change what letters mean, and `|` has another start behind it.
    let has_flags = text
        .match_indices("(?")
        .any(|(at, _)| !text[at + 2..].starts_with([':', '<', 'P']));
    if has_flags || text.contains('|') {
        return "";
    }
    let end = text
        .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '/' | '-' | '_'))
        .unwrap_or(text.len());
    // The last letter may be repeated, or be absent.
    if text[end..].starts_with(['?', '*', '{', '+']) {
        &text[..end.saturating_sub(1)]
    } else {
        &text[..end]
    }
}

//! The route table: finds the route that takes a request.
//!
//! Guarantees the documented order: host (exact, then longer suffix, then any), then the path
//! segment by segment (literal, `{param}`, `*`), then more header conditions, then a list of
//! methods before any method, then a list of listeners before any listener. The first route whose
//! conditions all hold wins. Expressions are tried in the order of the file, where nothing but a
//! `*` takes the path. The cost of a look-up does not depend on the number of routes without them.
//!
//! The trie is our own rather than matchit. A route that fails on a method or a header must
//! give way to the next less specific route, and `/{tenant}/x/*` must be allowed beside `/*`;
//! matchit does neither.

mod expressions;
pub mod listeners;
pub mod overlap;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

// With its quick default hasher: the keys are chosen by the operator, not by clients.
use hashbrown::HashMap;
use http::{HeaderMap, HeaderValue, Method};

use self::expressions::{NumberSet, NumberedExpression, SharedExpressions, TriedExpressions};
use super::path::{self, Segments};
use super::{HeaderMatch, HostMatch, Match, PathMatch, PathPattern, Route, Segment};

/// All routes, in the order in which they are tried.
#[derive(Debug, Default)]
pub struct RouteTable {
    /// The indexes of its routes, in order.
    routes: Vec<usize>,
    exact: HashMap<Arc<str>, HostRoutes>,
    /// Keyed by `.example.com`.
    suffixes: HashMap<Arc<str>, HostRoutes>,
    any: HostRoutes,
}

/// The routes of a host.
#[derive(Debug, Default)]
struct HostRoutes {
    paths: PathNode,
    /// In the order of the file.
    expressions: Vec<ExpressionRoute>,
}

/// A route by an expression. Those of all its hosts have one number.
#[derive(Clone, Debug)]
struct ExpressionRoute {
    number: usize,
    expression: NumberedExpression,
    candidate: RouteCandidate,
}

/// The result of looking a request up.
#[derive(Debug, PartialEq, Eq)]
pub enum RouteLookup {
    /// The index of the route in the list that the table was built from.
    Route(usize),
    /// Routes take the path, but only with these methods: the value of `Allow`.
    MethodNotAllowed(HeaderValue),
    Nothing,
}

/// A node of the trie: the paths of routes that share the segments up to it.
#[derive(Debug, Default)]
struct PathNode {
    literals: HashMap<Arc<str>, PathNode>,
    param: Option<Box<PathNode>>,
    /// Routes whose pattern ends here, most specific first.
    ends: Vec<RouteCandidate>,
    /// Routes whose pattern ends here in `/*`, most specific first.
    rest: Vec<RouteCandidate>,
}

/// A route with the conditions that are checked once its host and path fit.
#[derive(Clone, Debug)]
struct RouteCandidate {
    index: usize,
    /// Whether the path ends in `/*`.
    is_prefix: bool,
    methods: Arc<[Method]>,
    headers: Arc<[HeaderMatch]>,
    /// Whether only some listeners serve it.
    is_of_listeners: bool,
}

/// A route whose host and path take a request, and whether its other conditions hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Considered {
    /// The index of the route, as in [`RouteLookup::Route`].
    pub index: usize,
    pub fits: Fits,
}

/// Whether a route's conditions on method and header fields hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fits {
    Yes,
    /// The route takes other methods.
    Method,
    /// A required header field is missing or has another value.
    Header,
}

/// The place of a request, where its route is looked up.
#[derive(Clone, Copy)]
struct HostAndPath<'a> {
    host: &'a str,
    path: &'a str,
}

/// A path with its segments.
#[derive(Clone, Copy)]
struct SplitPath<'a> {
    text: &'a str,
    segments: Segments<'a>,
}

/// Sees the candidates of each node that a look-up passes, most specific first.
trait CandidateVisitor<'t> {
    /// The route to stop at. `None`: the look-up goes on.
    fn visit(&mut self, candidates: &'t [RouteCandidate]) -> Option<&'t RouteCandidate>;
}

/// Stops at no candidate and records all of them.
struct AllCandidates<'a> {
    method: &'a Method,
    headers: &'a HeaderMap,
    /// Each with whether its path ends in `/*`.
    considered: Vec<(Considered, bool)>,
}

/// Stops at the first candidate that fits.
struct FirstFit<'a> {
    method: &'a Method,
    headers: &'a HeaderMap,
    /// Another method would have fitted.
    is_refused: bool,
}

/// Stops at no candidate and collects the methods of those that take the header fields.
struct AllowedMethods<'a, 't> {
    headers: &'a HeaderMap,
    methods: BTreeSet<&'t str>,
}

impl RouteTable {
    /// Builds the table of all `routes`; `RouteLookup::Route` indexes this slice.
    pub fn build(routes: &[Arc<Route>]) -> Self {
        Self::of(routes.iter().enumerate())
    }

    /// Builds the table of routes, each with its index.
    fn of<'r>(routes: impl Iterator<Item = (usize, &'r Arc<Route>)>) -> Self {
        let mut table = Self::default();
        let mut number = 0;
        let mut expressions = SharedExpressions::default();
        for (index, route) in routes {
            table.routes.push(index);
            let matches = &route.matches;
            let candidate = RouteCandidate {
                index,
                is_prefix: false,
                methods: Arc::from(&*matches.methods),
                headers: Arc::from(&*matches.headers),
                is_of_listeners: !route.listeners.is_empty(),
            };
            for path in &matches.paths {
                match path {
                    PathMatch::Pattern(pattern) => {
                        for host in &matches.hosts {
                            let candidate = RouteCandidate {
                                is_prefix: pattern.rest,
                                ..candidate.clone()
                            };
                            table.host_routes(host).paths.insert(pattern, candidate);
                        }
                    }
                    PathMatch::Expression(expression) => {
                        let route = ExpressionRoute {
                            number,
                            expression: expressions.share(expression),
                            candidate: candidate.clone(),
                        };
                        number += 1;
                        for host in &matches.hosts {
                            table.host_routes(host).expressions.push(route.clone());
                        }
                    }
                }
            }
        }
        table
    }

    fn host_routes(&mut self, host: &HostMatch) -> &mut HostRoutes {
        match host {
            HostMatch::Exact(host) => self.exact.entry(host.clone()).or_default(),
            HostMatch::Suffix(suffix) => self.suffixes.entry(suffix.clone()).or_default(),
            HostMatch::Any => &mut self.any,
        }
    }

    /// Whether the route at `index` is among those that the table has.
    pub fn has(&self, index: usize) -> bool {
        self.routes.binary_search(&index).is_ok()
    }

    /// Whether a route takes some hosts and not others: otherwise nobody need find the host of a
    /// request.
    pub fn names_hosts(&self) -> bool {
        !self.exact.is_empty() || !self.suffixes.is_empty()
    }

    /// Finds the route of a request. `host` is in lower case and without a port, `path` normalized.
    pub fn find(
        &self,
        host: &str,
        path: &str,
        method: &Method,
        headers: &HeaderMap,
    ) -> RouteLookup {
        let mut first_fit = FirstFit {
            method,
            headers,
            is_refused: false,
        };
        let mut tried = TriedExpressions::default();
        let place = HostAndPath { host, path };
        match self.walk(place, &mut tried, &mut first_fit) {
            Some(found) => RouteLookup::Route(found.index),
            None if first_fit.is_refused => self.refuse(place, headers, &mut tried),
            None => RouteLookup::Nothing,
        }
    }

    /// Shows the candidates of a host and a path to the visitor, until it stops at one.
    #[inline]
    fn walk<'t>(
        &'t self,
        place: HostAndPath<'_>,
        tried: &mut TriedExpressions,
        visitor: &mut impl CandidateVisitor<'t>,
    ) -> Option<&'t RouteCandidate> {
        let path = SplitPath {
            text: place.path,
            segments: path::segments(place.path),
        };
        self.hosts(place.host)
            .find_map(|routes| routes.find(path, tried, visitor))
    }

    /// The refusal of a request whose method no route takes, by another walk: a request that finds
    /// its route collects nothing.
    #[cold]
    fn refuse(
        &self,
        place: HostAndPath<'_>,
        headers: &HeaderMap,
        tried: &mut TriedExpressions,
    ) -> RouteLookup {
        let mut allowed = AllowedMethods {
            headers,
            methods: BTreeSet::new(),
        };
        tried.routes = NumberSet::default();
        self.walk(place, tried, &mut allowed);
        let allow = allowed.methods.into_iter().collect::<Vec<_>>().join(", ");
        HeaderValue::try_from(allow).map_or(RouteLookup::Nothing, RouteLookup::MethodNotAllowed)
    }

    /// Every route whose host and path take the request, most specific first. The first whose
    /// [`Fits`] is `Yes` is the route that [`Self::find`] finds. For explanations, not for routing.
    pub fn consider(
        &self,
        host: &str,
        path: &str,
        method: &Method,
        headers: &HeaderMap,
    ) -> Vec<Considered> {
        let mut tried = TriedExpressions::default();
        self.hosts(host)
            .flat_map(|routes| routes.consider(path, &mut tried, method, headers))
            .collect()
    }

    fn hosts<'t>(&'t self, host: &str) -> impl Iterator<Item = &'t HostRoutes> {
        let exact = if self.exact.is_empty() {
            None
        } else {
            self.exact.get(host)
        };
        // Most files name no hosts, and then nothing is searched.
        let dotted =
            (!self.suffixes.is_empty() && may_have_suffix(host)).then(|| host.match_indices('.'));
        let suffixes = dotted
            .into_iter()
            .flatten()
            .filter_map(|(at, _)| self.suffixes.get(&host[at..]));
        exact
            .into_iter()
            .chain(suffixes)
            .chain(std::iter::once(&self.any))
    }
}

impl HostRoutes {
    #[inline]
    fn find<'t>(
        &'t self,
        path: SplitPath<'_>,
        tried: &mut TriedExpressions,
        visitor: &mut impl CandidateVisitor<'t>,
    ) -> Option<&'t RouteCandidate> {
        let found = self.paths.find(path.segments, visitor);
        if self.expressions.is_empty() {
            return found;
        }
        match found {
            Some(whole) if !whole.is_prefix => Some(whole),
            prefix => self
                .find_by_expression(path.text, tried, visitor)
                .or(prefix),
        }
    }

    /// Routes that were tried at a narrower host are left out: they would fail again, or be refused
    /// again.
    #[cold]
    fn find_by_expression<'t>(
        &'t self,
        path: &str,
        tried: &mut TriedExpressions,
        visitor: &mut impl CandidateVisitor<'t>,
    ) -> Option<&'t RouteCandidate> {
        let mut taking = self.expressions.iter().filter(|one| {
            let NumberedExpression { number, expression } = &one.expression;
            tried.routes.add(one.number) && tried.takes(*number, || expression.takes(path))
        });
        taking.find_map(|one| visitor.visit(std::slice::from_ref(&one.candidate)))
    }

    /// Like [`RouteTable::consider`]: expressions stand before the first `/*` that would be found.
    fn consider(
        &self,
        path: &str,
        tried: &mut TriedExpressions,
        method: &Method,
        headers: &HeaderMap,
    ) -> Vec<Considered> {
        let mut by_pattern = AllCandidates::new(method, headers);
        let mut by_expression = AllCandidates::new(method, headers);
        self.paths.find(path::segments(path), &mut by_pattern);
        self.find_by_expression(path, tried, &mut by_expression);
        let mut considered = by_pattern.considered;
        let found = considered
            .iter()
            .position(|(one, _)| one.fits == Fits::Yes)
            .unwrap_or(considered.len());
        let is_whole = considered
            .get(found)
            .is_some_and(|(_, is_prefix)| !is_prefix);
        let at = if is_whole { found + 1 } else { found };
        considered.splice(at..at, by_expression.considered);
        considered.into_iter().map(|(one, _)| one).collect()
    }
}

impl PathNode {
    fn insert(&mut self, pattern: &PathPattern, candidate: RouteCandidate) {
        let mut node = self;
        for segment in &pattern.segments {
            node = match segment {
                Segment::Literal(text) => node.literals.entry(text.clone()).or_default(),
                Segment::Param(_) => node.param.get_or_insert_default(),
            };
        }
        let list = if pattern.rest {
            &mut node.rest
        } else {
            &mut node.ends
        };
        list.push(candidate);
        list.sort_by_key(|candidate| std::cmp::Reverse(candidate.specificity()));
    }

    fn find<'t>(
        &'t self,
        mut segments: Segments<'_>,
        visitor: &mut impl CandidateVisitor<'t>,
    ) -> Option<&'t RouteCandidate> {
        let after = match segments.next() {
            None => visitor.visit(&self.ends),
            Some(segment) => self.descend(segment, segments, visitor),
        };
        after.or_else(|| visitor.visit(&self.rest))
    }

    fn descend<'t>(
        &'t self,
        segment: &str,
        rest: Segments<'_>,
        visitor: &mut impl CandidateVisitor<'t>,
    ) -> Option<&'t RouteCandidate> {
        if let Some(literal) = self.literals.get(segment)
            && let Some(found) = literal.find(rest, visitor)
        {
            return Some(found);
        }
        match &self.param {
            Some(param) if !segment.is_empty() => param.find(rest, visitor),
            _ => None,
        }
    }
}

impl<'t> CandidateVisitor<'t> for FirstFit<'_> {
    fn visit(&mut self, candidates: &'t [RouteCandidate]) -> Option<&'t RouteCandidate> {
        for candidate in candidates {
            match candidate.fits(self.method, self.headers) {
                Fits::Yes => return Some(candidate),
                Fits::Method => self.is_refused = true,
                Fits::Header => {}
            }
        }
        None
    }
}

impl<'t> CandidateVisitor<'t> for AllowedMethods<'_, 't> {
    fn visit(&mut self, candidates: &'t [RouteCandidate]) -> Option<&'t RouteCandidate> {
        let taking = candidates
            .iter()
            .filter(|candidate| candidate.takes_headers(self.headers));
        self.methods
            .extend(taking.flat_map(|candidate| candidate.methods.iter().map(Method::as_str)));
        None
    }
}

impl<'a> AllCandidates<'a> {
    fn new(method: &'a Method, headers: &'a HeaderMap) -> Self {
        Self {
            method,
            headers,
            considered: Vec::new(),
        }
    }
}

impl<'t> CandidateVisitor<'t> for AllCandidates<'_> {
    fn visit(&mut self, candidates: &'t [RouteCandidate]) -> Option<&'t RouteCandidate> {
        for candidate in candidates {
            let considered = Considered {
                index: candidate.index,
                fits: candidate.fits(self.method, self.headers),
            };
            self.considered.push((considered, candidate.is_prefix));
        }
        None
    }
}

impl RouteCandidate {
    fn specificity(&self) -> (usize, bool, bool) {
        let has_methods = !self.methods.is_empty();
        (self.headers.len(), has_methods, self.is_of_listeners)
    }

    /// Header fields are checked first: a route that takes the request with no method adds nothing
    /// to `Allow`.
    fn fits(&self, method: &Method, headers: &HeaderMap) -> Fits {
        match (self.takes_headers(headers), self.takes_method(method)) {
            (false, _) => Fits::Header,
            (true, false) => Fits::Method,
            (true, true) => Fits::Yes,
        }
    }

    fn takes_method(&self, method: &Method) -> bool {
        self.methods.is_empty() || self.methods.contains(method)
    }

    fn takes_headers(&self, headers: &HeaderMap) -> bool {
        self.headers.iter().all(|wanted| match &wanted.value {
            None => headers.contains_key(&wanted.name),
            Some(value) => headers
                .get_all(&wanted.name)
                .iter()
                .any(|found| found == value),
        })
    }
}

/// Bytes of a name at most (RFC 1035 §2.3.4).
const LONGEST_HOST: usize = 253;

/// Whether `host` can be below another name. Each dot of one that cannot would be looked up all the
/// same, over all that is behind it.
fn may_have_suffix(host: &str) -> bool {
    host.len() <= LONGEST_HOST && !host.starts_with('.') && !host.contains("..")
}

impl Match {
    /// Whether the condition on the host takes `host`.
    pub fn takes_host(&self, host: &str) -> bool {
        self.hosts.iter().any(|taken| match taken {
            HostMatch::Any => true,
            HostMatch::Exact(exact) => **exact == *host,
            HostMatch::Suffix(suffix) => may_have_suffix(host) && host.ends_with(&**suffix),
        })
    }
}

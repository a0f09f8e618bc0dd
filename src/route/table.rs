//! The route table: finds the route that takes a request.
//!
//! Guarantees the documented order: host (exact, then longer suffix, then any), then the path segment by segment
//! (literal, `{param}`, `*`), then more header conditions, then a list of methods before any method. The first route
//! whose conditions all hold wins. The cost of a look-up does not depend on the number of routes.
//!
//! It is a trie of our own rather than matchit. A route that fails on a method or a header must give way to the next
//! less specific route, and `/{tenant}/x/*` must be allowed beside `/*`; matchit does neither.

use std::collections::BTreeSet;
use std::sync::Arc;

// With its quick default hasher: the keys are chosen by the operator, not by clients.
use hashbrown::HashMap;
use http::{HeaderMap, HeaderValue, Method};

use super::path::{self, Segments};
use super::{HostMatch, Match, Route, Segment};

/// All routes, in the order in which they are tried.
#[derive(Debug, Default)]
pub struct RouteTable {
    exact: HashMap<Arc<str>, PathNode>,
    /// Keyed by `.example.com`.
    suffixes: HashMap<Arc<str>, PathNode>,
    any: PathNode,
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
#[derive(Debug)]
struct RouteCandidate {
    index: usize,
    matches: Match,
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

/// Sees the candidates of each node that a look-up passes, most specific first.
trait CandidateVisitor {
    /// The index of the route to stop at. `None`: the look-up goes on.
    fn visit(&mut self, candidates: &[RouteCandidate]) -> Option<usize>;
}

/// Stops at no candidate and records all of them.
struct AllCandidates<'a> {
    method: &'a Method,
    headers: &'a HeaderMap,
    considered: Vec<Considered>,
}

/// Stops at the first candidate that fits, and collects the methods of the others.
struct FirstFit<'a> {
    method: &'a Method,
    headers: &'a HeaderMap,
    allowed: BTreeSet<String>,
}

impl RouteTable {
    /// Builds the table of `routes`; `RouteLookup::Route` indexes this slice.
    pub fn build(routes: &[Arc<Route>]) -> Self {
        let mut table = Self::default();
        for (index, route) in routes.iter().enumerate() {
            let root = match &route.matches.host {
                HostMatch::Exact(host) => table.exact.entry(host.clone()).or_default(),
                HostMatch::Suffix(suffix) => table.suffixes.entry(suffix.clone()).or_default(),
                HostMatch::Any => &mut table.any,
            };
            root.insert(RouteCandidate { index, matches: route.matches.clone() });
        }
        table
    }

    /// Finds the route of a request. `host` is in lower case and without a port, `path` normalized.
    pub fn find(&self, host: &str, path: &str, method: &Method, headers: &HeaderMap) -> RouteLookup {
        let mut first_fit = FirstFit { method, headers, allowed: BTreeSet::new() };
        let segments = path::segments(path);
        match self.roots(host).find_map(|root| root.find(segments, &mut first_fit)) {
            Some(index) => RouteLookup::Route(index),
            None => first_fit.missed(),
        }
    }

    /// Every route whose host and path take the request, most specific first. The first whose [`Fits`] is `Yes` is the
    /// route that [`Self::find`] finds. For explanations, not for routing.
    pub fn consider(&self, host: &str, path: &str, method: &Method, headers: &HeaderMap) -> Vec<Considered> {
        let mut all = AllCandidates { method, headers, considered: Vec::new() };
        let segments = path::segments(path);
        for root in self.roots(host) {
            root.find(segments, &mut all);
        }
        all.considered
    }

    fn roots<'a>(&'a self, host: &'a str) -> impl Iterator<Item = &'a PathNode> {
        let exact = if self.exact.is_empty() { None } else { self.exact.get(host) };
        // Most files name no hosts, and then nothing is searched.
        let dotted = (!self.suffixes.is_empty()).then(|| host.match_indices('.'));
        let suffixes = dotted.into_iter().flatten().filter_map(|(at, _)| self.suffixes.get(&host[at..]));
        exact.into_iter().chain(suffixes).chain(std::iter::once(&self.any))
    }
}

impl PathNode {
    fn insert(&mut self, candidate: RouteCandidate) {
        let mut node = self;
        for segment in &candidate.matches.path.segments {
            node = match segment {
                Segment::Literal(text) => node.literals.entry(text.clone()).or_default(),
                Segment::Param(_) => node.param.get_or_insert_default(),
            };
        }
        let list = if candidate.matches.path.rest { &mut node.rest } else { &mut node.ends };
        list.push(candidate);
        list.sort_by_key(|candidate| std::cmp::Reverse(candidate.matches.specificity()));
    }

    fn find(&self, mut segments: Segments<'_>, visitor: &mut impl CandidateVisitor) -> Option<usize> {
        let after = match segments.next() {
            None => visitor.visit(&self.ends),
            Some(segment) => self.descend(segment, segments, visitor),
        };
        after.or_else(|| visitor.visit(&self.rest))
    }

    fn descend(&self, segment: &str, rest: Segments<'_>, visitor: &mut impl CandidateVisitor) -> Option<usize> {
        let literal = self.literals.get(segment).and_then(|node| node.find(rest, visitor));
        literal.or_else(|| {
            let param = self.param.as_ref().filter(|_| !segment.is_empty())?;
            param.find(rest, visitor)
        })
    }
}

impl CandidateVisitor for FirstFit<'_> {
    fn visit(&mut self, candidates: &[RouteCandidate]) -> Option<usize> {
        for RouteCandidate { index, matches } in candidates {
            match matches.fits(self.method, self.headers) {
                Fits::Yes => return Some(*index),
                Fits::Method => self.allowed.extend(matches.methods.iter().map(ToString::to_string)),
                Fits::Header => {}
            }
        }
        None
    }
}

impl CandidateVisitor for AllCandidates<'_> {
    fn visit(&mut self, candidates: &[RouteCandidate]) -> Option<usize> {
        let considered = |RouteCandidate { index, matches }: &RouteCandidate| Considered {
            index: *index,
            fits: matches.fits(self.method, self.headers),
        };
        self.considered.extend(candidates.iter().map(considered));
        None
    }
}

impl FirstFit<'_> {
    fn missed(self) -> RouteLookup {
        if self.allowed.is_empty() {
            return RouteLookup::Nothing;
        }
        let allow = self.allowed.into_iter().collect::<Vec<_>>().join(", ");
        HeaderValue::try_from(allow).map_or(RouteLookup::Nothing, RouteLookup::MethodNotAllowed)
    }
}

impl Match {
    fn specificity(&self) -> (usize, bool) {
        (self.headers.len(), !self.methods.is_empty())
    }

    /// Header fields are checked first: a route that takes the request with no method adds nothing to `Allow`.
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

    /// Whether the condition on the host takes `host`.
    pub fn takes_host(&self, host: &str) -> bool {
        match &self.host {
            HostMatch::Any => true,
            HostMatch::Exact(exact) => **exact == *host,
            HostMatch::Suffix(suffix) => host.ends_with(&**suffix),
        }
    }

    fn takes_headers(&self, headers: &HeaderMap) -> bool {
        self.headers.iter().all(|wanted| match &wanted.value {
            None => headers.contains_key(&wanted.name),
            Some(value) => headers.get_all(&wanted.name).iter().any(|found| found == value),
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::StatusCode;

    use super::*;
    use crate::route::networks::NetworkRules;
    use crate::route::{Action, FixedResponse, HeaderMatch, PathPattern};

    fn pattern(text: &str) -> PathPattern {
        let (text, rest) = text.strip_suffix("/*").map_or((text, false), |prefix| (prefix, true));
        let segments = path::segments(text)
            .map(|segment| match segment.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
                Some(name) => Segment::Param(name.into()),
                None => Segment::Literal(segment.into()),
            })
            .collect();
        PathPattern { segments, rest }
    }

    fn route(host: HostMatch, path: &str, methods: &[Method], headers: &[(&'static str, &'static str)]) -> Arc<Route> {
        let headers = headers
            .iter()
            .map(|(name, value)| HeaderMatch {
                name: http::HeaderName::from_static(name),
                value: Some(HeaderValue::from_static(value)),
            })
            .collect();
        Arc::new(Route {
            name: path.into(),
            matches: Match { host, path: pattern(path), methods: methods.to_vec(), headers },
            action: Action::Respond(FixedResponse { status: StatusCode::OK, headers: vec![], body: Bytes::new() }),
            limits: vec![],
            networks: NetworkRules::default(),
            cors: None,
            request_fields: Arc::default(),
            response_fields: Arc::default(),
            compression: None,
            error_pages: None,
            max_body: None,
            timeout: None,
        })
    }

    fn find(table: &RouteTable, host: &str, path: &str) -> RouteLookup {
        table.find(host, path, &Method::GET, &HeaderMap::new())
    }

    #[test]
    fn prefers_literals_to_parameters_to_prefixes_segment_by_segment() {
        let any = || HostMatch::Any;
        let paths = ["/*", "/users/*", "/users/{id}", "/users/me", "/users/me/*", "/{tenant}/x/*", "/"];
        let routes: Vec<_> = paths.iter().map(|path| route(any(), path, &[], &[])).collect();
        let table = RouteTable::build(&routes);
        for (path, index) in [
            ("/", 6),
            ("/other", 0),
            ("/users", 1),
            ("/users/", 1),
            ("/users/7", 2),
            ("/users/me", 3),
            ("/users/me/mail", 4),
            ("/users/7/mail", 1),
            ("/acme/x", 5),
            ("/acme/x/y", 5),
            ("/acme/y", 0),
        ] {
            assert_eq!(find(&table, "h", path), RouteLookup::Route(index), "{path}");
        }
    }

    #[test]
    fn prefers_the_exact_host_to_longer_and_shorter_suffixes_to_any() {
        let hosts = [
            HostMatch::Any,
            HostMatch::Suffix(".example.com".into()),
            HostMatch::Suffix(".api.example.com".into()),
            HostMatch::Exact("a.api.example.com".into()),
        ];
        let routes: Vec<_> = hosts.into_iter().map(|host| route(host, "/*", &[], &[])).collect();
        let table = RouteTable::build(&routes);
        for (host, index) in [
            ("a.api.example.com", 3),
            ("b.api.example.com", 2),
            ("api.example.com", 1),
            ("example.com", 0),
            ("x.org", 0),
            ("", 0),
        ] {
            assert_eq!(find(&table, host, "/"), RouteLookup::Route(index), "{host}");
        }
    }

    #[test]
    fn the_first_considered_route_that_fits_is_found() {
        let any = || HostMatch::Any;
        let exact = || HostMatch::Exact("h".into());
        let routes = [
            route(any(), "/*", &[], &[]),
            route(exact(), "/a/*", &[Method::POST], &[]),
            route(any(), "/a/{x}", &[], &[("x-canary", "1")]),
            route(any(), "/a/b", &[Method::GET, Method::PUT], &[]),
            route(exact(), "/a/{x}", &[Method::GET], &[("x-canary", "1")]),
            route(exact(), "/c", &[], &[]),
        ];
        let table = RouteTable::build(&routes);
        let mut canary = HeaderMap::new();
        canary.insert("x-canary", HeaderValue::from_static("1"));
        for host in ["h", "other", ""] {
            for path in ["/", "/a", "/a/b", "/a/c", "/a/b/c", "/c", "/d"] {
                for method in [Method::GET, Method::POST, Method::DELETE] {
                    for headers in [&HeaderMap::new(), &canary] {
                        let considered = table.consider(host, path, &method, headers);
                        let first = considered.iter().find(|one| one.fits == Fits::Yes);
                        let first = first.map(|one| RouteLookup::Route(one.index));
                        assert_eq!(first, Some(table.find(host, path, &method, headers)), "{method} {host}{path}");
                    }
                }
            }
        }
        let all = table.consider("h", "/a/b", &Method::GET, &HeaderMap::new());
        let judged: Vec<_> = all.iter().map(|one| (one.index, one.fits)).collect();
        let (yes, method, header) = (Fits::Yes, Fits::Method, Fits::Header);
        assert_eq!(judged, [(4, header), (1, method), (3, yes), (2, header), (0, yes)]);
    }

    #[test]
    fn a_route_gives_way_when_a_method_or_a_header_does_not_fit() {
        let any = || HostMatch::Any;
        let routes = [
            route(any(), "/a", &[Method::POST], &[]),
            route(any(), "/a", &[], &[("x-canary", "1")]),
            route(any(), "/{x}", &[Method::GET], &[]),
        ];
        let table = RouteTable::build(&routes);
        let mut canary = HeaderMap::new();
        canary.insert("x-canary", HeaderValue::from_static("1"));
        assert_eq!(table.find("", "/a", &Method::POST, &canary), RouteLookup::Route(1));
        assert_eq!(table.find("", "/a", &Method::POST, &HeaderMap::new()), RouteLookup::Route(0));
        assert_eq!(table.find("", "/a", &Method::GET, &HeaderMap::new()), RouteLookup::Route(2));
        assert_eq!(
            table.find("", "/a", &Method::DELETE, &HeaderMap::new()),
            RouteLookup::MethodNotAllowed(HeaderValue::from_static("GET, POST"))
        );
        assert_eq!(table.find("", "/a/b", &Method::GET, &HeaderMap::new()), RouteLookup::Nothing);
    }
}

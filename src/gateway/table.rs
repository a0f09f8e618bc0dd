//! The route table: which route takes a request.
//!
//! Guarantees the order that the documentation promises: host (exact, then longer suffix, then any), then the path
//! segment by segment (literal, `{param}`, `*`), then more header conditions, then a list of methods before any. The
//! first route whose conditions all hold wins. Look-up does not depend on the number of routes. Knows nothing of what
//! a route does.
//!
//! A trie of our own rather than matchit: a route that fails on a method or a header must give way to the next less
//! specific one, and `/{tenant}/x/*` must live beside `/*`; neither can be said there.

use std::collections::BTreeSet;
use std::sync::Arc;

// With its own quick hasher: what is kept here is the operator's choice, not a client's.
use hashbrown::HashMap;
use http::{HeaderMap, HeaderValue, Method};

use super::path::{self, Segments};
use super::route::{HostMatch, Match, Route, Segment};

/// Routes, found by request.
#[derive(Debug, Default)]
pub struct RouteTable {
    exact: HashMap<Arc<str>, Node>,
    /// By `.example.com`.
    suffixes: HashMap<Arc<str>, Node>,
    any: Node,
}

/// What the table says of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// The index of the route in the list that the table was built from.
    Route(usize),
    /// Some route takes the path, with one of these methods.
    MethodNotAllowed(HeaderValue),
    Nothing,
}

#[derive(Debug, Default)]
struct Node {
    literals: HashMap<Arc<str>, Node>,
    param: Option<Box<Node>>,
    /// Routes whose pattern ends here, most specific first.
    ends: Vec<Candidate>,
    /// Routes whose pattern goes on with `/*`.
    rest: Vec<Candidate>,
}

#[derive(Debug)]
struct Candidate {
    index: usize,
    matches: Match,
}

/// A route whose host and path take a request, and what its other conditions say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Considered {
    /// As in [`Found::Route`].
    pub index: usize,
    pub fits: Fits,
}

/// How a route's conditions on method and header fields come out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fits {
    Yes,
    /// It takes other methods.
    Method,
    /// A header field that it asks for is missing or says something else.
    Header,
}

/// What a look-up asks of the candidates at the places it comes by, most specific first.
trait Judge {
    /// The candidate to stop at.
    fn pick(&mut self, candidates: &[Candidate]) -> Option<usize>;
}

/// Stops nowhere, and remembers everyone.
struct Census<'a> {
    method: &'a Method,
    headers: &'a HeaderMap,
    considered: Vec<Considered>,
}

/// The parts of a request that a route can ask for.
struct Question<'a> {
    method: &'a Method,
    headers: &'a HeaderMap,
    allowed: BTreeSet<String>,
}

impl RouteTable {
    /// Builds the table of `routes`; `Found::Route` indexes this slice.
    pub fn build(routes: &[Arc<Route>]) -> Self {
        let mut table = Self::default();
        for (index, route) in routes.iter().enumerate() {
            let root = match &route.matches.host {
                HostMatch::Exact(host) => table.exact.entry(host.clone()).or_default(),
                HostMatch::Suffix(suffix) => table.suffixes.entry(suffix.clone()).or_default(),
                HostMatch::Any => &mut table.any,
            };
            root.insert(Candidate { index, matches: route.matches.clone() });
        }
        table
    }

    /// Finds the route of a request. `host` is in lower case and without a port, `path` normalized.
    pub fn find(&self, host: &str, path: &str, method: &Method, headers: &HeaderMap) -> Found {
        let mut question = Question { method, headers, allowed: BTreeSet::new() };
        let segments = path::segments(path);
        match self.roots(host).find_map(|root| root.find(segments, &mut question)) {
            Some(index) => Found::Route(index),
            None => question.missed(),
        }
    }

    /// Every route whose host and path take the request, most specific first: the first whose [`Fits`] is `Yes` is what
    /// [`Self::find`] finds. To explain, not to route.
    pub fn consider(&self, host: &str, path: &str, method: &Method, headers: &HeaderMap) -> Vec<Considered> {
        let mut census = Census { method, headers, considered: Vec::new() };
        let segments = path::segments(path);
        for root in self.roots(host) {
            root.find(segments, &mut census);
        }
        census.considered
    }

    fn roots<'a>(&'a self, host: &'a str) -> impl Iterator<Item = &'a Node> {
        let exact = if self.exact.is_empty() { None } else { self.exact.get(host) };
        // Most files name no hosts: nothing is searched for then.
        let dotted = (!self.suffixes.is_empty()).then(|| host.match_indices('.'));
        let suffixes = dotted.into_iter().flatten().filter_map(|(at, _)| self.suffixes.get(&host[at..]));
        exact.into_iter().chain(suffixes).chain(std::iter::once(&self.any))
    }
}

impl Node {
    fn insert(&mut self, candidate: Candidate) {
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

    fn find(&self, mut segments: Segments<'_>, question: &mut impl Judge) -> Option<usize> {
        let after = match segments.next() {
            None => question.pick(&self.ends),
            Some(segment) => self.descend(segment, segments, question),
        };
        after.or_else(|| question.pick(&self.rest))
    }

    fn descend(&self, segment: &str, rest: Segments<'_>, question: &mut impl Judge) -> Option<usize> {
        let literal = self.literals.get(segment).and_then(|node| node.find(rest, question));
        literal.or_else(|| {
            let param = self.param.as_ref().filter(|_| !segment.is_empty())?;
            param.find(rest, question)
        })
    }
}

impl Judge for Question<'_> {
    fn pick(&mut self, candidates: &[Candidate]) -> Option<usize> {
        for Candidate { index, matches } in candidates {
            match matches.fits(self.method, self.headers) {
                Fits::Yes => return Some(*index),
                Fits::Method => self.allowed.extend(matches.methods.iter().map(ToString::to_string)),
                Fits::Header => {}
            }
        }
        None
    }
}

impl Judge for Census<'_> {
    fn pick(&mut self, candidates: &[Candidate]) -> Option<usize> {
        let considered = |Candidate { index, matches }: &Candidate| Considered {
            index: *index,
            fits: matches.fits(self.method, self.headers),
        };
        self.considered.extend(candidates.iter().map(considered));
        None
    }
}

impl Question<'_> {
    fn missed(self) -> Found {
        if self.allowed.is_empty() {
            return Found::Nothing;
        }
        let allow = self.allowed.into_iter().collect::<Vec<_>>().join(", ");
        HeaderValue::try_from(allow).map_or(Found::Nothing, Found::MethodNotAllowed)
    }
}

impl Match {
    fn specificity(&self) -> (usize, bool) {
        (self.headers.len(), !self.methods.is_empty())
    }

    /// The header fields are looked at first: a route that would not take the request with any method says nothing of
    /// methods.
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

    /// Whether a request for `host` can meet it, by the host alone.
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
    use crate::gateway::route::{Action, FixedResponse, HeaderMatch, PathPattern};

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
            max_body: None,
            timeout: None,
        })
    }

    fn find(table: &RouteTable, host: &str, path: &str) -> Found {
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
            assert_eq!(find(&table, "h", path), Found::Route(index), "{path}");
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
            assert_eq!(find(&table, host, "/"), Found::Route(index), "{host}");
        }
    }

    #[test]
    fn the_first_considered_that_fits_is_the_one_that_is_found() {
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
                        let first = first.map(|one| Found::Route(one.index));
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
    fn gives_way_when_a_method_or_a_header_does_not_fit() {
        let any = || HostMatch::Any;
        let routes = [
            route(any(), "/a", &[Method::POST], &[]),
            route(any(), "/a", &[], &[("x-canary", "1")]),
            route(any(), "/{x}", &[Method::GET], &[]),
        ];
        let table = RouteTable::build(&routes);
        let mut canary = HeaderMap::new();
        canary.insert("x-canary", HeaderValue::from_static("1"));
        assert_eq!(table.find("", "/a", &Method::POST, &canary), Found::Route(1));
        assert_eq!(table.find("", "/a", &Method::POST, &HeaderMap::new()), Found::Route(0));
        assert_eq!(table.find("", "/a", &Method::GET, &HeaderMap::new()), Found::Route(2));
        assert_eq!(
            table.find("", "/a", &Method::DELETE, &HeaderMap::new()),
            Found::MethodNotAllowed(HeaderValue::from_static("GET, POST"))
        );
        assert_eq!(table.find("", "/a/b", &Method::GET, &HeaderMap::new()), Found::Nothing);
    }
}

//! Bounds on the parts that an application makes of routes: nodes of the table of routes, and
//! conditions that a request is compared with. Nobody who edits one application fills the memory of
//! a node, or slows the requests of the others.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::config::report::{Location, Report, ValueProblem};
use crate::route::{HostMatch, Match, PathMatch, PathPattern, Segment};

/// Pairs of a host and a path in the match of a part, and in all parts of an application: each is a
/// place in the table of routes.
const MOST_PAIRS: usize = 1_024;
const MOST_PAIRS_OF_APPLICATION: usize = 20_000;

/// Segments of paths in all parts of an application, once for each host: each is a node of the
/// table.
const MOST_SEGMENTS: usize = 100_000;

/// Parts of an application that take one host and path: a request there is compared with each, and
/// so is each with the others.
const MOST_ALIKE: usize = 64;

/// Expressions among the paths of all parts of an application, those that they have from their
/// routes included: each is compiled for its part, with the memory that its searches keep.
const MOST_EXPRESSIONS: usize = 128;

/// Methods of a part, and header conditions that it adds to those of its route.
const MOST_METHODS: usize = 16;
const MOST_HEADERS: usize = 8;

/// The sums of an application's parts so far.
#[derive(Default)]
pub struct PartBounds {
    pairs: usize,
    segments: usize,
    expressions: usize,
    /// Parts at each host and path.
    alike: HashMap<String, usize>,
}

impl PartBounds {
    /// Adds the `pairs` of a part, before it is made. `None`: they are too many, which was
    /// reported.
    pub fn add_pairs(&mut self, pairs: usize, at: &Location, report: &mut Report) -> Option<()> {
        self.pairs = self.pairs.saturating_add(pairs);
        let (most, whose) = match (pairs, self.pairs) {
            (part, _) if part > MOST_PAIRS => (MOST_PAIRS, "the part has"),
            (_, all) if all > MOST_PAIRS_OF_APPLICATION => {
                (MOST_PAIRS_OF_APPLICATION, "the application's parts have")
            }
            _ => return Some(()),
        };
        let problem = ValueProblem::new(format!(
            "{whose} more than {most} pairs of a host and a path"
        ));
        report.mistake(
            at,
            problem.hint(
                "list fewer hosts or paths, or write paths that take several, such as /orders/*",
            ),
        );
        None
    }

    /// Adds the conditions of a `part` of the route with the conditions `whole`. `None`: they are
    /// too many, which was reported.
    pub fn add(
        &mut self,
        part: &Match,
        whole: &Match,
        at: &Location,
        report: &mut Report,
    ) -> Option<()> {
        let segments: usize = part
            .paths
            .iter()
            .filter_map(pattern)
            .map(|path| path.segments.len() + 1)
            .sum();
        self.segments = self
            .segments
            .saturating_add(segments.saturating_mul(part.hosts.len()));
        self.expressions += part
            .paths
            .iter()
            .filter(|path| pattern(path).is_none())
            .count();
        let alike = self.add_places(part);
        let headers = part.headers.len().saturating_sub(whole.headers.len());
        let (what, hint) = match () {
            () if part.methods.len() > MOST_METHODS.max(whole.methods.len()) => (
                format!("the part has more than {MOST_METHODS} methods"),
                "leave methods out to take all of the route's",
            ),
            () if headers > MOST_HEADERS => (
                format!("the part has more than {MOST_HEADERS} header conditions"),
                "tell clients apart by the key of a limit",
            ),
            () if self.segments > MOST_SEGMENTS => (
                format!(
                    "the application's parts have more than {MOST_SEGMENTS} segments of paths, counted for each host"
                ),
                "list fewer hosts, or shorten the paths",
            ),
            () if alike > MOST_ALIKE => (
                format!("the application has more than {MOST_ALIKE} parts with one host and path"),
                "tell clients apart by the key of a limit, or by plans",
            ),
            () if self.expressions > MOST_EXPRESSIONS => (
                format!(
                    "the application's parts have more than {MOST_EXPRESSIONS} expressions among their paths, with those of \
                     their routes"
                ),
                "make fewer parts of routes with expressions, or tell clients apart by the key of a limit",
            ),
            () => return Some(()),
        };
        report.mistake(at, ValueProblem::new(what).hint(hint));
        None
    }

    /// Adds the places of a part. Returns how many parts there are at the fullest of them.
    fn add_places(&mut self, part: &Match) -> usize {
        let places = part
            .hosts
            .iter()
            .flat_map(|host| part.paths.iter().map(move |path| place(host, path)));
        let alike = places.map(|place| {
            let alike = self.alike.entry(place).or_default();
            *alike += 1;
            *alike
        });
        alike.max().unwrap_or_default()
    }
}

fn pattern(path: &PathMatch) -> Option<&PathPattern> {
    match path {
        PathMatch::Pattern(pattern) => Some(pattern),
        PathMatch::Expression(_) => None,
    }
}

/// The node of the table where a host and a path end: the names of parameters do not matter there.
/// For an expression, the host and its text.
fn place(host: &HostMatch, path: &PathMatch) -> String {
    let mut place = match host {
        HostMatch::Any => String::new(),
        HostMatch::Exact(host) => host.to_string(),
        HostMatch::Suffix(suffix) => format!("*{suffix}"),
    };
    let path = match path {
        PathMatch::Pattern(pattern) => pattern,
        // No host ends in a space, and each pattern begins with a slash.
        PathMatch::Expression(expression) => return place + " " + expression.text(),
    };
    for segment in &path.segments {
        // Writing to a String cannot fail.
        let _ = match segment {
            Segment::Literal(literal) => write!(place, "/{literal}"),
            Segment::Param(_) => write!(place, "/{{}}"),
        };
    }
    place + if path.rest { "/*" } else { "" }
}

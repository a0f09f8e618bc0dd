//! Bounds on the parts that an application makes of routes: nodes of the table of routes, and
//! conditions that a request is compared with. Nobody who edits one application fills the memory of
//! a node, or slows the requests of the others.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::report::{Location, Report, ValueProblem};
use tollgate_spec::route::{HostMatch, Match, PathMatch, Segment};

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
        let most;
        let whose;
        if pairs > MOST_PAIRS {
            most = MOST_PAIRS;
            whose = "the part has";
        } else if self.pairs > MOST_PAIRS_OF_APPLICATION {
            most = MOST_PAIRS_OF_APPLICATION;
            whose = "the application's parts have";
        } else {
            return Some(());
        }
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
        let mut segments = 0;
        for path in &part.paths {
            match path {
                PathMatch::Pattern(path) => segments += path.segments.len() + 1,
                PathMatch::Expression(_) => self.expressions += 1,
            }
        }
        let segments = segments.saturating_mul(part.hosts.len());
        self.segments = self.segments.saturating_add(segments);
        let alike = self.add_places(part);
        let headers = part.headers.len().saturating_sub(whole.headers.len());
        let problem = if part.methods.len() > MOST_METHODS.max(whole.methods.len()) {
            ValueProblem::new(format!("the part has more than {MOST_METHODS} methods"))
                .hint("leave methods out to take all of the route's")
        } else if headers > MOST_HEADERS {
            ValueProblem::new(format!(
                "the part has more than {MOST_HEADERS} header conditions"
            ))
            .hint("tell clients apart by the key of a limit")
        } else if self.segments > MOST_SEGMENTS {
            ValueProblem::new(format!(
                "the application's parts have more than {MOST_SEGMENTS} segments of paths, counted for each host"
            ))
            .hint("list fewer hosts, or shorten the paths")
        } else if alike > MOST_ALIKE {
            ValueProblem::new(format!(
                "the application has more than {MOST_ALIKE} parts with one host and path"
            ))
            .hint("tell clients apart by the key of a limit, or by plans")
        } else if self.expressions > MOST_EXPRESSIONS {
            ValueProblem::new(format!(
                "the application's parts have more than {MOST_EXPRESSIONS} expressions among their paths, with those of \
                 their routes"
            ))
            .hint("make fewer parts of routes with expressions, or tell clients apart by the key of a limit")
        } else {
            return Some(());
        };
        report.mistake(at, problem);
        None
    }

    /// Adds the places of a part, and returns the number of parts at the fullest of them.
    fn add_places(&mut self, part: &Match) -> usize {
        let mut most = 0;
        for host in &part.hosts {
            for path in &part.paths {
                let alike = self.alike.entry(place(host, path)).or_default();
                *alike += 1;
                most = most.max(*alike);
            }
        }
        most
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

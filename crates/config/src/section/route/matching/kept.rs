//! Routes that take paths which some servers read as those of another route.

use std::sync::Arc;

use crate::report::{Location, Report, ValueProblem, quote};
use crate::yaml::words::words;
use tollgate_spec::route::path::other_reading;
use tollgate_spec::route::{PathMatch, Route, Segment};

/// The choice about paths that some servers read as those of another route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmbiguousPaths {
    Refuse,
    Keep,
}

words! {
    AmbiguousPaths: "refuse or keep" { "refuse" => Refuse, "keep" => Keep }
}

/// Warns of a `route` that keeps such paths, where its upstream may read one as that of a route
/// which asks more of its clients.
pub fn warn_of_kept<'r>(
    location: &Location,
    route: &Route,
    mut others: impl Iterator<Item = &'r Arc<Route>>,
    report: &mut Report,
) {
    let Some(other) = others.find(|other| asks_more(other, route) && may_read_as(route, other))
    else {
        return;
    };
    let problem = ValueProblem::new(format!(
        "an upstream that decodes the path may take a request of route {} for one of route {}, which asks more of its \
         clients",
        quote(&route.name),
        quote(&other.name)
    ));
    let hint = "keep ambiguous_paths for a narrower path, such as /projects/*, or ask the same of its clients";
    report.warning(location, problem.hint(hint));
}

/// Warns of a `route` that refuses such paths, and names one itself.
pub fn warn_of_refused(location: &Location, route: &Route, report: &mut Report) {
    if route.action.forward().is_none() {
        return;
    }
    for path in &route.matches.paths {
        let PathMatch::Pattern(pattern) = path else {
            continue;
        };
        let text = pattern.to_string();
        if other_reading(&text).is_some() {
            let problem = ValueProblem::new(format!(
                "{} is refused where another route takes what some servers read",
                quote(&text)
            ));
            report.warning(
                location,
                problem.hint("add ambiguous_paths: keep to the route"),
            );
            return;
        }
    }
}

fn asks_more(other: &Route, route: &Route) -> bool {
    let authenticates = other.authenticate.as_ref().is_some_and(|by| !by.is_empty())
        && other.authenticate != route.authenticate;
    authenticates || !other.networks.is_open() && other.networks != route.networks
}

/// Whether a path of `route`, decoded, may be a path of `other`.
fn may_read_as(route: &Route, other: &Route) -> bool {
    let (own, theirs) = (&route.matches, &other.matches);
    let shares_host = own.hosts.iter().any(|host| {
        let mut hosts = theirs.hosts.iter();
        hosts.any(|other| host.is_within(other) || other.is_within(host))
    });
    let shares_path = own.paths.iter().any(|path| {
        let mut paths = theirs.paths.iter();
        paths.any(|other| may_lead_to(path, other))
    });
    shares_host && shares_path
}

/// Whether a path of `own` that is decoded may be a path of `other`. Literal segments stay as they
/// are.
fn may_lead_to(own: &PathMatch, other: &PathMatch) -> bool {
    let (PathMatch::Pattern(own), PathMatch::Pattern(other)) = (own, other) else {
        return true;
    };
    for (at, segment) in own.segments.iter().enumerate() {
        match (segment, other.segments.get(at)) {
            (Segment::Param(_), _) => return true,
            (Segment::Literal(_), None) => return other.rest,
            (Segment::Literal(_), Some(Segment::Param(_))) => {}
            (Segment::Literal(literal), Some(Segment::Literal(theirs))) => {
                if literal != theirs {
                    return false;
                }
            }
        }
    }
    own.rest
}

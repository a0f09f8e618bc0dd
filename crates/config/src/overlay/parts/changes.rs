//! The changes of a route of the file that an application asks for: limits for all of its
//! requests, and parts of it. A part is the same route for fewer requests, under a name of its own.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tollgate_limiter::limit::definition::LimitUse;
use tollgate_limiter::limit::key::KeyPart;

use super::bounds::PartBounds;
use super::within::widened;
use crate::overlay::applied::{ChangedRoute, CheckedPart};
use crate::overlay::base::Base;
use crate::overlay::limit_work::{LimitWork, check_count, check_work};
use crate::report::{Location, Report, ValueProblem, quote};
use crate::section::limit::uses::{CheckedUse, path_params};
use crate::section::policies::document::RawPart;
use crate::section::route::definition::CheckedRoute;
use tollgate_spec::route::template::Variable;
use tollgate_spec::route::{Action, Match, Route};

/// The changes of one route of the file.
#[derive(Default)]
pub struct RouteChanges<'a> {
    /// The limits that count all of its requests.
    pub limits: Vec<CheckedUse>,
    pub parts: Vec<PartOfRoute<'a>>,
}

/// A part of a route, as it is written.
pub struct PartOfRoute<'a> {
    /// The name of the route that it becomes.
    pub name: String,
    pub location: &'a Location,
    pub part: &'a RawPart,
    pub limits: Vec<CheckedUse>,
}

/// The application that changes routes, and the file below it.
pub struct ChangedBy<'a> {
    base: &'a Base<'a>,
    /// The work of its limits.
    works: &'a HashMap<String, LimitWork>,
    bounds: PartBounds,
}

impl<'a> ChangedBy<'a> {
    pub fn new(base: &'a Base<'a>, works: &'a HashMap<String, LimitWork>) -> Self {
        Self {
            base,
            works,
            bounds: PartBounds::default(),
        }
    }
}

impl RouteChanges<'_> {
    /// The route at a `place` of the file with the changes, except those with a mistake, which is
    /// reported.
    pub fn apply(
        &self,
        place: usize,
        by: &mut ChangedBy<'_>,
        report: &mut Report,
    ) -> Option<ChangedRoute> {
        let file = by.base.file;
        let checked = file.routes.get(place)?;
        let route = &checked.route;
        for added in &self.limits {
            file.routes
                .check_added(added, checked, &route.matches, report);
        }
        check_work(&route.name, [&self.limits, &[]], by.works, report);
        let limits = with_added(&route.name, &route.limits, &self.limits, report);
        let whole = if limits.len() == route.limits.len() {
            route.clone()
        } else {
            Arc::new(Route {
                limits,
                ..Route::clone(route)
            })
        };
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let Some(matches) = part.matches(place, &whole, by, report) else {
                continue;
            };
            check_inherited(part, &matches, &whole, report);
            parts.push(CheckedPart {
                location: part.location.clone(),
                route: Arc::new(part.route(checked, &whole, matches, by, report)),
            });
            if !part.limits.is_empty() {
                check_work(&part.name, [&self.limits, &part.limits], by.works, report);
            }
        }
        Some(ChangedRoute {
            place,
            whole,
            parts,
        })
    }
}

impl PartOfRoute<'_> {
    /// The requests that it takes. `None`: a mistake was reported.
    fn matches(
        &self,
        place: usize,
        whole: &Route,
        by: &mut ChangedBy<'_>,
        report: &mut Report,
    ) -> Option<Match> {
        let RawPart {
            location,
            conditions,
            ..
        } = self.part;
        by.bounds
            .add_pairs(conditions.pairs(&whole.matches), location, report)?;
        let matches = conditions.build(report)?.narrowing(&whole.matches);
        if let Some(widened) = widened(&matches, &whole.matches) {
            widened.report(&whole.name, self.part, report);
            return None;
        }
        by.bounds.add(&matches, &whole.matches, location, report)?;
        let routes = &by.base.file.routes;
        if let Some(other) = routes.matches.robbed(&matches, place) {
            let other = routes.get(other)?;
            let problem = ValueProblem::new(format!(
                "some of its requests are those of route {}",
                quote(&other.route.name)
            ));
            let hint = "narrow it: a part has only requests that its own route has without it";
            report.mistake(location, problem.hint(hint));
            return None;
        }
        Some(matches)
    }

    /// The route that takes the requests of `matches`.
    fn route(
        &self,
        checked: &CheckedRoute,
        whole: &Route,
        matches: Match,
        by: &ChangedBy<'_>,
        report: &mut Report,
    ) -> Route {
        for added in &self.limits {
            let routes = &by.base.file.routes;
            routes.check_added(added, checked, &matches, report);
        }
        Route {
            name: self.name.as_str().into(),
            limits: with_added(&self.name, &whole.limits, &self.limits, report),
            matches,
            ..whole.clone()
        }
    }
}

/// The limits of the route called `name` with those that are `added`. A limit that it has already
/// is left out: two resources may be one route.
fn with_added(
    name: &str,
    own: &[LimitUse],
    added: &[CheckedUse],
    report: &mut Report,
) -> Vec<LimitUse> {
    let mut known: HashSet<&str> = own.iter().map(|used| &*used.limit.name).collect();
    let mut limits = own.to_vec();
    for used in added {
        if known.insert(&used.limit_use.limit.name) {
            limits.push(used.limit_use.clone());
            check_count(name, limits.len(), &used.location, report);
        }
    }
    limits
}

/// Reports that requests of a part lack a parameter of the path which its route goes by.
fn check_inherited(part: &PartOfRoute<'_>, matches: &Match, whole: &Route, report: &mut Report) {
    let route = quote(&whole.name);
    let mut uses: Vec<(&str, String)> = Vec::new();
    for used in &whole.limits {
        let limit = quote(&used.limit.name);
        for param in path_params(&used.limit) {
            uses.push((param, format!("limit {limit} of route {route} counts by")));
        }
    }
    for variable in whole.templates().flat_map(|text| text.variables()) {
        if let Variable::PathParam(param) = variable {
            uses.push((param, format!("a text of route {route} has")));
        }
    }
    if let Action::Distribute(distribution) = &whole.action {
        for part in distribution.split.iter().flat_map(|split| &*split.by) {
            if let KeyPart::PathParam(param) = part {
                uses.push((param, format!("route {route} is split by")));
            }
        }
    }
    for (param, what) in uses {
        if !matches.has_param(param) {
            let problem = ValueProblem::new(format!(
                "{what} {{{param}}}, which this part's path does not have"
            ));
            let hint = format!("put {{{param}}} into the part's path");
            report.mistake(&part.part.location, problem.hint(hint));
        }
    }
}

//! The changes of the file's routes that applications ask for.

use std::collections::{HashMap, HashSet};

use super::application::{CheckedApplication, conditions_of};
use super::applied::PolicyAdditions;
use super::candidate::{candidate_name, joined_name};
use super::limit_references::{LimitReference, LimitWork};
use super::owned::routes::OwnedRoutes;
use super::part::PartSpec;
use crate::report::{Location, Report, ValueProblem, quote};
use crate::scalar::text::DefinedName;
use crate::section::policies::document::RawApplication;
use crate::yaml::decode::Located;

/// A part of a route that becomes a route of its own.
pub struct PartOfRoute<'a> {
    pub spec: PartSpec<'a>,
    pub limits: Vec<LimitReference>,
}

/// The changes of one route of the file.
pub struct RouteChanges<'a> {
    /// The application that it is of, by its place.
    pub owner: usize,
    /// The limits that count all of its requests.
    pub limits: Vec<LimitReference>,
    pub parts: Vec<PartOfRoute<'a>>,
}

impl RouteChanges<'_> {
    fn by(owner: usize) -> Self {
        Self {
            owner,
            limits: Vec::new(),
            parts: Vec::new(),
        }
    }
}

/// The changes of the file's routes that applications ask for, as they are collected.
pub struct CollectedChanges<'a, 'o> {
    /// The limits that were added.
    pub added: &'o HashMap<String, LimitWork>,
    /// The routes of the file by name, with their places.
    pub routes: &'o HashMap<String, usize>,
    pub owned: &'o OwnedRoutes<'o>,
    /// By the place of the route in the file.
    pub changes: HashMap<usize, RouteChanges<'a>>,
}

impl<'a> CollectedChanges<'a, '_> {
    /// The changes of a route, which is of the application `owner`.
    pub fn of_route(&mut self, route: usize, owner: usize) -> &mut RouteChanges<'a> {
        self.changes
            .entry(route)
            .or_insert_with(|| RouteChanges::by(owner))
    }

    /// Adds the changes that an application asks for.
    pub fn add(
        &mut self,
        owner: usize,
        application: &'a CheckedApplication,
        additions: &mut PolicyAdditions,
        report: &mut Report,
    ) {
        let Some(raw) = &application.raw else {
            return;
        };
        let mut by_resource = limits_of_resources(application, raw, self.added, report);
        for entry in raw.resources.members() {
            let Some(resource) = &entry.value else {
                continue;
            };
            let limits = by_resource.remove(entry.text.as_str()).unwrap_or_default();
            let Some(route) = self.owned.find(application, raw, resource, report) else {
                continue;
            };
            let Some(conditions) = conditions_of(resource) else {
                if !resource.r#match.is_invalid() {
                    if let Some(name) = resource.route.value() {
                        additions.whole_routes.push((name.0, limits.clone()));
                    }
                    self.of_route(route, owner).limits.extend(limits);
                }
                continue;
            };
            let spec = PartSpec {
                name: joined_name(&application.name, &entry.text),
                at: &entry.location,
                conditions,
            };
            if self.is_free(&spec, report) {
                let part = PartOfRoute { spec, limits };
                self.of_route(route, owner).parts.push(part);
            }
        }
    }

    /// Whether a part may have its name, which is reported otherwise.
    fn is_free(&self, spec: &PartSpec<'_>, report: &mut Report) -> bool {
        if self.routes.contains_key(&spec.name) {
            let problem = ValueProblem::new(format!(
                "the file has a route {} already",
                quote(&spec.name)
            ));
            report.mistake(spec.at, problem.hint("give the resource another name"));
            return false;
        }
        is_short(&spec.name, spec.at, report)
    }
}

/// The limits of an application's strategies, by the resource that each counts.
fn limits_of_resources<'a>(
    application: &CheckedApplication,
    raw: &'a RawApplication,
    added: &HashMap<String, LimitWork>,
    report: &mut Report,
) -> HashMap<&'a str, Vec<LimitReference>> {
    let name = &*application.name;
    let mut by_resource: HashMap<&str, Vec<LimitReference>> = HashMap::new();
    let members = raw.resources.members();
    let known: HashSet<&str> = members.iter().map(|resource| &*resource.text).collect();
    for strategy in raw.strategies.members() {
        let Some(resources) = strategy
            .value
            .as_ref()
            .and_then(|raw| raw.resources.valid())
        else {
            continue;
        };
        let limit = joined_name(name, &strategy.text);
        let candidate = candidate_name(&limit);
        let mut limits = vec![limit, candidate];
        limits.retain(|limit| added.contains_key(limit));
        let mut seen = HashSet::new();
        for Located {
            location,
            value: DefinedName(resource),
        } in &resources.0
        {
            if !seen.insert(resource) {
                let problem =
                    ValueProblem::new(format!("{} is in the list twice", quote(resource)));
                report.mistake(location, problem.hint("keep one of the two"));
            } else if let Some(resource) = known.get(&**resource) {
                let counted = limits.iter().map(|limit| (limit.clone(), location.clone()));
                by_resource.entry(resource).or_default().extend(counted);
            } else if !raw.resources.is_invalid() {
                let what = format!(
                    "application {} has no resource {}",
                    quote(name),
                    quote(resource)
                );
                let otherwise = "define it under \"resources\" of the application";
                let known = known.iter().copied();
                report.misnamed(
                    location,
                    ValueProblem::new(what),
                    resource,
                    known,
                    otherwise,
                );
            }
        }
    }
    by_resource
}

/// Whether a joined name may be that of a limit or a route, which is reported otherwise.
pub fn is_short(name: &str, at: &Location, report: &mut Report) -> bool {
    if name.len() <= DefinedName::LONGEST {
        return true;
    }
    let problem = ValueProblem::new(format!(
        "together with its application it is called {}, over {} bytes",
        quote(name),
        DefinedName::LONGEST
    ));
    report.mistake(at, problem.hint("shorten one of the two names"));
    false
}

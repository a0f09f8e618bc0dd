//! The policy document over a file's tree: strategies become limits, and resources the routes
//! that name them.
//!
//! Works on the tree, so that the rest of the configuration checks what comes of it. Limits go in
//! before the file's defaults are applied, for these complete them; routes change after that, for a
//! route that has limits of its own gets no default ones.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_limiter::limit::units::show_size;

use super::application::{CheckedApplication, checked_applications};
use super::applied::PolicyAdditions;
use super::candidate::{self, StrategyLimit, StrategyPlace, candidate_name, joined_name};
use super::document::PolicySet;
use super::limit_references::{LimitWork, add_references, check_work};
use super::node_additions::NodeAdditions;
use super::owned::routes::OwnedRoutes;
use super::owned::upstreams::OwnedUpstreams;
use super::part;
use super::part_bounds::PartBounds;
use super::precedence::FileRoutes;
use super::route_changes::{CollectedChanges, PartOfRoute, is_short};
use crate::candidate::Candidate;
use crate::report::{Location, Report, ValueProblem, quote};
use crate::section::known::KnownParts;
use crate::section::limit::assigned::PolicyPlans;
use crate::yaml::node::{NodeEntry, YamlNode, YamlValue};
use tollgate_identity::api_key::RouteKeys;

/// Bytes of copied routes at most: parts of long routes would fill all memory.
const MOST_COPIED: usize = 256 << 20;

/// A policy document that could be read.
#[derive(Default)]
pub struct Overlay {
    applications: Vec<Arc<CheckedApplication>>,
    /// The limits that were added: routes name no others, so that a mistake is reported once.
    added: HashMap<String, LimitWork>,
    /// The candidates among them, and those of applications that are known.
    candidates: Vec<Candidate>,
    /// The name of the node that it is for. `None`: it is to fit any.
    node: Option<Arc<str>>,
    /// The limits and parts of applications that lay over this file before.
    known: KnownParts,
    /// By application: what it has added.
    additions: Vec<PolicyAdditions>,
    /// How many limits the file has itself.
    file_limits: usize,
}

/// All that comes of an overlay besides the tree.
#[derive(Default)]
pub struct OverlayParts {
    /// The plans of the limits in the tree.
    pub plans: PolicyPlans,
    pub candidates: Vec<Candidate>,
    /// `None`: there is no overlay.
    pub keys: Option<RouteKeys>,
    pub known: KnownParts,
    /// How many limits stand before those of policies. `None`: there are none of policies.
    pub file_limits: Option<usize>,
    /// `None`: it is for no node, and nothing that comes of it is kept.
    pub additions: Option<NodeAdditions>,
}

impl Overlay {
    /// The overlay of applications, for the `node` with this name.
    pub fn new(applications: Vec<Arc<CheckedApplication>>, node: Option<Arc<str>>) -> Self {
        Self {
            applications,
            node,
            ..Self::default()
        }
    }

    /// Reads the document. `None`: a mistake was reported.
    pub fn read(set: PolicySet, report: &mut Report) -> Option<Self> {
        let PolicySet { name, root, node } = set;
        report.include(name);
        checked_applications(&root, report).map(|applications| Self::new(applications, node))
    }

    /// Adds the limits of each strategy to those of the file.
    pub fn add_limits(&mut self, root: &mut YamlNode, report: &mut Report) {
        let YamlValue::Map(sections) = &mut root.value else {
            return;
        };
        let Some(limits) = members_of(sections, "limits", &root.location) else {
            return;
        };
        let mut known: HashMap<String, Location> = limits
            .iter()
            .map(|limit| (limit.key.clone(), limit.key_location.clone()))
            .collect();
        self.file_limits = limits.len();
        let upstreams = OwnedUpstreams::read(&self.applications);
        for application in &self.applications {
            let mut additions = PolicyAdditions::default();
            if let Some(applied) = application.applied(self.node.as_ref()) {
                self.known.limits.extend(applied.limits.iter().cloned());
                self.candidates.extend(applied.candidates.iter().cloned());
                report.warn_again(&applied.warnings);
                self.additions.push(additions);
                continue;
            }
            let node = self.node.as_deref();
            for limit in strategy_limits(application, node, &upstreams, &mut known, report) {
                let StrategyLimit {
                    name,
                    at,
                    tree,
                    candidate,
                } = limit;
                self.added.insert(name.clone(), LimitWork::new(&tree));
                additions.limits.push(name.clone());
                self.candidates.extend(candidate.iter().cloned());
                additions.candidates.extend(candidate);
                limits.push(NodeEntry {
                    key: name,
                    key_location: at,
                    value: tree,
                });
            }
            self.additions.push(additions);
        }
    }

    /// The limits of the document that are not in the tree.
    pub fn known_limits(&self) -> usize {
        self.known.limits.len()
    }

    /// Adds the limits to the routes that resources name, and the parts of these routes beside
    /// them.
    pub fn change_routes(&mut self, root: &mut YamlNode, report: &mut Report) {
        let YamlValue::Map(sections) = &mut root.value else {
            return;
        };
        let Some(section) = sections.iter_mut().find(|section| section.key == "routes") else {
            return;
        };
        let YamlValue::List(routes) = &mut section.value.value else {
            return;
        };
        let by_name: HashMap<String, usize> = routes
            .iter()
            .enumerate()
            .filter_map(|(at, route)| Some((part::name_of(route)?.to_owned(), at)))
            .collect();
        let owned = OwnedRoutes::read(&self.applications, &by_name, report);
        let mut collected = CollectedChanges {
            added: &self.added,
            routes: &by_name,
            owned: &owned,
            changes: HashMap::new(),
        };
        let mut copied = 0_usize;
        for (owner, (application, additions)) in self
            .applications
            .iter()
            .zip(&mut self.additions)
            .enumerate()
        {
            if let Some(applied) = application.applied(self.node.as_ref()) {
                copied = copied.saturating_add(applied.copied);
                for (route, part) in &applied.parts {
                    self.known
                        .routes
                        .entry(route.clone())
                        .or_default()
                        .push(part.clone());
                }
                for (route, limits) in &applied.whole_routes {
                    if let Some(route) = by_name.get(&**route) {
                        let changes = collected.of_route(*route, owner);
                        changes.limits.extend(limits.iter().cloned());
                    }
                }
            } else {
                collected.add(owner, application, additions, report);
            }
        }
        let mut changes = collected.changes;
        let has_parts = changes.values().any(|changes| !changes.parts.is_empty());
        let file = if has_parts {
            FileRoutes::new(routes)
        } else {
            FileRoutes::new(&[])
        };
        let mut changed = Vec::with_capacity(routes.len());
        for (at, mut route) in std::mem::take(routes).into_iter().enumerate() {
            if let Some(changes) = changes.remove(&at) {
                let name: Arc<str> = part::name_of(&route).unwrap_or_default().into();
                let additions = &mut self.additions[changes.owner];
                add_references(&mut route, &changes.limits, report);
                check_work(&route, [&changes.limits, &[]], &self.added, report);
                let size = route.size();
                for piece in &changes.parts {
                    copied = copied.saturating_add(size);
                    additions.copied = additions.copied.saturating_add(size);
                    if copied > MOST_COPIED {
                        let most = show_size(MOST_COPIED as u64);
                        let problem = ValueProblem::new(format!(
                            "the parts of the file's routes are over {most}"
                        ));
                        report.mistake(
                            piece.spec.at,
                            problem.hint("make fewer resources, or shorten their routes"),
                        );
                        break;
                    }
                    let place = PlaceInFile {
                        file: &file,
                        index: at,
                    };
                    let Some(part) = copy(&route, place, piece, &mut additions.bounds, report)
                    else {
                        continue;
                    };
                    if !piece.limits.is_empty() {
                        check_work(&part, [&changes.limits, &piece.limits], &self.added, report);
                    }
                    let part_name = &piece.spec.name;
                    self.known.part_of.insert(part_name.clone(), name.clone());
                    let added = (part_name.clone(), name.clone(), piece.spec.at.clone());
                    additions.parts.push(added);
                    changed.push(part);
                }
            }
            // Behind its parts: of two expressions, the first takes a request.
            changed.push(route);
        }
        *routes = changed;
    }

    /// All that comes of it besides the tree.
    pub fn into_parts(self) -> OverlayParts {
        let Self {
            applications,
            added,
            candidates,
            node,
            known,
            additions,
            file_limits,
        } = self;
        let mut keys = RouteKeys::default();
        for application in &applications {
            application.add_keys(&mut keys);
        }
        let mut plans = PolicyPlans::default();
        let mut all = Vec::new();
        for (application, additions) in applications.into_iter().zip(additions) {
            if application.applied(node.as_ref()).is_none() {
                plans.0.extend(application.plans.iter().cloned());
                all.push((application, additions));
            }
        }
        // A client has the same plan in a limit that may come in place of the other.
        for candidate in &candidates {
            let strategy = joined_name(&candidate.application, &candidate.strategy);
            if let Some(plan) = plans.0.get(&strategy).cloned() {
                plans.0.insert(candidate.limit.to_string(), plan);
            }
        }
        // By its name alone, a strategy without a limit would change one of the file.
        plans.0.retain(|limit, _| added.contains_key(limit));
        let additions = node.map(|node| NodeAdditions { node, all });
        OverlayParts {
            plans,
            candidates,
            keys: Some(keys),
            known,
            file_limits: Some(file_limits),
            additions,
        }
    }
}

/// The limits of an application's strategies on a node, except those with a mistake, which is
/// reported.
fn strategy_limits(
    application: &CheckedApplication,
    node: Option<&str>,
    upstreams: &OwnedUpstreams,
    known: &mut HashMap<String, Location>,
    report: &mut Report,
) -> Vec<StrategyLimit> {
    let mut found = Vec::new();
    for (strategy, raw) in application.strategies() {
        let place = StrategyPlace {
            application: &application.name,
            strategy: &strategy.text,
            limit: joined_name(&application.name, &strategy.text),
            at: &strategy.location,
        };
        let is_free = take_names(&place.limit, place.at, known, report);
        for limit in candidate::limits_of(place, raw, node, report) {
            upstreams.check(&application.name, &limit.tree, report);
            if is_free && is_short(&limit.name, &limit.at, report) {
                found.push(limit);
            }
        }
    }
    found
}

/// Takes the names that the limits of a strategy may ever have, so that on no node a limit of the
/// file is mistaken for one of them. `false`: one is taken already, which is reported.
fn take_names(
    name: &str,
    at: &Location,
    known: &mut HashMap<String, Location>,
    report: &mut Report,
) -> bool {
    let names = [name.to_owned(), candidate_name(name)];
    if let Some((taken, first)) = names.iter().find_map(|name| Some((name, known.get(name)?))) {
        let place = first.line_beside(at);
        let problem = ValueProblem::new(format!(
            "there is a limit {} already, on {place}",
            quote(taken)
        ));
        report.mistake(at, problem.hint("give the strategy another name"));
        return false;
    }
    known.extend(names.map(|name| (name, at.clone())));
    true
}

/// A route of the file.
#[derive(Clone, Copy)]
struct PlaceInFile<'a> {
    file: &'a FileRoutes,
    index: usize,
}

/// The part as a route. `None`: a mistake was reported.
fn copy(
    route: &YamlNode,
    place: PlaceInFile<'_>,
    piece: &PartOfRoute<'_>,
    bounds: &mut PartBounds,
    report: &mut Report,
) -> Option<YamlNode> {
    let whole = place.file.matches(place.index)?;
    let conditions = piece.spec.conditions;
    let at_conditions = &conditions.location;
    bounds.add_pairs(part::pairs(conditions, whole), at_conditions, report)?;
    let (mut copy, narrowed) = part::of(route, whole, &piece.spec, report)?;
    bounds.add(&narrowed, whole, at_conditions, report)?;
    if let Some(other) = place.file.robbed(&narrowed, place.index) {
        let problem = ValueProblem::new(format!(
            "some of its requests are those of route {}",
            quote(other)
        ));
        let hint = "narrow it: a part has only requests that its own route has without it";
        report.mistake(at_conditions, problem.hint(hint));
        return None;
    }
    add_references(&mut copy, &piece.limits, report);
    Some(copy)
}

/// The members of a section, which is made if it is absent. `None`: it is no mapping, which its own
/// check reports.
fn members_of<'a>(
    sections: &'a mut Vec<NodeEntry>,
    key: &str,
    root: &Location,
) -> Option<&'a mut Vec<NodeEntry>> {
    let at = sections
        .iter()
        .position(|section| section.key == key)
        .unwrap_or_else(|| {
            let location = root.key(key, root.position());
            let value = YamlNode {
                location: location.clone(),
                value: YamlValue::Map(Vec::new()),
            };
            sections.push(NodeEntry {
                key: key.to_owned(),
                key_location: location,
                value,
            });
            sections.len() - 1
        });
    let value = &mut sections.get_mut(at)?.value.value;
    if value.is_null() {
        *value = YamlValue::Map(Vec::new());
    }
    if let YamlValue::Map(members) = value {
        Some(members)
    } else {
        None
    }
}

//! The policy document laid over a file's tree: strategies become limits, and resources the routes
//! that name them.
//!
//! Works on the tree, so that the rest of the configuration checks what comes of it. Limits go in
//! before the file's defaults are applied, for these complete them; routes change after that, for a
//! route that has limits of its own gets no default ones.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tollgate_limiter::limit::units::show_size;

use super::application::{CheckedApplication, checked_applications, conditions_of};
use super::applied::PolicyAdditions;
use super::candidate::{self, StrategyLimit, candidate_name, joined_name};
use super::document::PolicySet;
use super::limit_references::{LimitReference, LimitWork, add_references, check_work};
use super::node_additions::NodeAdditions;
use super::owned::routes::OwnedRoutes;
use super::owned::upstreams::OwnedUpstreams;
use super::part;
use super::part_bounds::PartBounds;
use super::precedence::FileRoutes;
use crate::config::candidate::Candidate;
use crate::config::check::KnownParts;
use crate::config::file::policies::RawApplication;
use crate::config::file::policies::plans::PolicyPlans;
use crate::config::file::scalar::text::DefinedName;
use crate::config::report::{Location, Report, ValueProblem, quote};
use crate::config::yaml::decode::Located;
use crate::config::yaml::node::{NodeEntry, YamlNode, YamlValue};
use crate::identity::api_key::RouteKeys;

/// Bytes of copied routes at most: parts of long routes would fill all memory.
const MOST_COPIED: usize = 256 << 20;

/// A policy document that could be read.
#[derive(Default)]
pub struct Overlay {
    applications: Vec<Arc<CheckedApplication>>,
    /// The limits that were added: routes name no others, for a mistake is told once.
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

/// A part of a route that becomes a route of its own.
struct PartOfRoute<'a> {
    name: String,
    at: &'a Location,
    conditions: &'a YamlNode,
    limits: Vec<LimitReference>,
}

/// The changes of one route of the file.
struct RouteChanges<'a> {
    /// The application that it is of, by its place.
    owner: usize,
    /// Of all of its requests.
    limits: Vec<LimitReference>,
    parts: Vec<PartOfRoute<'a>>,
}

impl Overlay {
    /// Of applications, for the `node` with this name.
    pub fn of(applications: Vec<Arc<CheckedApplication>>, node: Option<Arc<str>>) -> Self {
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
        checked_applications(&root, report).map(|applications| Self::of(applications, node))
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
            let application = (&**application, self.node.as_deref());
            for limit in strategy_limits(application, &upstreams, &mut known, report) {
                let StrategyLimit {
                    name,
                    at,
                    tree,
                    candidate,
                } = limit;
                self.added.insert(name.clone(), LimitWork::of(&tree));
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
        let mut changes: HashMap<usize, RouteChanges<'_>> = HashMap::new();
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
                    let Some(route) = by_name.get(&**route) else {
                        continue;
                    };
                    changes
                        .entry(*route)
                        .or_insert_with(|| RouteChanges::by(owner))
                        .limits
                        .extend(limits.iter().cloned());
                }
            } else if let Some(raw) = &application.raw {
                let owner = (owner, &**application, raw);
                changes_of(
                    owner,
                    &self.added,
                    (&by_name, &owned),
                    (&mut changes, additions),
                    report,
                );
            }
        }
        let has_parts = changes.values().any(|changes| !changes.parts.is_empty());
        let file = if has_parts {
            FileRoutes::of(routes)
        } else {
            FileRoutes::of(&[])
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
                            piece.at,
                            problem.hint("make fewer resources, or shorten their routes"),
                        );
                        break;
                    }
                    let Some(part) =
                        copy(&route, (at, &file), piece, &mut additions.bounds, report)
                    else {
                        continue;
                    };
                    if !piece.limits.is_empty() {
                        check_work(&part, [&changes.limits, &piece.limits], &self.added, report);
                    }
                    self.known.part_of.insert(piece.name.clone(), name.clone());
                    additions
                        .parts
                        .push((piece.name.clone(), name.clone(), piece.at.clone()));
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
        applications
            .iter()
            .for_each(|application| application.add_keys(&mut keys));
        let is_new = |(application, _): &(Arc<CheckedApplication>, PolicyAdditions)| {
            application.applied(node.as_ref()).is_none()
        };
        let all: Vec<_> = applications
            .into_iter()
            .zip(additions)
            .filter(is_new)
            .collect();
        let mut plans = PolicyPlans::default();
        plans.0.extend(
            all.iter()
                .flat_map(|(application, _)| application.plans.iter().cloned()),
        );
        // A client has the same plan in a limit that may come in place of the other.
        for candidate in &candidates {
            let same = plans
                .0
                .get(&joined_name(&candidate.application, &candidate.strategy))
                .cloned();
            plans
                .0
                .extend(same.map(|same| (candidate.limit.to_string(), same)));
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

impl RouteChanges<'_> {
    fn by(owner: usize) -> Self {
        Self {
            owner,
            limits: Vec::new(),
            parts: Vec::new(),
        }
    }
}

/// The limits of an application's strategies on a node, except those with a mistake, which is
/// reported.
fn strategy_limits(
    (application, node): (&CheckedApplication, Option<&str>),
    upstreams: &OwnedUpstreams,
    known: &mut HashMap<String, Location>,
    report: &mut Report,
) -> Vec<StrategyLimit> {
    let mut found = Vec::new();
    for (strategy, raw) in application.strategies() {
        let (name, at) = (
            joined_name(&application.name, &strategy.text),
            &strategy.location,
        );
        let is_free = take_names(&name, at, known, report);
        let names = (&*application.name, &*strategy.text, name);
        for limit in candidate::limits_of(names, at, raw, node, report) {
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

/// The changes of routes that an application asks for.
fn changes_of<'a>(
    (owner, application, raw): (usize, &'a CheckedApplication, &'a RawApplication),
    added: &HashMap<String, LimitWork>,
    (routes, owned): (&HashMap<String, usize>, &OwnedRoutes<'_>),
    (changes, additions): (&mut HashMap<usize, RouteChanges<'a>>, &mut PolicyAdditions),
    report: &mut Report,
) {
    let name = &*application.name;
    let mut by_resource: HashMap<&str, Vec<LimitReference>> = HashMap::new();
    let resources = raw.resources.members();
    let known: HashSet<&str> = resources
        .iter()
        .map(|resource| resource.text.as_str())
        .collect();
    for (strategy, raw_strategy) in raw
        .strategies
        .members()
        .iter()
        .filter_map(|one| Some((one, one.value.as_ref()?)))
    {
        let limit = joined_name(name, &strategy.text);
        let tried = candidate_name(&limit);
        let limits: Vec<String> = [limit, tried]
            .into_iter()
            .filter(|limit| added.contains_key(limit))
            .collect();
        let mut seen = HashSet::new();
        for Located {
            location,
            value: DefinedName(resource),
        } in raw_strategy
            .resources
            .valid()
            .iter()
            .flat_map(|list| &list.0)
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
                    (resource, known),
                    otherwise,
                );
            }
        }
    }
    for (entry, resource) in resources
        .iter()
        .filter_map(|entry| Some((entry, entry.value.as_ref()?)))
    {
        let limits = by_resource.remove(entry.text.as_str()).unwrap_or_default();
        let Some(route) = owned.find((application, raw), resource, report) else {
            continue;
        };
        let route = changes
            .entry(route)
            .or_insert_with(|| RouteChanges::by(owner));
        match conditions_of(resource) {
            Some(conditions) => {
                let name = joined_name(name, &entry.text);
                if routes.contains_key(&name) {
                    let problem =
                        ValueProblem::new(format!("the file has a route {} already", quote(&name)));
                    report.mistake(
                        &entry.location,
                        problem.hint("give the resource another name"),
                    );
                } else if is_short(&name, &entry.location, report) {
                    route.parts.push(PartOfRoute {
                        name,
                        at: &entry.location,
                        conditions,
                        limits,
                    });
                }
            }
            None if resource.r#match.is_invalid() => {}
            None => {
                let of = resource.route.value().map(|name| name.0);
                additions
                    .whole_routes
                    .extend(of.map(|of| (of, limits.clone())));
                route.limits.extend(limits);
            }
        }
    }
}

/// The part as a route. `None`: a mistake was reported.
fn copy(
    route: &YamlNode,
    (at, file): (usize, &FileRoutes),
    piece: &PartOfRoute<'_>,
    bounds: &mut PartBounds,
    report: &mut Report,
) -> Option<YamlNode> {
    let whole = file.matches(at)?;
    let at_conditions = &piece.conditions.location;
    bounds.add_pairs(part::pairs(piece.conditions, whole), at_conditions, report)?;
    let (mut copy, narrowed) = part::of(
        (route, whole),
        piece.conditions,
        (&piece.name, piece.at),
        report,
    )?;
    bounds.add(&narrowed, whole, at_conditions, report)?;
    if let Some(other) = file.robbed(&narrowed, at) {
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

/// Whether a joined name may be that of a limit or a route, which is reported otherwise.
fn is_short(name: &str, at: &Location, report: &mut Report) -> bool {
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

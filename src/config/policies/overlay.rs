//! The policy document laid over a file's tree: strategies become limits, and resources the routes that name them.
//!
//! Works on the tree, so that the rest of the configuration checks what comes of it. Limits go in before the file's defaults
//! are applied, for these complete them; routes change after that, for a route that has limits of its own gets no default ones.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tollgate_limiter::limit::units::show_size;
use tollgate_policies::model::is_plain_text;

use super::candidate::{self, StrategyLimit, candidate_name};
use super::document::PolicySet;
use super::limit_references::{LimitReference, add_references};
use super::owned_routes::OwnedRoutes;
use super::owned_upstreams::OwnedUpstreams;
use super::part;
use super::precedence::FileRoutes;
use crate::config::candidate::Candidate;
use crate::config::file::policies::plans::{
    ApplicationClients, AssignedClient, PolicyPlans, StrategyPlan, StrategyPlans,
};
use crate::config::file::policies::{RawApplication, RawPolicies, RawResource, RawStrategy};
use crate::config::file::scalar::text::DefinedName;
use crate::config::report::{Location, Report, ValueProblem, quote};
use crate::config::yaml::collection::{Mapping, MappingEntry};
use crate::config::yaml::decode::{Decode, Located, Setting};
use crate::config::yaml::node::{NodeEntry, YamlNode, YamlValue};

/// Bytes of copied routes at most: parts of long routes would fill all memory.
const MOST_COPIED: usize = 256 << 20;

/// Bytes of an application's description at most.
const LONGEST_DESCRIPTION: usize = 1_024;

/// A policy document that could be read.
#[derive(Default)]
pub struct Overlay {
    applications: Vec<MappingEntry<DefinedName, RawApplication>>,
    /// The limits that were added: routes name no others, for a mistake is told once.
    added: HashSet<String>,
    /// The candidates among them.
    candidates: Vec<Candidate>,
    /// The name of the node that it is for. `None`: it is to fit any.
    node: Option<Arc<str>>,
}

/// A part of a route that becomes a route of its own.
struct PartOfRoute<'a> {
    name: String,
    at: &'a Location,
    conditions: &'a YamlNode,
    limits: Vec<LimitReference>,
}

/// The changes of one route of the file.
#[derive(Default)]
struct RouteChanges<'a> {
    /// Of all of its requests.
    limits: Vec<LimitReference>,
    parts: Vec<PartOfRoute<'a>>,
}

impl Overlay {
    /// Reads the document. `None`: a mistake was reported.
    pub fn read(set: &PolicySet, report: &mut Report) -> Option<Self> {
        report.include(set.name.clone());
        let RawPolicies { applications } = RawPolicies::decode(&set.root, report)?;
        check_applications(&applications, report);
        let node = set.node.clone();
        match applications {
            Setting::Absent => Some(Self { node, ..Self::default() }),
            Setting::Invalid => None,
            Setting::Valid(Mapping(applications)) => Some(Self { applications, node, ..Self::default() }),
        }
    }

    /// Adds the limits of each strategy to those of the file.
    pub fn add_limits(&mut self, root: &mut YamlNode, report: &mut Report) {
        let YamlValue::Map(sections) = &mut root.value else { return };
        let Some(limits) = members_of(sections, "limits", &root.location) else { return };
        let mut known: HashMap<String, Location> =
            limits.iter().map(|limit| (limit.key.clone(), limit.key_location.clone())).collect();
        let (mut added, mut candidates) = (HashSet::new(), Vec::new());
        let upstreams = OwnedUpstreams::read(&self.applications);
        for (application, strategy, raw) in self.strategies() {
            let names = (application, &*strategy.text, joined_name(application, &strategy.text));
            for limit in candidate::limits_of(names, &strategy.location, raw, self.node.as_deref(), report) {
                let StrategyLimit { name, at, tree, candidate } = limit;
                upstreams.check(application, &tree, report);
                if let Some(first) = known.get(&name) {
                    let place = first.line_beside(&at);
                    let problem = ValueProblem::new(format!("there is a limit {} already, on {place}", quote(&name)));
                    report.mistake(&at, problem.hint("give the strategy another name"));
                    continue;
                }
                if !is_short(&name, &at, report) {
                    continue;
                }
                known.insert(name.clone(), at.clone());
                added.insert(name.clone());
                candidates.extend(candidate);
                limits.push(NodeEntry { key: name, key_location: at, value: tree });
            }
        }
        (self.added, self.candidates) = (added, candidates);
    }

    /// Adds the limits to the routes that resources name, and the parts of these routes beside them.
    pub fn change_routes(&self, root: &mut YamlNode, report: &mut Report) {
        let YamlValue::Map(sections) = &mut root.value else { return };
        let Some(section) = sections.iter_mut().find(|section| section.key == "routes") else { return };
        let YamlValue::List(routes) = &mut section.value.value else { return };
        let by_name: HashMap<String, usize> =
            routes.iter().enumerate().filter_map(|(at, route)| Some((part::name_of(route)?.to_owned(), at))).collect();
        let owned = OwnedRoutes::read(&self.applications, &by_name, report);
        let mut changes: HashMap<usize, RouteChanges<'_>> = HashMap::new();
        for application in &self.applications {
            if let Some(raw) = &application.value {
                changes_of((&application.text, raw), &self.added, (&by_name, &owned), &mut changes, report);
            }
        }
        let has_parts = changes.values().any(|changes| !changes.parts.is_empty());
        let file = if has_parts { FileRoutes::of(routes) } else { FileRoutes::of(&[]) };
        let mut copied = 0_usize;
        let mut changed = Vec::with_capacity(routes.len());
        for (at, mut route) in std::mem::take(routes).into_iter().enumerate() {
            if let Some(changes) = changes.remove(&at) {
                add_references(&mut route, &changes.limits, report);
                let size = route.size();
                for piece in changes.parts {
                    copied = copied.saturating_add(size);
                    if copied > MOST_COPIED {
                        let most = show_size(MOST_COPIED as u64);
                        let problem = ValueProblem::new(format!("the parts of the file's routes are over {most}"));
                        report.mistake(piece.at, problem.hint("make fewer resources, or shorten their routes"));
                        break;
                    }
                    changed.extend(copy(&route, (at, &file), &piece, report));
                }
            }
            // Behind its parts: of two expressions, the first takes a request.
            changed.push(route);
        }
        *routes = changed;
    }

    /// The plans of all applications with their limits, and the candidates among these.
    pub fn into_parts(self, report: &mut Report) -> (PolicyPlans, Vec<Candidate>) {
        let mut all = PolicyPlans::default();
        for MappingEntry { text, value, .. } in self.applications {
            if let Some(raw) = value {
                plans_of(&text, raw, &mut all, report);
            }
        }
        // A client has the same plan in a limit that may come in place of the other.
        for candidate in &self.candidates {
            let plans = all.0.get(&joined_name(&candidate.application, &candidate.strategy)).cloned();
            all.0.extend(plans.map(|plans| (candidate.limit.to_string(), plans)));
        }
        (all, self.candidates)
    }

    fn strategies(&self) -> impl Iterator<Item = (&str, &MappingEntry<DefinedName, RawStrategy>, &RawStrategy)> {
        let applications = self
            .applications
            .iter()
            .filter_map(|entry| entry.key.as_ref().and(Some((entry.text.as_str(), entry.value.as_ref()?))));
        applications.flat_map(|(name, application)| {
            let strategies = members(&application.strategies).iter();
            strategies.filter_map(move |entry| entry.key.as_ref().and(Some((name, entry, entry.value.as_ref()?))))
        })
    }
}

/// Checks applications themselves. A dot in a name would give `APPLICATION.STRATEGY` two readings, and each node
/// keeps all of the document in memory.
fn check_applications(applications: &Setting<Mapping<DefinedName, RawApplication>>, report: &mut Report) {
    for application in members(applications) {
        if application.text.contains('.') {
            let problem = ValueProblem::new("an application's name has no dot");
            report.mistake(&application.location, problem.hint("write a dash or an underscore"));
        }
        let description = application.value.as_ref().and_then(|raw| raw.description.valid());
        if let Some(Located { location, .. }) = description.filter(|text| text.value.0.len() > LONGEST_DESCRIPTION) {
            let problem = ValueProblem::new(format!("the description is over {LONGEST_DESCRIPTION} bytes"));
            report.mistake(location, problem.hint("shorten it"));
        }
        if let Some(Located { location, .. }) = description.filter(|text| !is_plain_text(&text.value.0)) {
            let problem = ValueProblem::new("the description has characters that show nothing, or turn a line around");
            report.mistake(location, problem.hint("take control characters and marks of direction out"));
        }
    }
}

/// The changes of routes that an application asks for.
fn changes_of<'a>(
    (application, raw): (&'a str, &'a RawApplication),
    added: &HashSet<String>,
    (routes, owned): (&HashMap<String, usize>, &OwnedRoutes<'_>),
    changes: &mut HashMap<usize, RouteChanges<'a>>,
    report: &mut Report,
) {
    let mut by_resource: HashMap<&str, Vec<LimitReference>> = HashMap::new();
    let resources = members(&raw.resources);
    let known: HashSet<&str> = resources.iter().map(|resource| resource.text.as_str()).collect();
    for (strategy, raw_strategy) in members(&raw.strategies).iter().filter_map(|one| Some((one, one.value.as_ref()?))) {
        let limit = joined_name(application, &strategy.text);
        let tried = candidate_name(&limit);
        let limits: Vec<String> = [limit, tried].into_iter().filter(|limit| added.contains(limit)).collect();
        let mut seen = HashSet::new();
        for Located { location, value: DefinedName(resource) } in
            raw_strategy.resources.valid().iter().flat_map(|list| &list.0)
        {
            if !seen.insert(resource) {
                let problem = ValueProblem::new(format!("{} is in the list twice", quote(resource)));
                report.mistake(location, problem.hint("keep one of the two"));
            } else if let Some(resource) = known.get(&**resource) {
                let counted = limits.iter().map(|limit| (limit.clone(), location.clone()));
                by_resource.entry(resource).or_default().extend(counted);
            } else if !raw.resources.is_invalid() {
                let what = format!("application {} has no resource {}", quote(application), quote(resource));
                let otherwise = "define it under \"resources\" of the application";
                report.mistake(location, ValueProblem::new(what).suggest(resource, known.iter().copied(), otherwise));
            }
        }
    }
    for (entry, resource) in resources.iter().filter_map(|entry| Some((entry, entry.value.as_ref()?))) {
        let limits = by_resource.remove(entry.text.as_str()).unwrap_or_default();
        let Some(route) = owned.find((application, raw), resource, report) else { continue };
        let route = changes.entry(route).or_default();
        let RawResource { r#match, .. } = resource;
        match r#match {
            Setting::Valid(conditions) if !part::is_whole(&conditions.0) => {
                let name = joined_name(application, &entry.text);
                if routes.contains_key(&name) {
                    let problem = ValueProblem::new(format!("the file has a route {} already", quote(&name)));
                    report.mistake(&entry.location, problem.hint("give the resource another name"));
                } else if is_short(&name, &entry.location, report) {
                    route.parts.push(PartOfRoute { name, at: &entry.location, conditions: &conditions.0, limits });
                }
            }
            Setting::Invalid => {}
            Setting::Absent | Setting::Valid(_) => route.limits.extend(limits),
        }
    }
}

/// The part as a route. `None`: a mistake was reported.
fn copy(
    route: &YamlNode,
    (at, file): (usize, &FileRoutes),
    piece: &PartOfRoute<'_>,
    report: &mut Report,
) -> Option<YamlNode> {
    let whole = file.matches(at)?;
    let (mut copy, narrowed) = part::of((route, whole), piece.conditions, (&piece.name, piece.at), report)?;
    if let Some(other) = file.robbed(&narrowed, at) {
        let problem = ValueProblem::new(format!("some of its requests are those of route {}", quote(other)));
        let hint = "narrow it: a part has only requests that its own route has without it";
        report.mistake(&piece.conditions.location, problem.hint(hint));
        return None;
    }
    add_references(&mut copy, &piece.limits, report);
    Some(copy)
}

/// The plans of one application, whose mistakes against its strategies are reported.
fn plans_of(application: &str, raw: RawApplication, all: &mut PolicyPlans, report: &mut Report) {
    let RawApplication { strategies, plans, clients, .. } = raw;
    let plans_are_known = !plans.is_invalid();
    let strategies_are_known = !strategies.is_invalid();
    let plans = into_members(plans);
    let names: HashMap<String, Arc<str>> =
        plans.iter().map(|plan| (plan.text.clone(), plan.text.as_str().into())).collect();
    let mut assigned = Vec::new();
    for MappingEntry { text: client, location, value, .. } in into_members(clients) {
        let Some(Located { location: at, value: DefinedName(plan) }) = value else { continue };
        match names.get(&*plan) {
            Some(plan) => assigned.push(AssignedClient { client, location, plan: plan.clone() }),
            None if plans_are_known => {
                let what = format!("application {} has no plan {}", quote(application), quote(&plan));
                let problem = ValueProblem::new(what);
                let otherwise = "define it under \"plans\" of the application";
                report.mistake(&at, problem.suggest(&plan, names.keys().map(String::as_str), otherwise));
            }
            None => {}
        }
    }
    let clients = Arc::new(ApplicationClients { name: application.into(), clients: assigned });
    let mut by_strategy: HashMap<String, StrategyPlans> = HashMap::new();
    for MappingEntry { text, value, .. } in into_members(strategies) {
        let by = value.and_then(|raw| raw.client.take(Some)).flatten();
        by_strategy.insert(text, StrategyPlans { application: clients.clone(), by, plans: Vec::new() });
    }
    for MappingEntry { text: plan, value, .. } in plans {
        let limits = value.map(|raw| into_members(raw.limits)).unwrap_or_default();
        for MappingEntry { text: strategy, location, value: raw, .. } in limits {
            match by_strategy.get_mut(&strategy) {
                Some(found) => found.plans.push(StrategyPlan { name: plan.as_str().into(), raw }),
                None if strategies_are_known => {
                    let what = format!("application {} has no strategy {}", quote(application), quote(&strategy));
                    let problem = ValueProblem::new(what);
                    let otherwise = "define it under \"strategies\" of the application";
                    let known = by_strategy.keys().map(String::as_str);
                    report.mistake(&location, problem.suggest(&strategy, known, otherwise));
                }
                None => {}
            }
        }
    }
    let planned = by_strategy.into_iter().filter(|(_, plans)| !plans.plans.is_empty());
    all.0.extend(planned.map(|(strategy, plans)| (joined_name(application, &strategy), Arc::new(plans))));
}

/// The name that a strategy's limit and a part of a route have.
fn joined_name(application: &str, name: &str) -> String {
    format!("{application}.{name}")
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

/// The members of a section, which is made if it is absent. `None`: it is no mapping, which its own check reports.
fn members_of<'a>(sections: &'a mut Vec<NodeEntry>, key: &str, root: &Location) -> Option<&'a mut Vec<NodeEntry>> {
    let at = sections.iter().position(|section| section.key == key).unwrap_or_else(|| {
        let location = root.key(key, root.position());
        let value = YamlNode { location: location.clone(), value: YamlValue::Map(Vec::new()) };
        sections.push(NodeEntry { key: key.to_owned(), key_location: location, value });
        sections.len() - 1
    });
    let value = &mut sections.get_mut(at)?.value.value;
    if value.is_null() {
        *value = YamlValue::Map(Vec::new());
    }
    if let YamlValue::Map(members) = value { Some(members) } else { None }
}

fn members<K, V>(setting: &Setting<Mapping<K, V>>) -> &[MappingEntry<K, V>] {
    setting.valid().map_or(&[], |Mapping(entries)| entries)
}

fn into_members<K, V>(setting: Setting<Mapping<K, V>>) -> Vec<MappingEntry<K, V>> {
    match setting {
        Setting::Valid(Mapping(entries)) => entries,
        Setting::Absent | Setting::Invalid => Vec::new(),
    }
}

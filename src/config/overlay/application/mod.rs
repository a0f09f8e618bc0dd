//! An application of a policy document by itself: read, and checked as far as that goes without the
//! file and without other applications. What comes of it stays good for as long as its objects do.
//!
//! `bounds` says how much it may have, and `limit_rules` what its limits may not; `plans` and
//! `keys` make tables of its plans and its API keys.

mod bounds;
mod keys;
mod limit_rules;
mod plans;

use std::sync::{Arc, OnceLock};

use super::applied::AppliedApplication;
use super::candidate::joined_name;
use super::part;
use crate::config::file::policies::plans::StrategyPlans;
use crate::config::file::policies::{RawApplication, RawPolicies, RawResource, RawStrategy};
use crate::config::file::scalar::text::{DefinedName, PlainText};
use crate::config::report::{Location, Report, ValueProblem};
use crate::config::yaml::collection::MappingEntry;
use crate::config::yaml::decode::{Decode, Located};
use crate::config::yaml::node::YamlNode;
use crate::identity::api_key::{ApiKeyTable, RouteKeys};
use crate::plain_text::is_plain_text;

/// Bytes of a description at most.
const LONGEST_DESCRIPTION: usize = 1_024;

/// An application, ready to be laid over a file.
pub struct CheckedApplication {
    pub name: String,
    /// Without the plans, clients and keys. `None`: it has a mistake, which was reported.
    pub raw: Option<RawApplication>,
    /// Whether limits can be called after it.
    has_good_name: bool,
    /// The plans of its limits, by their names.
    pub plans: Vec<(String, Arc<StrategyPlans>)>,
    keys: Option<Arc<ApiKeyTable>>,
    /// The result of laying it over the file of its node.
    applied: OnceLock<AppliedApplication>,
}

impl CheckedApplication {
    /// Reports what is wrong with the application.
    pub fn of(entry: MappingEntry<DefinedName, RawApplication>, report: &mut Report) -> Self {
        let MappingEntry {
            text: name,
            location,
            key,
            value: mut raw,
        } = entry;
        check(&name, &location, raw.as_ref(), report);
        let keys = raw.as_mut().and_then(|raw| keys::table(&name, raw, report));
        let plans = raw
            .as_mut()
            .map(|raw| plans::of(&name, raw, report))
            .unwrap_or_default();
        let applied = OnceLock::new();
        Self {
            name,
            raw,
            has_good_name: key.is_some(),
            plans,
            keys: keys.map(Arc::new),
            applied,
        }
    }

    /// The result on this `node` with the same file, if that is known.
    pub fn applied(&self, node: Option<&Arc<str>>) -> Option<&AppliedApplication> {
        self.applied.get().filter(|applied| applied.is_for(node))
    }

    /// Keeps what has come of it.
    pub fn keep_applied(&self, applied: AppliedApplication) {
        // The first holds: what has come of it elsewhere is not for this node.
        let _ = self.applied.set(applied);
    }

    pub fn strategies(
        &self,
    ) -> impl Iterator<Item = (&MappingEntry<DefinedName, RawStrategy>, &RawStrategy)> {
        let raw = self.raw.as_ref().filter(|_| self.has_good_name);
        let strategies = raw.map(|raw| raw.strategies.members()).unwrap_or_default();
        strategies
            .iter()
            .filter_map(|entry| entry.key.as_ref().and(Some((entry, entry.value.as_ref()?))))
    }

    /// The file's routes that it lists, and where.
    pub fn routes(&self) -> impl Iterator<Item = (&str, &Location)> {
        let listed = self
            .raw
            .iter()
            .filter_map(|raw| raw.routes.valid())
            .flat_map(|list| &list.0);
        listed.map(|route| (&*route.value.0, &route.location))
    }

    /// Adds its keys to those of its routes and of their parts.
    pub fn add_keys(&self, all: &mut RouteKeys) {
        let Some(table) = &self.keys else { return };
        let resources = self.raw.iter().flat_map(|raw| raw.resources.members());
        let parts =
            resources.filter(|entry| entry.value.as_ref().and_then(conditions_of).is_some());
        let parts = parts.map(|part| joined_name(&self.name, &part.text));
        for route in self
            .routes()
            .map(|(route, _)| route.to_owned())
            .chain(parts)
        {
            all.add(route, table.clone());
        }
    }
}

/// The applications of a document. `None`: a mistake was reported.
pub fn checked_applications(
    document: &YamlNode,
    report: &mut Report,
) -> Option<Vec<Arc<CheckedApplication>>> {
    let RawPolicies { applications } = RawPolicies::decode(document, report)?;
    let is_known = !applications.is_invalid();
    let checked = |entry| Arc::new(CheckedApplication::of(entry, report));
    is_known.then(|| {
        applications
            .into_members()
            .into_iter()
            .map(checked)
            .collect()
    })
}

/// The conditions of a resource that is a part of its route. `None`: it is the whole route.
pub fn conditions_of(resource: &RawResource) -> Option<&YamlNode> {
    resource
        .r#match
        .valid()
        .map(|conditions| &conditions.0)
        .filter(|conditions| !part::is_whole(conditions))
}

/// Checks the application itself. A dot in a name would give `APPLICATION.STRATEGY` two readings,
/// and each node keeps all of it in memory.
fn check(name: &str, at: &Location, raw: Option<&RawApplication>, report: &mut Report) {
    if name.contains('.') {
        let problem = ValueProblem::new("an application's name has no dot");
        report.mistake(at, problem.hint("write a dash or an underscore"));
    }
    let Some(raw) = raw else { return };
    bounds::check_counts(name, raw, report);
    limit_rules::check(raw, report);
    let Some(Located {
        location,
        value: PlainText(text),
    }) = raw.description.valid()
    else {
        return;
    };
    if text.len() > LONGEST_DESCRIPTION {
        let problem = ValueProblem::new(format!(
            "the description is over {LONGEST_DESCRIPTION} bytes"
        ));
        report.mistake(location, problem.hint("shorten it"));
    }
    if !is_plain_text(text) {
        let problem = ValueProblem::new(
            "the description has characters that show nothing, or turn a line around",
        );
        report.mistake(
            location,
            problem.hint("take control characters and marks of direction out"),
        );
    }
}

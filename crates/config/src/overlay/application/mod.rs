//! An application of a policy document, read and checked without the file and without the other
//! applications. The result holds for as long as the application's objects do.
//!
//! `bounds` says how much it may have, and `limit_rules` what its limits may not; `plans` and
//! `keys` make tables of its plans and its API keys.

mod bounds;
mod keys;
pub mod limit_rules;
mod plans;

use std::sync::{Arc, OnceLock};

use self::plans::ApplicationPlans;
use super::applied::AppliedApplication;
use super::candidate::joined_name;
use crate::candidate::Stage;
use crate::report::{Location, Report, ValueProblem};
use crate::scalar::text::{DefinedName, PlainText};
use crate::section::policies::document::{RawApplication, RawPolicies, RawStrategy};
use crate::yaml::collection::MappingEntry;
use crate::yaml::decode::{Decode, Located};
use crate::yaml::node::YamlNode;
use tollgate_identity::api_key::{ApiKeyTable, RouteKeys};
use tollgate_spec::plain_text::is_plain_text;

/// Bytes of a description at most.
const LONGEST_DESCRIPTION: usize = 1_024;

/// An application that can be applied to a file.
pub struct CheckedApplication {
    pub name: String,
    /// Without the plans, clients and keys. `None`: it has a mistake, which was reported.
    pub raw: Option<RawApplication>,
    /// Whether limits can be called after it.
    has_good_name: bool,
    pub plans: ApplicationPlans,
    keys: Option<Arc<ApiKeyTable>>,
    /// The application over the file of its node.
    applied: OnceLock<Arc<AppliedApplication>>,
}

impl CheckedApplication {
    /// Reports what is wrong with the application.
    pub fn new(entry: MappingEntry<DefinedName, RawApplication>, report: &mut Report) -> Self {
        let MappingEntry {
            text: name,
            location,
            key,
            value: mut raw,
        } = entry;
        check(&name, &location, raw.as_ref(), report);
        let mut keys = None;
        let mut plans = ApplicationPlans::default();
        if let Some(raw) = &mut raw {
            keys = keys::table(&name, raw, report);
            plans = plans::read(&name, raw, report);
        }
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

    /// The application over the file of this `node`, if that is known.
    pub fn applied(&self, node: Option<&Arc<str>>) -> Option<Arc<AppliedApplication>> {
        let known = self.applied.get()?;
        if known.is_for(node) {
            Some(known.clone())
        } else {
            None
        }
    }

    /// Keeps the application over a file, which is the same file each time.
    pub fn keep_applied(&self, applied: Arc<AppliedApplication>) {
        // The first result stays: a later one is another node's.
        let _ = self.applied.set(applied);
    }

    /// Whether a candidate acts on some nodes alone.
    pub fn has_canary(&self) -> bool {
        self.strategies().any(|(_, raw)| {
            let on = raw.candidate.valid().and_then(|raw| raw.on.valid());
            on.is_some_and(|on| matches!(on.stage, Stage::Nodes(_)))
        })
    }

    pub fn strategies(
        &self,
    ) -> impl Iterator<Item = (&MappingEntry<DefinedName, RawStrategy>, &RawStrategy)> {
        let strategies = match &self.raw {
            Some(raw) if self.has_good_name => raw.strategies.members(),
            Some(_) | None => &[],
        };
        let named = strategies.iter().filter(|entry| entry.key.is_some());
        named.filter_map(|entry| Some((entry, entry.value.as_ref()?)))
    }

    /// The file's routes that the application lists, and where.
    pub fn routes(&self) -> impl Iterator<Item = (&str, &Location)> {
        let listed = self
            .raw
            .iter()
            .filter_map(|raw| raw.routes.valid())
            .flat_map(|list| &list.0);
        listed.map(|route| (&*route.value.0, &route.location))
    }

    /// Adds the application's keys to those of its routes and of their parts.
    pub fn add_keys(&self, all: &mut RouteKeys) {
        let (Some(table), Some(raw)) = (&self.keys, &self.raw) else {
            return;
        };
        for (route, _) in self.routes() {
            all.add(route.to_owned(), table.clone());
        }
        for entry in raw.resources.members() {
            if let Some(resource) = &entry.value
                && resource.part().is_some()
            {
                all.add(joined_name(&self.name, &entry.text), table.clone());
            }
        }
    }
}

/// The applications of a document. `None`: a mistake was reported.
pub fn checked_applications(
    document: &YamlNode,
    report: &mut Report,
) -> Option<Vec<Arc<CheckedApplication>>> {
    let RawPolicies { applications } = RawPolicies::decode(document, report)?;
    if applications.is_invalid() {
        return None;
    }
    let mut checked = Vec::new();
    for entry in applications.into_members() {
        checked.push(Arc::new(CheckedApplication::new(entry, report)));
    }
    Some(checked)
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

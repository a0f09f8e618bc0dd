//! Applies one application to a file: reads its limits, and changes its routes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tollgate_limiter::limit::definition::{Limit, LimitUse};

use super::application::CheckedApplication;
use super::applied::AppliedApplication;
use super::base::Base;
use super::candidate::joined_name;
use super::limit_work::LimitWork;
use super::parts::changes::{ChangedBy, PartOfRoute, RouteChanges};
use super::strategy_limits::{LimitNames, StrategyLimits, is_short};
use crate::report::{Location, Report, ValueProblem, quote};
use crate::scalar::text::DefinedName;
use crate::section::limit::assigned::{ClientTables, PlannedLimit};
use crate::section::limit::definition as limit;
use crate::section::limit::uses::CheckedUse;
use crate::section::policies::document::RawApplication;
use crate::yaml::decode::Located;

/// The application over the file. The result is kept for the next revisions unless a mistake was
/// reported, or more warnings than a report tells.
pub fn apply(
    application: &CheckedApplication,
    base: &Base<'_>,
    names: &mut LimitNames<'_>,
    report: &mut Report,
) -> Arc<AppliedApplication> {
    if let Some(known) = application.applied(base.node) {
        report.warn_again(&known.warnings);
        return known;
    }
    let mut applied = apply_anew(application, base, names, report);
    if base.node.is_none() || report.has_mistakes() {
        return Arc::new(applied);
    }
    let Some(warnings) = report.warnings_of(&format!("applications.{}", application.name)) else {
        return Arc::new(applied);
    };
    applied.warnings = warnings;
    let applied = Arc::new(applied);
    application.keep_applied(applied.clone());
    applied
}

/// Applies the application to the file. Its mistakes are reported.
fn apply_anew(
    application: &CheckedApplication,
    base: &Base<'_>,
    names: &mut LimitNames<'_>,
    report: &mut Report,
) -> AppliedApplication {
    let mut applied = AppliedApplication {
        node: base.node.cloned(),
        varies: application.has_canary(),
        ..AppliedApplication::default()
    };
    let Some(raw) = &application.raw else {
        return applied;
    };
    let counted = counted_resources(application, raw, report);
    let mut added = AddedLimits {
        application,
        base,
        tables: ClientTables::new(&application.plans.clients),
        works: HashMap::new(),
        uses: HashMap::new(),
    };
    let strategy_limits = StrategyLimits::new(application, base);
    for (strategy, raw) in application.strategies() {
        let counted = counted.get(strategy.text.as_str());
        let counted = counted.map(Vec::as_slice).unwrap_or_default();
        for limit in strategy_limits.read(strategy, raw, names, report) {
            applied.candidates.extend(limit.candidate);
            added.works.insert(limit.name.clone(), limit.work);
            let planned = added.planned(&strategy.text);
            let name = DefinedName(limit.name.into());
            let context = base.file.limit_context();
            if let Some(built) = limit::build(&name, &limit.raw, &context, planned, report) {
                let built = Arc::new(built);
                added.count(&built, counted);
                applied.limits.push(built);
            }
        }
    }
    let changes = added.changes(raw, report);
    let mut by = ChangedBy::new(base, &added.works);
    for (place, changes) in changes {
        applied.routes.extend(changes.apply(place, &mut by, report));
    }
    applied
}

/// A resource that a strategy counts, and where that is said.
type CountedResource<'a> = (&'a str, &'a Location);

/// The resources of an application, by the strategy that counts them.
fn counted_resources<'a>(
    application: &CheckedApplication,
    raw: &'a RawApplication,
    report: &mut Report,
) -> HashMap<&'a str, Vec<CountedResource<'a>>> {
    let members = raw.resources.members();
    let known: HashSet<&str> = members.iter().map(|resource| &*resource.text).collect();
    let mut by_strategy = HashMap::new();
    for strategy in raw.strategies.members() {
        let Some(resources) = strategy
            .value
            .as_ref()
            .and_then(|raw| raw.resources.valid())
        else {
            continue;
        };
        let mut counted = Vec::new();
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
            } else if known.contains(&**resource) {
                counted.push((&**resource, location));
            } else if !raw.resources.is_invalid() {
                let what = format!(
                    "application {} has no resource {}",
                    quote(&application.name),
                    quote(resource)
                );
                let otherwise = "define it under \"resources\" of the application";
                let known = known.iter().copied();
                let problem = ValueProblem::new(what);
                report.misnamed(location, problem, resource, known, otherwise);
            }
        }
        by_strategy.insert(&*strategy.text, counted);
    }
    by_strategy
}

/// The limits of an application, as they are collected.
struct AddedLimits<'a> {
    application: &'a CheckedApplication,
    base: &'a Base<'a>,
    tables: ClientTables<'a>,
    works: HashMap<String, LimitWork>,
    /// By resource.
    uses: HashMap<&'a str, Vec<CheckedUse>>,
}

impl<'a> AddedLimits<'a> {
    /// The plans that the application has for the limits of a strategy.
    fn planned(&self, strategy: &str) -> Option<PlannedLimit<'_>> {
        Some(PlannedLimit {
            plans: self.application.plans.strategies.get(strategy)?,
            tables: &self.tables,
        })
    }

    fn count(&mut self, limit: &Arc<Limit>, resources: &[CountedResource<'a>]) {
        for (resource, location) in resources {
            self.uses.entry(resource).or_default().push(CheckedUse {
                location: (*location).clone(),
                limit_use: LimitUse {
                    limit: limit.clone(),
                    cost: None,
                },
            });
        }
    }

    /// The changes of the file's routes, by the places of these.
    fn changes(
        &mut self,
        raw: &'a RawApplication,
        report: &mut Report,
    ) -> BTreeMap<usize, RouteChanges<'a>> {
        let mut changes: BTreeMap<usize, RouteChanges<'_>> = BTreeMap::new();
        for entry in raw.resources.members() {
            let Some(resource) = &entry.value else {
                continue;
            };
            let limits = self.uses.remove(&*entry.text).unwrap_or_default();
            let owned = &self.base.owned;
            let Some(route) = owned.find(self.application, raw, resource, report) else {
                continue;
            };
            let Some(part) = resource.part() else {
                if !resource.r#match.is_invalid() {
                    changes.entry(route).or_default().limits.extend(limits);
                }
                continue;
            };
            let part = PartOfRoute {
                name: joined_name(&self.application.name, &entry.text),
                location: &entry.location,
                part,
                limits,
            };
            if self.is_free(&part, report) {
                changes.entry(route).or_default().parts.push(part);
            }
        }
        changes
    }

    /// Whether a part may have its name, which is reported otherwise.
    fn is_free(&self, part: &PartOfRoute<'_>, report: &mut Report) -> bool {
        if self.base.file.routes.place(&part.name).is_some() {
            let problem = ValueProblem::new(format!(
                "the file has a route {} already",
                quote(&part.name)
            ));
            report.mistake(
                part.location,
                problem.hint("give the resource another name"),
            );
            return false;
        }
        is_short(&part.name, part.location, report)
    }
}

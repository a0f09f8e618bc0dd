//! The most that one application may have: each node keeps all of it, and reads all of it again
//! when it changes.

use tollgate_limiter::limit::units::show_size;

use crate::config::file::policies::{RawApplication, RawResource, RawStrategy};
use crate::config::file::scalar::text::DefinedName;
use crate::config::overlay::part;
use crate::config::report::{Location, Report, ValueProblem, quote};
use crate::config::yaml::collection::{Mapping, MappingEntry};
use crate::config::yaml::decode::Setting;
use crate::config::yaml::node::YamlValue;
use crate::route::expression::PathExpression;

const MOST_STRATEGIES: usize = 1_000;
const MOST_RESOURCES: usize = 1_000;
const MOST_PLANS: usize = 1_000;
const MOST_CLIENTS: usize = 200_000;
const MOST_KEYS: usize = 200_000;
/// Limits in all plans together: each takes some kilobytes while it is checked.
const MOST_PLAN_LIMITS: usize = 20_000;
/// A client may choose a path that takes each expression as long as its compiled size says.
const MOST_EXPRESSIONS: usize = 16;
const MOST_COMPILED: usize = 16 << 10;
const MOST_COMPILED_IN_SUM: usize = 32 << 10;
/// Each keeps the counts of its last minutes, on each node.
const MOST_CANDIDATES: usize = 50;

/// Reports what an application has too many of.
pub fn check_counts(application: &str, raw: &RawApplication, report: &mut Report) {
    let beyond = [
        (
            beyond(&raw.strategies, MOST_STRATEGIES),
            MOST_STRATEGIES,
            "strategies",
        ),
        (
            beyond(&raw.resources, MOST_RESOURCES),
            MOST_RESOURCES,
            "resources",
        ),
        (beyond(&raw.plans, MOST_PLANS), MOST_PLANS, "plans"),
        (beyond(&raw.clients, MOST_CLIENTS), MOST_CLIENTS, "clients"),
        (beyond(&raw.keys, MOST_KEYS), MOST_KEYS, "keys"),
        (
            plan_limit_beyond(raw),
            MOST_PLAN_LIMITS,
            "limits in its plans",
        ),
        (
            expression_beyond(raw),
            MOST_EXPRESSIONS,
            "expressions among its paths",
        ),
        (candidate_beyond(raw), MOST_CANDIDATES, "candidates"),
    ];
    for (at, most, what) in beyond {
        if let Some(at) = at {
            let problem = ValueProblem::new(format!(
                "application {} has more than {most} {what}",
                quote(application)
            ));
            report.mistake(
                at,
                problem.hint("make do with fewer, or divide it into several applications"),
            );
        }
    }
    check_expressions(raw, report);
}

/// The first entry beyond the `most`.
fn beyond<K, V>(setting: &Setting<Mapping<K, V>>, most: usize) -> Option<&Location> {
    setting.valid()?.0.get(most).map(|entry| &entry.location)
}

/// The first plan with a limit beyond the most.
pub fn plan_limit_beyond(raw: &RawApplication) -> Option<&Location> {
    let mut found = 0;
    let beyond = raw
        .plans
        .members()
        .iter()
        .find(|MappingEntry { value, .. }| {
            found += value.as_ref().map_or(0, |plan| plan.limits.members().len());
            found > MOST_PLAN_LIMITS
        });
    beyond.map(|entry| &entry.location)
}

/// The first resource with an expression beyond the most.
fn expression_beyond(raw: &RawApplication) -> Option<&Location> {
    let mut found = 0;
    let mut resources = raw.resources.valid()?.0.iter();
    let beyond = resources.find(|MappingEntry { value, .. }| {
        found += value
            .as_ref()
            .map_or(0, |resource| expressions(resource).count());
        found > MOST_EXPRESSIONS
    });
    beyond.map(|entry| &entry.location)
}

/// The first strategy with a candidate beyond the most.
fn candidate_beyond(raw: &RawApplication) -> Option<&Location> {
    let tried = |entry: &&MappingEntry<DefinedName, RawStrategy>| {
        entry
            .value
            .as_ref()
            .is_some_and(|strategy| strategy.candidate.is_present())
    };
    raw.strategies
        .members()
        .iter()
        .filter(tried)
        .nth(MOST_CANDIDATES)
        .map(|entry| &entry.location)
}

/// Reports expressions that could hold up all requests of a node.
fn check_expressions(raw: &RawApplication, report: &mut Report) {
    let resources = raw
        .resources
        .members()
        .iter()
        .filter_map(|entry| entry.value.as_ref());
    let mut sum = 0;
    // Further ones are reported already.
    for (text, location) in resources.flat_map(expressions).take(MOST_EXPRESSIONS) {
        if PathExpression::compile(text).is_err() {
            continue;
        }
        let size = compiled_size(text);
        sum += size.unwrap_or(0);
        let (what, most) = match size {
            None => ("the expression of a policy has", MOST_COMPILED),
            Some(_) if sum > MOST_COMPILED_IN_SUM => (
                "the expressions of an application have",
                MOST_COMPILED_IN_SUM,
            ),
            Some(_) => continue,
        };
        let problem =
            ValueProblem::new(format!("compiled, {what} over {}", show_size(most as u64)));
        report.mistake(
            location,
            problem.hint("repeat less, and write [a-z0-9] where that is enough"),
        );
    }
}

/// The least power of two that an expression is within once it is compiled, in bytes. `None`: it is
/// beyond the most.
fn compiled_size(text: &str) -> Option<usize> {
    let sizes = std::iter::successors(Some(512), |size| Some(size * 2))
        .take_while(|size| *size <= MOST_COMPILED);
    sizes
        .into_iter()
        .find(|size| PathExpression::is_within(text, *size))
}

/// The expressions among the paths of a resource. They are mappings; other paths are texts.
fn expressions(resource: &RawResource) -> impl Iterator<Item = (&str, &Location)> {
    let path = resource
        .r#match
        .valid()
        .and_then(|conditions| match &conditions.0.value {
            YamlValue::Map(entries) => part::entry(entries, "path"),
            _ => None,
        });
    let paths = path.map_or(&[][..], |path| match &path.value.value {
        YamlValue::List(paths) => paths,
        _ => std::slice::from_ref(&path.value),
    });
    paths.iter().filter_map(|path| match &path.value {
        YamlValue::Map(entries) => entries
            .first()
            .and_then(|entry| Some((part::text_of(&entry.value)?, &entry.value.location))),
        _ => None,
    })
}

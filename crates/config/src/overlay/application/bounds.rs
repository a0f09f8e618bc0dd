//! The most that one application may have: each node keeps all of it, and reads all of it again
//! when it changes.

use tollgate_limiter::limit::units::show_size;

use crate::overlay::part;
use crate::report::{Location, Report, ValueProblem, quote};
use crate::section::policies::document::{RawApplication, RawResource};
use crate::yaml::collection::Mapping;
use crate::yaml::decode::Setting;
use crate::yaml::node::YamlValue;
use tollgate_spec::route::expression::PathExpression;

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
    for entry in raw.plans.members() {
        if let Some(plan) = &entry.value {
            found += plan.limits.members().len();
            if found > MOST_PLAN_LIMITS {
                return Some(&entry.location);
            }
        }
    }
    None
}

/// The first resource with an expression beyond the most.
fn expression_beyond(raw: &RawApplication) -> Option<&Location> {
    let mut found = 0;
    for entry in raw.resources.members() {
        if let Some(resource) = &entry.value {
            found += expressions(resource).len();
            if found > MOST_EXPRESSIONS {
                return Some(&entry.location);
            }
        }
    }
    None
}

/// The first strategy with a candidate beyond the most.
fn candidate_beyond(raw: &RawApplication) -> Option<&Location> {
    let mut candidates = 0;
    for entry in raw.strategies.members() {
        if let Some(strategy) = &entry.value
            && strategy.candidate.is_present()
        {
            candidates += 1;
            if candidates > MOST_CANDIDATES {
                return Some(&entry.location);
            }
        }
    }
    None
}

/// Reports expressions that could hold up all requests of a node.
fn check_expressions(raw: &RawApplication, report: &mut Report) {
    let mut all = Vec::new();
    for entry in raw.resources.members() {
        if let Some(resource) = &entry.value {
            all.extend(expressions(resource));
        }
    }
    let mut sum = 0;
    // Further expressions are reported already.
    for (text, location) in all.into_iter().take(MOST_EXPRESSIONS) {
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
    let mut size = 512;
    while size <= MOST_COMPILED {
        if PathExpression::is_within(text, size) {
            return Some(size);
        }
        size *= 2;
    }
    None
}

/// The expressions among the paths of a resource. They are mappings; other paths are texts.
fn expressions(resource: &RawResource) -> Vec<(&str, &Location)> {
    let Some(conditions) = resource.r#match.valid() else {
        return Vec::new();
    };
    let YamlValue::Map(entries) = &conditions.0.value else {
        return Vec::new();
    };
    let paths = match part::entry(entries, "path") {
        Some(path) => match &path.value.value {
            YamlValue::List(paths) => paths.as_slice(),
            _ => std::slice::from_ref(&path.value),
        },
        None => &[],
    };
    let mut expressions = Vec::new();
    for path in paths {
        if let YamlValue::Map(entries) = &path.value
            && let Some(entry) = entries.first()
            && let Some(text) = part::text_of(&entry.value)
        {
            expressions.push((text, &entry.value.location));
        }
    }
    expressions
}

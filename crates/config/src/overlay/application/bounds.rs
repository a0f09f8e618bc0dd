//! The most that one application may have: each node keeps all of it, and reads all of it again
//! when it changes.

use tollgate_limiter::limit::units::show_size;

use crate::report::{Location, Report, ValueProblem, quote};
use crate::section::policies::document::{RawApplication, RawApplicationPlan, RawResource};
use crate::yaml::collection::MappingEntry;
use tollgate_spec::route::PathMatch;
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
    let mut count = CountCheck {
        application,
        report,
    };
    count.check(
        "strategies",
        MOST_STRATEGIES,
        raw.strategies.members(),
        |_| 1,
    );
    count.check("resources", MOST_RESOURCES, raw.resources.members(), |_| 1);
    count.check("plans", MOST_PLANS, raw.plans.members(), |_| 1);
    count.check("clients", MOST_CLIENTS, raw.clients.members(), |_| 1);
    count.check("keys", MOST_KEYS, raw.keys.members(), |_| 1);
    let plans = raw.plans.members();
    count.check("limits in its plans", MOST_PLAN_LIMITS, plans, limits);
    let resources = raw.resources.members();
    let what = "expressions among its paths";
    count.check(what, MOST_EXPRESSIONS, resources, |resource| {
        expressions(resource).len()
    });
    count.check(
        "candidates",
        MOST_CANDIDATES,
        raw.strategies.members(),
        |raw| usize::from(raw.candidate.is_present()),
    );
    check_expressions(raw, report);
}

/// Counts what an application has.
struct CountCheck<'a> {
    application: &'a str,
    report: &'a mut Report,
}

impl CountCheck<'_> {
    /// Reports the first of the `members` with which their `counts` are beyond the `most`.
    fn check<K, V>(
        &mut self,
        what: &str,
        most: usize,
        members: &[MappingEntry<K, V>],
        counts: impl Fn(&V) -> usize,
    ) {
        if let Some(at) = first_beyond(most, members, counts) {
            let problem = ValueProblem::new(format!(
                "application {} has more than {most} {what}",
                quote(self.application)
            ));
            let hint = "make do with fewer, or divide it into several applications";
            self.report.mistake(at, problem.hint(hint));
        }
    }
}

/// The first of the `members` with which their `counts` are beyond the `most`.
fn first_beyond<K, V>(
    most: usize,
    members: &[MappingEntry<K, V>],
    counts: impl Fn(&V) -> usize,
) -> Option<&Location> {
    let mut found = 0;
    for entry in members {
        // A member with a mistake is one.
        found += entry.value.as_ref().map_or(1, &counts);
        if found > most {
            return Some(&entry.location);
        }
    }
    None
}

/// Whether an application has too many limits in its plans.
pub fn has_too_many_plan_limits(raw: &RawApplication) -> bool {
    first_beyond(MOST_PLAN_LIMITS, raw.plans.members(), limits).is_some()
}

fn limits(plan: &RawApplicationPlan) -> usize {
    plan.limits.members().len()
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

/// The expressions among the paths of a resource.
fn expressions(resource: &RawResource) -> Vec<(&str, &Location)> {
    let mut expressions = Vec::new();
    let Some(part) = resource.r#match.valid() else {
        return expressions;
    };
    for path in part
        .conditions
        .path
        .valid()
        .iter()
        .flat_map(|paths| &paths.0)
    {
        if let PathMatch::Expression(expression) = &path.value {
            expressions.push((expression.text(), &path.location));
        }
    }
    expressions
}

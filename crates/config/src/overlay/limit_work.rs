//! Bounds on what a request costs by the limits of policies on its route.

use std::collections::{HashMap, HashSet};

use crate::report::{Location, Report, ValueProblem, quote};
use crate::section::limit::cost::RawCost;
use crate::section::limit::definition::RawLimit;
use crate::section::limit::response_cost::RawResponseField;
use crate::section::limit::uses::CheckedUse;
use crate::section::policies::strategy_limit::RawStrategyLimit;
use crate::yaml::decode::Setting;

/// Limits of a route at most, the file's own included.
const MOST_LIMITS: usize = 64;

/// The most that the limits of policies on one route may have in sum: each request is looked
/// through for all of it.
const MOST_WORK: [(usize, &str); 3] = [
    (128, "parts of keys"),
    (512, "exempt clients and header fields"),
    (16, "values of JSON responses"),
];

/// The work that a request costs by one limit, in the order of [`MOST_WORK`].
#[derive(Clone, Copy)]
pub struct LimitWork([usize; 3]);

impl LimitWork {
    /// The work of a limit as it is `written`, its plans included.
    pub fn new(written: &RawStrategyLimit, limit: &RawLimit) -> Self {
        let mut exempt = 0;
        if written.written("exempt").is_some()
            && let Some(raw) = limit.exempt.valid()
        {
            exempt = raw.client.valid().map_or(0, Vec::len) + raw.headers.members().len();
        }
        let mut values = 0;
        if written.written("cost").is_some() {
            values += json_values(&limit.cost);
        }
        if written.written("plans").is_some()
            && let Some(plans) = limit.plans.valid()
        {
            for plan in plans.table.members() {
                values += plan.value.as_ref().map_or(0, |raw| json_values(&raw.cost));
            }
        }
        Self([
            limit.key.valid().map_or(0, |key| key.0.len()),
            exempt,
            values,
        ])
    }
}

/// The values of JSON responses that a cost is the sum of.
pub fn json_values(cost: &Setting<RawCost>) -> usize {
    match cost.valid() {
        Some(RawCost::Response {
            field: RawResponseField::Json(sum),
            ..
        }) => sum.values(),
        _ => 0,
    }
}

/// Reports that a route's limits of policies have more to look at than its requests can be.
pub fn check_work(
    route: &str,
    limits: [&[CheckedUse]; 2],
    works: &HashMap<String, LimitWork>,
    report: &mut Report,
) {
    for (at, (most, what)) in MOST_WORK.into_iter().enumerate() {
        let mut sum = 0;
        let mut seen = HashSet::new();
        for used in limits.into_iter().flatten() {
            let name = &*used.limit_use.limit.name;
            let Some(work) = works.get(name).filter(|_| seen.insert(name)) else {
                continue;
            };
            sum += work.0[at];
            if sum > most {
                let problem = ValueProblem::new(format!(
                    "the limits of policies on route {} have more than {most} {what}",
                    quote(route)
                ));
                let hint =
                    "each of its requests is looked through for all of them: make do with fewer";
                report.mistake(&used.location, problem.hint(hint));
                break;
            }
        }
    }
}

/// Reports that a route has more limits than its requests can be charged to: one more, at
/// `location`.
pub fn check_count(route: &str, limits: usize, location: &Location, report: &mut Report) {
    if limits == MOST_LIMITS + 1 {
        let name = quote(route);
        let problem = ValueProblem::new(format!("route {name} has more than {MOST_LIMITS} limits"));
        report.mistake(
            location,
            problem.hint("each of its requests is charged to all of them: make do with fewer"),
        );
    }
}

//! An application's plans, with the clients that have each.

use std::collections::HashMap;
use std::mem::replace;
use std::sync::Arc;

use super::bounds;
use crate::overlay::limit_work::json_values;
use crate::report::{Report, ValueProblem, quote};
use crate::scalar::text::DefinedName;
use crate::section::limit::assigned::{
    ApplicationClients, AssignedClient, StrategyPlan, StrategyPlans,
};
use crate::section::limit::plan::RawPlan;
use crate::section::policies::document::RawApplication;
use crate::yaml::collection::MappingEntry;
use crate::yaml::decode::{Located, Setting};

/// Values of JSON responses that the cost of a plan is the sum of, at most.
const MOST_VALUES: usize = 2;

/// The plans of an application's strategies, and the clients that have them.
#[derive(Default)]
pub struct ApplicationPlans {
    pub clients: ApplicationClients,
    /// By strategy, those with plans.
    pub strategies: HashMap<String, StrategyPlans>,
}

/// The plans and the clients of `application`, taken out of `raw`. Mistakes against its strategies
/// are reported.
pub fn read(application: &str, raw: &mut RawApplication, report: &mut Report) -> ApplicationPlans {
    // Plans beyond the bound are reported by `bounds`, and nothing is built of them.
    if bounds::has_too_many_plan_limits(raw) {
        raw.plans = Setting::Invalid;
    }
    let plans = replace(&mut raw.plans, Setting::Absent);
    let clients = replace(&mut raw.clients, Setting::Absent);
    let strategies = &raw.strategies;
    let plans_are_known = !plans.is_invalid();
    let strategies_are_known = !strategies.is_invalid();
    let plans = plans.into_members();
    let mut names: HashMap<String, Arc<str>> = HashMap::new();
    for plan in &plans {
        names.insert(plan.text.clone(), plan.text.as_str().into());
    }
    let mut assigned = Vec::new();
    for MappingEntry {
        text: client,
        location,
        value,
        ..
    } in clients.into_members()
    {
        let Some(Located {
            location: at,
            value: DefinedName(plan),
        }) = value
        else {
            continue;
        };
        match names.get(&*plan) {
            Some(plan) => assigned.push(AssignedClient {
                client,
                location,
                plan: plan.clone(),
            }),
            None if plans_are_known => {
                let what = format!(
                    "application {} has no plan {}",
                    quote(application),
                    quote(&plan)
                );
                let problem = ValueProblem::new(what);
                let otherwise = "define it under \"plans\" of the application";
                let known = names.keys().map(String::as_str);
                report.misnamed(&at, problem, &plan, known, otherwise);
            }
            None => {}
        }
    }
    let mut by_strategy: HashMap<&str, StrategyPlans> = HashMap::new();
    for MappingEntry {
        text,
        location,
        value,
        ..
    } in strategies.members()
    {
        let by = match value {
            Some(raw) => raw.client.valid().cloned(),
            None => None,
        };
        by_strategy.insert(
            text,
            StrategyPlans {
                location: location.clone(),
                by,
                plans: Vec::new(),
            },
        );
    }
    for MappingEntry {
        text: plan, value, ..
    } in plans
    {
        let Some(plan_limits) = value else { continue };
        let limits = plan_limits.limits.into_members();
        for limit in &limits {
            if let Some(raw) = &limit.value {
                check_values(raw, report);
            }
        }
        for MappingEntry {
            text: strategy,
            location,
            value: raw,
            ..
        } in limits
        {
            match by_strategy.get_mut(&*strategy) {
                Some(found) => found.plans.push(StrategyPlan {
                    name: plan.as_str().into(),
                    raw,
                }),
                None if strategies_are_known => {
                    let what = format!(
                        "application {} has no strategy {}",
                        quote(application),
                        quote(&strategy)
                    );
                    let problem = ValueProblem::new(what);
                    let otherwise = "define it under \"strategies\" of the application";
                    let known = by_strategy.keys().copied();
                    report.misnamed(&location, problem, &strategy, known, otherwise);
                }
                None => {}
            }
        }
    }
    let mut strategies = HashMap::new();
    for (strategy, plans) in by_strategy {
        if !plans.plans.is_empty() {
            strategies.insert(strategy.to_owned(), plans);
        }
    }
    ApplicationPlans {
        clients: ApplicationClients {
            name: application.into(),
            clients: assigned,
        },
        strategies,
    }
}

/// Reports a plan by too many values of a response: all limits of a route may have such plans.
fn check_values(raw: &RawPlan, report: &mut Report) {
    if json_values(&raw.cost) > MOST_VALUES
        && let Some(cost) = raw.cost.valid()
    {
        let problem = ValueProblem::new(format!(
            "the cost of a plan has more than {MOST_VALUES} values of JSON responses"
        ));
        report.mistake(
            cost.location(),
            problem.hint("make do with fewer, or give the limit the cost"),
        );
    }
}

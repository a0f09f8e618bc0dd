//! An application's plans, with the clients that have each.

use std::collections::HashMap;
use std::mem::replace;
use std::sync::Arc;

use super::bounds;
use crate::overlay::candidate::joined_name;
use crate::report::{Report, ValueProblem, quote};
use crate::scalar::text::DefinedName;
use crate::section::limit::assigned::{
    ApplicationClients, AssignedClient, StrategyPlan, StrategyPlans,
};
use crate::section::limit::cost::RawCost;
use crate::section::limit::plan::RawPlan;
use crate::section::limit::response_cost::RawResponseField;
use crate::section::policies::document::RawApplication;
use crate::yaml::collection::MappingEntry;
use crate::yaml::decode::{Located, Setting};

/// Values of JSON responses that the cost of a plan is the sum of, at most.
const MOST_VALUES: usize = 2;

/// The settings of the application's plans for each of its limits, taken out of `raw`. Mistakes
/// against its strategies are reported.
pub fn of(
    application: &str,
    raw: &mut RawApplication,
    report: &mut Report,
) -> Vec<(String, Arc<StrategyPlans>)> {
    // Plans beyond the bound are reported by `bounds`, and nothing is built of them.
    if bounds::plan_limit_beyond(raw).is_some() {
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
                report.misnamed(
                    &at,
                    problem,
                    &plan,
                    names.keys().map(String::as_str),
                    otherwise,
                );
            }
            None => {}
        }
    }
    let clients = Arc::new(ApplicationClients {
        name: application.into(),
        clients: assigned,
    });
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
                application: clients.clone(),
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
    let mut planned = Vec::new();
    for (strategy, plans) in by_strategy {
        if !plans.plans.is_empty() {
            planned.push((joined_name(application, strategy), Arc::new(plans)));
        }
    }
    planned
}

/// Reports a plan by too many values of a response: all limits of a route may have such plans.
fn check_values(raw: &RawPlan, report: &mut Report) {
    if let Some(RawCost::Response {
        field: RawResponseField::Json(sum),
        ..
    }) = raw.cost.valid()
        && sum.values() > MOST_VALUES
    {
        let problem = ValueProblem::new(format!(
            "the cost of a plan has more than {MOST_VALUES} values of JSON responses"
        ));
        report.mistake(
            &sum.location,
            problem.hint("make do with fewer, or give the limit the cost"),
        );
    }
}

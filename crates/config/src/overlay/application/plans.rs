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
    for client in clients.into_members() {
        let Some(Located { location, value }) = client.value else {
            continue;
        };
        let DefinedName(plan) = value;
        if let Some(plan) = names.get(&*plan) {
            assigned.push(AssignedClient {
                client: client.text,
                location: client.location,
                plan: plan.clone(),
            });
        } else if plans_are_known {
            let what = format!(
                "application {} has no plan {}",
                quote(application),
                quote(&plan)
            );
            let problem = ValueProblem::new(what);
            let otherwise = "define it under \"plans\" of the application";
            let known = names.keys().map(String::as_str);
            report.misnamed(&location, problem, &plan, known, otherwise);
        }
    }
    let mut by_strategy: HashMap<&str, StrategyPlans> = HashMap::new();
    for strategy in strategies.members() {
        let raw = strategy.value.as_ref();
        let plans = StrategyPlans {
            location: strategy.location.clone(),
            by: raw.and_then(|raw| raw.client.valid().cloned()),
            plans: Vec::new(),
        };
        by_strategy.insert(&strategy.text, plans);
    }
    for plan in plans {
        let Some(plan_limits) = plan.value else {
            continue;
        };
        for limit in plan_limits.limits.into_members() {
            if let Some(raw) = &limit.value {
                check_values(raw, report);
            }
            if let Some(strategy) = by_strategy.get_mut(&*limit.text) {
                strategy.plans.push(StrategyPlan {
                    name: plan.text.as_str().into(),
                    raw: limit.value,
                });
            } else if strategies_are_known {
                let what = format!(
                    "application {} has no strategy {}",
                    quote(application),
                    quote(&limit.text)
                );
                let problem = ValueProblem::new(what);
                let otherwise = "define it under \"strategies\" of the application";
                let known = by_strategy.keys().copied();
                report.misnamed(&limit.location, problem, &limit.text, known, otherwise);
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

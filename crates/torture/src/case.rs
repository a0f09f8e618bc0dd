//! The rows of the table: a scenario is one case, or several variants that are each run and judged by themselves.

use crate::plan::{Counting, RunPlan};
use crate::scenario::Scenario;

/// A row of the table.
#[derive(Clone, Debug)]
pub struct Case {
    pub scenario: Scenario,
    /// Where a scenario has several.
    pub variant: Option<&'static str>,
    /// The scenario whose faults the run meets.
    pub faults: Scenario,
    /// As the scenario changes it.
    pub plan: RunPlan,
}

impl Case {
    /// The cases of `scenario`.
    pub fn of(scenario: Scenario, plan: &RunPlan) -> Vec<Self> {
        let only = Self::only(scenario, plan);
        let window = |variant, faults, counting| Self {
            variant: Some(variant),
            faults,
            plan: RunPlan { counting, ..only.plan.clone() },
            ..only
        };
        match scenario {
            Scenario::Windows => vec![
                window("fixed, skew", Scenario::Skew, Counting::FixedWindow),
                window("fixed, flap", Scenario::Flap, Counting::FixedWindow),
                window("sliding, skew", Scenario::Skew, Counting::SlidingWindow),
                window("sliding, flap", Scenario::Flap, Counting::SlidingWindow),
            ],
            _ => vec![only],
        }
    }

    /// The case of a scenario without variants.
    pub fn only(scenario: Scenario, plan: &RunPlan) -> Self {
        Self { scenario, variant: None, faults: scenario, plan: scenario.adapt(plan) }
    }

    /// The name of the row.
    pub fn name(&self) -> String {
        match self.variant {
            Some(variant) => format!("{} ({variant})", self.scenario.name()),
            None => self.scenario.name().to_owned(),
        }
    }

    /// The least that is admitted, in per cent of what a reference would admit: see [`Scenario::least_percent`].
    pub fn least_percent(&self) -> Option<f64> {
        let least = self.faults.least_percent()?;
        // Tokens of a sliding window come back up to a 64th of it late.
        Some(if self.plan.counting == Counting::SlidingWindow { least - 2.0 } else { least })
    }

    /// The promise that the case is judged by.
    pub fn promise(&self) -> String {
        let bound = match self.plan.counting {
            Counting::TokenBucket => "burst + rate · t in every window of length t",
            Counting::FixedWindow => "the quota in each window, aligned to the store's clock",
            Counting::SlidingWindow => "the quota in every stretch shorter than the window",
        };
        let bound = match self.faults.conceded() {
            "" => bound.to_owned(),
            conceded => format!("{bound}; {conceded}"),
        };
        match self.least_percent() {
            Some(least) => format!("at most {bound}; at least {least:.0} % of what could be"),
            None => format!("at most {bound}"),
        }
    }
}

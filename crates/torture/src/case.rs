//! The rows of the table: a scenario is one case, or several variants that are each run and judged by themselves.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::limit::TestedLimit;
use crate::plan::{Counting, LoadPattern, RunPlan};
use crate::scenario::Scenario;

/// The least that requests for tokens may wait: longer than what calls to Redis take.
const LEAST_WAIT: Duration = Duration::from_millis(50);

/// The longest that requests wait for a permit, and how long each is then in flight.
const LONG_WAIT: Duration = Duration::from_secs(5);
const HOLD: Duration = Duration::from_millis(50);

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
        let in_flight = |variant, burst, pattern| {
            let limit = TestedLimit { burst, ..only.plan.limit };
            let plan =
                RunPlan { counting: Counting::InFlight, limit, pattern, demand: f64::INFINITY, ..only.plan.clone() };
            Self { variant: Some(variant), plan, ..only }
        };
        match scenario {
            Scenario::ColdConcurrency => {
                let most = only.plan.limit.burst;
                vec![
                    in_flight("cold", most, LoadPattern::Bursts { cold: true }),
                    in_flight("warm", most, LoadPattern::Bursts { cold: false }),
                ]
            }
            Scenario::Queue => {
                let clients = u64::from(plan.clients_in_all());
                // Half of the clients may wait at a time, so that the others keep the queue full.
                let max_wait = Duration::from_secs_f64(clients as f64 / 2.0 / plan.limit.per_second_f64());
                let pattern = LoadPattern::Queued { max_wait: max_wait.max(LEAST_WAIT), hold: Duration::ZERO };
                let rate = Self { variant: Some("rate"), plan: RunPlan { pattern, ..only.plan.clone() }, ..only };
                let most = NonZeroU64::new(clients / 8).unwrap_or(NonZeroU64::MIN);
                let pattern = LoadPattern::Queued { max_wait: LONG_WAIT, hold: HOLD };
                vec![rate, in_flight("in flight", most, pattern)]
            }
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
            Counting::InFlight => "the limit in flight at any moment",
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

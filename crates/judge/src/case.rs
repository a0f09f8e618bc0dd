//! The rows of the table: a scenario is one case, or several variants that are each run and judged
//! by themselves.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use tollgate_limiter::limit::algorithm::Rate;
use tollgate_limiter::limit::definition::Consistency;

use crate::limit::TestedLimit;
use crate::plan::{Counting, LoadPattern, REQUESTS_PER_KEY, RunPlan};
use crate::scenario::Scenario;

/// The least that requests for tokens may wait: longer than what calls to Redis take.
const LEAST_WAIT: Duration = Duration::from_millis(50);

/// The longest that requests wait for a permit, and how long each is then in flight.
const LONG_WAIT: Duration = Duration::from_secs(5);
const HOLD: Duration = Duration::from_millis(50);

/// Requests that a small limit admits for a key in a minute. The burst has one: such a limit is one
/// node's alone in an outage.
const PER_MINUTE: NonZeroU64 = NonZeroU64::MIN.saturating_add(2);
const MINUTE_US: NonZeroU64 = NonZeroU64::MIN.saturating_add(59_999_999);

/// Between two requests of a client that asks for fresh keys.
const FRESH_INTERVAL: Duration = Duration::from_millis(200);

/// The least time for a lone crash: some of it is left when the others must know.
const LONE_CRASH: Duration = Duration::from_secs(6);

/// A row of the table.
#[derive(Clone, Debug)]
pub struct Case {
    pub scenario: Scenario,
    /// Where a scenario has several.
    pub variant: Option<&'static str>,
    /// The scenario whose faults the run meets.
    pub faults: Scenario,
    /// The plan, changed by the scenario.
    pub plan: RunPlan,
    /// Whether the row is one of two, and so names its consistency.
    pub names_consistency: bool,
}

impl Case {
    /// The cases of `scenario`.
    pub fn variants(scenario: Scenario, plan: &RunPlan) -> Vec<Self> {
        let only = Self::only(scenario, plan);
        match scenario {
            Scenario::ColdConcurrency => {
                let most = only.plan.limit.burst;
                vec![
                    only.in_flight("cold", most, LoadPattern::Bursts { cold: true }),
                    only.in_flight("warm", most, LoadPattern::Bursts { cold: false }),
                ]
            }
            Scenario::Queue => {
                let clients = u64::from(plan.clients_in_all());
                // Half of the clients may wait at a time, so that the others keep the queue full.
                let max_wait =
                    Duration::from_secs_f64(clients as f64 / 2.0 / plan.limit.per_second_f64());
                let pattern = LoadPattern::Queued {
                    max_wait: max_wait.max(LEAST_WAIT),
                    hold: Duration::ZERO,
                };
                let rate = Self {
                    variant: Some("rate"),
                    plan: RunPlan {
                        pattern,
                        ..only.plan.clone()
                    },
                    ..only
                };
                let most = NonZeroU64::new(clients / 8).unwrap_or(NonZeroU64::MIN);
                let pattern = LoadPattern::Queued {
                    max_wait: LONG_WAIT,
                    hold: HOLD,
                };
                vec![rate, only.in_flight("in flight", most, pattern)]
            }
            Scenario::Windows => vec![
                only.window("fixed, skew", Scenario::Skew, Counting::FixedWindow),
                only.window("fixed, flap", Scenario::Flap, Counting::FixedWindow),
                only.window("sliding, skew", Scenario::Skew, Counting::SlidingWindow),
                only.window("sliding, flap", Scenario::Flap, Counting::SlidingWindow),
            ],
            // Somebody is left to ask.
            Scenario::Crash if plan.nodes.get() > 1 => vec![only.clone(), only.lone_crash()],
            _ => vec![only],
        }
    }

    /// This case as a variant whose limit counts by windows.
    fn window(&self, variant: &'static str, faults: Scenario, counting: Counting) -> Self {
        Self {
            variant: Some(variant),
            faults,
            plan: RunPlan {
                counting,
                ..self.plan.clone()
            },
            ..*self
        }
    }

    /// This case as a variant whose limit counts `most` requests in flight.
    fn in_flight(&self, variant: &'static str, most: NonZeroU64, pattern: LoadPattern) -> Self {
        let limit = TestedLimit {
            burst: most,
            ..self.plan.limit
        };
        Self {
            variant: Some(variant),
            plan: RunPlan {
                counting: Counting::InFlight,
                limit,
                pattern,
                demand: f64::INFINITY,
                ..self.plan.clone()
            },
            ..*self
        }
    }

    /// This case as a variant in which one node crashes and no other, while clients come with fresh
    /// keys all the time.
    fn lone_crash(&self) -> Self {
        let RunPlan { cost, .. } = self.plan;
        let limit = TestedLimit {
            rate: Rate {
                tokens: cost.saturating_mul(PER_MINUTE),
                period_us: MINUTE_US,
            },
            burst: cost,
        };
        let duration = self.plan.duration.max(LONE_CRASH);
        let requests = duration.as_millis() / FRESH_INTERVAL.as_millis() + 2;
        let requests = u64::try_from(requests).unwrap_or(u64::MAX);
        let requests = requests.saturating_mul(self.plan.clients_in_all().into());
        let keys = u32::try_from(requests / REQUESTS_PER_KEY).unwrap_or(u32::MAX);
        Self {
            variant: Some("lone, small bursts"),
            plan: RunPlan {
                limit,
                pattern: LoadPattern::FreshKeys {
                    interval: FRESH_INTERVAL,
                },
                consistency: Consistency::Exact,
                keys: NonZeroU32::MIN.saturating_add(keys),
                duration,
                ..self.plan.clone()
            },
            ..*self
        }
    }

    /// The case of a scenario without variants.
    pub fn only(scenario: Scenario, plan: &RunPlan) -> Self {
        Self {
            scenario,
            variant: None,
            faults: scenario,
            plan: scenario.adapt(plan),
            names_consistency: false,
        }
    }

    /// The cases of `scenario`, with each consistency where that makes a difference.
    pub fn matrix(scenario: Scenario, plan: &RunPlan) -> Vec<Self> {
        if !scenario.leases() {
            return Self::variants(scenario, plan);
        }
        let both = [Consistency::Exact, Consistency::Leased]
            .into_iter()
            .flat_map(|consistency| {
                Self::variants(
                    scenario,
                    &RunPlan {
                        consistency,
                        ..plan.clone()
                    },
                )
                .into_iter()
                .filter(move |case| case.plan.consistency == consistency)
            });
        both.map(|case| Self {
            names_consistency: true,
            ..case
        })
        .collect()
    }

    /// The name of the row.
    pub fn name(&self) -> String {
        let name = match self.variant {
            Some(variant) => format!("{} ({variant})", self.scenario.name()),
            None => self.scenario.name().to_owned(),
        };
        if self.names_consistency {
            format!("{name}, {}", self.plan.consistency_word())
        } else {
            name
        }
    }

    /// The least that is admitted, in per cent of what a reference would admit: see
    /// [`Scenario::least_percent`].
    pub fn least_percent(&self) -> Option<f64> {
        let least = self.faults.least_percent()?;
        // Tokens of a sliding window come back up to a 64th of it late.
        Some(if self.plan.counting == Counting::SlidingWindow {
            least - 2.0
        } else {
            least
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_matrix_has_a_name_of_its_own_and_a_promise() {
        let few = NonZeroU32::MIN;
        let plan = RunPlan {
            limit: TestedLimit::per_second(1_000, 200),
            counting: Counting::TokenBucket,
            pattern: LoadPattern::Paced,
            consistency: Consistency::Exact,
            cost: NonZeroU64::MIN,
            keys: few,
            demand: 3.0,
            duration: Duration::from_secs(60),
            nodes: few.saturating_add(3),
            workers: few,
            clients: few,
            seed: 1,
        };
        let cases: Vec<Case> = Scenario::ALL
            .into_iter()
            .flat_map(|scenario| Case::matrix(scenario, &plan))
            .collect();
        let mut names: Vec<String> = cases.iter().map(Case::name).collect();
        assert!(
            names.contains(&"steady, leased".to_owned())
                && names.contains(&"windows (fixed, flap)".to_owned())
                && names.contains(&"slow-store, leased".to_owned())
                && names.contains(&"crash (lone, small bursts), exact".to_owned())
                && !names.contains(&"crash (lone, small bursts), leased".to_owned())
        );
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), cases.len());
        assert!(
            cases
                .iter()
                .all(|case| case.promise().starts_with("at most "))
        );
    }
}

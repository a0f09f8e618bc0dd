//! The figures and the verdict of one run.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::case::Case;
use crate::judge::bound::AdmissionBound;
use crate::judge::server_clock::ServerClock;
use crate::judge::{self, Concession, ExceededWindow, TraceJudgement};
use crate::report::observations::Observations;

/// The terms that a run is judged by.
#[derive(Clone, Debug)]
pub struct RunTerms {
    /// The name of the row.
    pub scenario: String,
    /// The promise, in words.
    pub promise: String,
    pub bound: AdmissionBound,
    /// Microseconds by which the store's clock was set or slewed, which the bound has.
    pub clock_gained_us: u64,
    pub concessions: Vec<Concession>,
    /// The least that is to be admitted, in per cent of what is due.
    pub least_percent: Option<f64>,
    /// Whether calls to the store are meant to fail.
    pub fails_calls: bool,
    /// Keys that nothing is conceded to, by their numbers.
    pub spared: Vec<bool>,
    pub requirements: Vec<Requirement>,
}

/// A figure that a scenario demands beside the limit.
#[derive(Clone, Debug, Serialize)]
pub struct Requirement {
    pub name: String,
    pub found: f64,
    pub least: f64,
    pub most: f64,
}

impl Requirement {
    pub fn is_met(&self) -> bool {
        (self.least..=self.most).contains(&self.found)
    }
}

/// The figures and the verdict of a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    pub scenario: String,
    /// The promise that it is judged by.
    pub promise: String,
    pub requests: u64,
    /// Tokens.
    pub admitted: u64,
    /// Tokens that the limit allows in the time between the first request and the last answer,
    /// times the keys in use. Of requests in flight: as many as a perfect limiter admits.
    pub bound: u64,
    /// Tokens over the bound in the worst window of any key; 0 where the promise was kept.
    pub over: u64,
    pub worst: Option<ExceededWindow>,
    /// Like `over`, if every request had been admitted when its answer came. May accuse a limiter
    /// that keeps its limit.
    pub over_as_answered: u64,
    /// Tokens over the bound and the concessions of this scenario. The verdict.
    pub over_terms: u64,
    /// Tokens that the reference bucket admits of the same requests.
    pub due: u64,
    /// Admitted less than `due`, in per cent of it; negative: more.
    pub under_percent: f64,
    /// The least that is admitted, in per cent of `due`, where admitting less is a broken promise.
    pub least_percent: Option<f64>,
    pub store_calls: Option<u64>,
    pub store_calls_failed: Option<u64>,
    /// Whether calls to the store were meant to fail.
    pub fails_calls: bool,
    /// Microseconds by which the store's clock was set or slewed. The tokens that flow in meanwhile
    /// are within the bound.
    pub clock_gained_us: u64,
    pub requirements: Vec<Requirement>,
    pub p50_us: u64,
    pub p99_us: u64,
    pub max_us: u64,
    /// How often each answer came, by who decided or by status.
    pub answers: BTreeMap<String, u64>,
}

impl RunReport {
    /// Judges what was observed.
    pub fn new(terms: &RunTerms, observed: &Observations) -> Self {
        let RunTerms {
            bound, concessions, ..
        } = terms;
        let Observations {
            admissions, held, ..
        } = observed;
        let strict = bound.judge(admissions, held, &[]);
        let conceding = if concessions.is_empty() {
            strict.clone()
        } else {
            let (spared, others): (Vec<_>, Vec<_>) = admissions
                .iter()
                .copied()
                .partition(|one| terms.spared.get(one.key as usize) == Some(&true));
            let judged = [
                bound.judge(&spared, held, &[]),
                bound.judge(&others, held, concessions),
            ];
            judged
                .into_iter()
                .max_by_key(|judgement| judgement.over)
                .unwrap_or_default()
        };
        let as_answered = bound.judge(&judge::as_answered(admissions), held, &[]);
        let TraceJudgement {
            admitted,
            over,
            worst,
        } = strict;
        let short = observed.expected as f64 - admitted as f64;
        Self {
            scenario: terms.scenario.clone(),
            promise: terms.promise.clone(),
            requests: observed.requests,
            admitted,
            bound: bound.total(admissions).unwrap_or(observed.expected),
            over,
            worst: conceding.worst.or(worst),
            over_as_answered: as_answered.over,
            over_terms: conceding.over,
            due: observed.expected,
            under_percent: if observed.expected == 0 {
                0.0
            } else {
                short * 100.0 / observed.expected as f64
            },
            least_percent: terms.least_percent,
            store_calls: None,
            store_calls_failed: None,
            fails_calls: terms.fails_calls,
            clock_gained_us: terms.clock_gained_us,
            requirements: terms.requirements.clone(),
            p50_us: observed.latencies.percentile(50),
            p99_us: observed.latencies.percentile(99),
            max_us: observed.latencies.max(),
            answers: observed
                .answers
                .iter()
                .map(|(answer, count)| (answer.to_string(), *count))
                .collect(),
        }
    }

    /// With the calls to the store: all of them, and those that failed.
    pub fn with_calls(self, all: u64, failed: u64) -> Self {
        Self {
            store_calls: Some(all),
            store_calls_failed: Some(failed),
            ..self
        }
    }

    /// Whether a promise was broken.
    pub fn is_broken(&self) -> bool {
        self.over_terms > 0 || self.is_short() || !self.requirements.iter().all(Requirement::is_met)
    }

    fn is_short(&self) -> bool {
        self.least_percent
            .is_some_and(|least| self.under_percent > 100.0 - least)
    }

    /// `kept`, or what was not.
    pub fn verdict(&self) -> &'static str {
        match (self.over_terms > 0, self.is_short()) {
            (true, true) => "OVER AND SHORT",
            (true, false) => "OVER",
            (false, true) => "SHORT",
            (false, false) if self.is_broken() => "UNMET",
            (false, false) => "kept",
        }
    }
}

impl RunTerms {
    /// The terms of a case, by a store with such a clock, before what happened in its run: without
    /// its concessions.
    pub fn new(case: &Case, clock: ServerClock) -> Self {
        Self {
            scenario: case.name(),
            promise: case.promise(),
            bound: case.plan.bound(clock),
            clock_gained_us: clock.gained_us(),
            concessions: Vec::new(),
            least_percent: case.least_percent(),
            fails_calls: case.faults.fails_calls(),
            spared: Vec::new(),
            requirements: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::TestedLimit;
    use crate::report::observations::{AnswerKind, Observation};

    fn terms(per_second: u64, least_percent: Option<f64>) -> RunTerms {
        RunTerms {
            scenario: "steady".to_owned(),
            promise: String::new(),
            bound: TestedLimit::per_second(per_second, 2).into(),
            clock_gained_us: 0,
            concessions: Vec::new(),
            least_percent,
            fails_calls: false,
            spared: Vec::new(),
            requirements: Vec::new(),
        }
    }

    fn observed(admitted: u64, expected: u64) -> Observations {
        let mut observed = Observations {
            expected,
            ..Observations::default()
        };
        for at_us in (0..admitted).map(|n| n * 1_000) {
            observed.record(Observation {
                key: 0,
                sent_us: at_us,
                now_us: at_us,
                answer: AnswerKind::Redis,
                admitted: Some(1),
                expected: 0,
            });
        }
        observed
    }

    fn report(admitted: u64, expected: u64, least_percent: Option<f64>) -> RunReport {
        RunReport::new(&terms(1_001, least_percent), &observed(admitted, expected))
    }

    #[test]
    fn too_much_and_too_little_are_both_broken_promises() {
        assert_eq!(report(100, 100, Some(97.0)).verdict(), "kept");
        assert_eq!(report(100, 103, Some(97.0)).verdict(), "kept");
        assert_eq!(report(96, 100, Some(97.0)).verdict(), "SHORT");
        assert_eq!(report(96, 100, Some(95.0)).verdict(), "kept");
        assert!(!report(96, 100, None).is_broken());
        let over = RunReport::new(&terms(500, Some(97.0)), &observed(100, 50));
        assert!(over.is_broken() && over.over > 40, "{over:?}");
        let concessions = vec![Concession {
            from_us: 0,
            to_us: 1_000_000,
            tokens: 100,
            repaid_us: u64::MAX,
        }];
        let excused = RunReport::new(
            &RunTerms {
                concessions,
                ..terms(500, None)
            },
            &observed(100, 50),
        );
        assert_eq!(
            (excused.verdict(), excused.over, excused.over_terms),
            ("kept", over.over, 0)
        );
    }

    #[test]
    fn keys_that_an_outage_spares_have_no_concession() {
        let concessions = vec![Concession {
            from_us: 0,
            to_us: 1_000_000,
            tokens: 100,
            repaid_us: u64::MAX,
        }];
        for (spared, verdict) in [(true, "OVER"), (false, "kept")] {
            let terms = RunTerms {
                concessions: concessions.clone(),
                spared: vec![spared],
                ..terms(500, None)
            };
            assert_eq!(
                RunReport::new(&terms, &observed(100, 50)).verdict(),
                verdict
            );
        }
    }

    #[test]
    fn a_requirement_that_is_not_met_breaks_the_promise() {
        for (found, verdict) in [(99.0, "kept"), (98.9, "UNMET")] {
            let requirement = Requirement {
                name: "share".to_owned(),
                found,
                least: 99.0,
                most: 100.0,
            };
            let terms = RunTerms {
                requirements: vec![requirement],
                ..terms(1_001, None)
            };
            assert_eq!(
                RunReport::new(&terms, &observed(100, 100)).verdict(),
                verdict
            );
        }
    }
}

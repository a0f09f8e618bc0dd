//! The figures and the verdict of one run.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::judge::{self, Concession, ExceededWindow, TraceJudgement};
use crate::limit::TestedLimit;
use crate::report::observations::Observations;

/// The figures and the verdict of a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    pub scenario: String,
    pub requests: u64,
    /// Tokens.
    pub admitted: u64,
    /// Tokens that burst + rate · t allows in the time between the first request and the last answer, times the keys in
    /// use.
    pub bound: u64,
    /// Tokens over the bound in the worst window of any key; 0 where the promise was kept.
    pub over: u64,
    pub worst: Option<ExceededWindow>,
    /// Like `over`, if every request had been admitted when its answer came. May accuse a limiter that keeps its limit.
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
    pub p50_us: u64,
    pub p99_us: u64,
    pub max_us: u64,
    /// How often each answer came, by who decided or by status.
    pub answers: BTreeMap<String, u64>,
}

impl RunReport {
    /// Judges what was observed by `limit` and what it concedes, and by the least that is to be admitted, in per cent of
    /// what is due.
    pub fn new(
        scenario: &str,
        limit: &TestedLimit,
        observed: &Observations,
        concessions: &[Concession],
        least_percent: Option<f64>,
    ) -> Self {
        let strict = judge::judge(&observed.admissions, limit, &[]);
        let terms = if concessions.is_empty() {
            strict.clone()
        } else {
            judge::judge(&observed.admissions, limit, concessions)
        };
        let as_answered = judge::judge(&judge::as_answered(&observed.admissions), limit, &[]);
        let TraceJudgement { admitted, over, worst } = strict;
        let short = observed.expected as f64 - admitted as f64;
        Self {
            scenario: scenario.to_owned(),
            requests: observed.requests,
            admitted,
            bound: bound(observed, limit),
            over,
            worst: terms.worst.or(worst),
            over_as_answered: as_answered.over,
            over_terms: terms.over,
            due: observed.expected,
            under_percent: if observed.expected == 0 { 0.0 } else { short * 100.0 / observed.expected as f64 },
            least_percent,
            store_calls: None,
            store_calls_failed: None,
            p50_us: observed.latencies.percentile(50),
            p99_us: observed.latencies.percentile(99),
            max_us: observed.latencies.max(),
            answers: observed.answers.iter().map(|(answer, count)| (answer.to_string(), *count)).collect(),
        }
    }

    /// With the calls to the store: all of them, and those that failed.
    pub fn with_calls(self, (all, failed): (u64, u64)) -> Self {
        Self { store_calls: Some(all), store_calls_failed: Some(failed), ..self }
    }

    /// Whether a promise was broken.
    pub fn is_broken(&self) -> bool {
        self.over_terms > 0 || self.is_short()
    }

    fn is_short(&self) -> bool {
        self.least_percent.is_some_and(|least| self.under_percent > 100.0 - least)
    }

    /// `kept`, or what was not.
    pub fn verdict(&self) -> &'static str {
        match (self.over_terms > 0, self.is_short()) {
            (true, true) => "OVER AND SHORT",
            (true, false) => "OVER",
            (false, true) => "SHORT",
            (false, false) => "kept",
        }
    }
}

/// The bound of all keys in use together, each over the whole time.
fn bound(observed: &Observations, limit: &TestedLimit) -> u64 {
    let first = observed.admissions.iter().map(|one| one.sent_us).min().unwrap_or(0);
    let last = observed.admissions.iter().map(|one| one.answered_us).max().unwrap_or(0);
    let mut keys: Vec<u32> = observed.admissions.iter().map(|one| one.key).collect();
    keys.sort_unstable();
    keys.dedup();
    limit.bound(last - first).saturating_mul(keys.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::observations::{AnswerKind, Observation};

    fn observed(admitted: u64, expected: u64) -> Observations {
        let mut observed = Observations { expected, ..Observations::default() };
        let answer = AnswerKind::Redis;
        let at = |at_us| Observation { key: 0, sent_us: at_us, now_us: at_us, answer, admitted: Some(1), expected: 0 };
        (0..admitted).for_each(|n| observed.record(at(n * 1_000)));
        observed
    }

    fn report(admitted: u64, expected: u64, least_percent: Option<f64>) -> RunReport {
        RunReport::new("steady", &TestedLimit::per_second(1_001, 2), &observed(admitted, expected), &[], least_percent)
    }

    #[test]
    fn too_much_and_too_little_are_both_broken_promises() {
        assert_eq!(report(100, 100, Some(97.0)).verdict(), "kept");
        assert_eq!(report(100, 103, Some(97.0)).verdict(), "kept");
        assert_eq!(report(96, 100, Some(97.0)).verdict(), "SHORT");
        assert_eq!(report(96, 100, Some(95.0)).verdict(), "kept");
        assert!(!report(96, 100, None).is_broken());
        let slower = TestedLimit::per_second(500, 2);
        let over = RunReport::new("steady", &slower, &observed(100, 50), &[], Some(97.0));
        assert!(over.is_broken() && over.over > 40, "{over:?}");
        let conceded = [Concession { from_us: 0, to_us: 1_000_000, tokens: 100, repaid_us: u64::MAX }];
        let excused = RunReport::new("flap", &slower, &observed(100, 50), &conceded, None);
        assert_eq!((excused.verdict(), excused.over, excused.over_terms), ("kept", over.over, 0));
    }
}

//! The last seconds of a candidate, and whether they are within its bounds.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use tollgate_limiter::limit::units::show_duration;

use super::counters::{CandidateReading, CandidateTotals};
use tollgate_config::CandidateTerms;
use tollgate_gateway::observe::latency::BUCKETS;
use tollgate_gateway::observe::latency::quantile;
use tollgate_limiter::clock::Instant;

/// The share of requests whose latency is bounded.
const MOST_REQUESTS: f64 = 0.99;

/// Samples that are kept of a candidate, at most: about one a second for as long as `over` may be.
const MOST_SAMPLES: usize = 600;

/// Counts of a candidate since it acts on this node.
pub struct CandidateWindow {
    terms: CandidateTerms,
    began: Instant,
    totals: CandidateTotals,
    /// The metrics at the last sample.
    last: CandidateReading,
    /// For denials: with enough decisions. A limit may decide on few of a route's requests.
    decisions: Samples,
    /// For errors and latency: with enough requests.
    requests: Samples,
}

/// Counts of the last seconds, up to `MOST_SAMPLES` of them.
struct Samples {
    /// The oldest first: one that is as old as the window, or older, and those within. Where
    /// nothing was counted for a while, the first and the last of that while: with little traffic a
    /// window is long.
    kept: VecDeque<(Instant, CandidateTotals)>,
}

/// The judgement of a candidate by the last seconds.
#[derive(Clone, Debug, PartialEq)]
pub enum CandidateVerdict {
    /// Nothing yet, or nothing against it.
    GoesOn,
    /// The candidate has been within its bounds for as long as it had to be.
    Promote(Passed),
    Abort(BrokenBound),
}

/// The evidence for a candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Passed {
    after: Duration,
    totals: CandidateTotals,
}

/// A bound that a candidate is out of.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokenBound {
    bound: BoundKind,
    over: Duration,
    totals: CandidateTotals,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum BoundKind {
    Denials(u16),
    Errors(u16),
    Latency { most: Duration, found_s: f32 },
}

impl CandidateWindow {
    pub fn new(terms: CandidateTerms, now: Instant, reading: CandidateReading) -> Self {
        let totals = CandidateTotals::default();
        Self {
            terms,
            began: now,
            totals,
            last: reading,
            decisions: Samples::new(now, totals),
            requests: Samples::new(now, totals),
        }
    }

    /// Goes on to `reading`, and judges the last seconds.
    pub fn advance(&mut self, now: Instant, reading: CandidateReading) -> CandidateVerdict {
        let CandidateTerms { over, least, .. } = self.terms;
        self.totals.add_since(&reading, &self.last);
        self.last = reading;
        let totals = self.totals;
        let (since, risen) = self
            .decisions
            .advance(now, totals, over, |risen| risen.decisions >= least);
        if let Some(bound) = self.broken_by_denials(&risen) {
            return CandidateVerdict::Abort(BrokenBound {
                bound,
                over: since,
                totals: risen,
            });
        }
        let (since, risen) = self
            .requests
            .advance(now, totals, over, |risen| risen.requests >= least);
        if let Some(bound) = self.broken_by_answers(&risen) {
            return CandidateVerdict::Abort(BrokenBound {
                bound,
                over: since,
                totals: risen,
            });
        }
        let after = now.saturating_duration_since(self.began);
        let is_due = self
            .terms
            .promote_after
            .is_some_and(|promote_after| after >= promote_after);
        if !is_due || totals.decisions < least || !self.answers_are_judged(&risen) {
            return CandidateVerdict::GoesOn;
        }
        CandidateVerdict::Promote(Passed { after, totals })
    }

    fn broken_by_denials(&self, risen: &CandidateTotals) -> Option<BoundKind> {
        let CandidateTerms { bounds, least, .. } = self.terms;
        let most = bounds.denials.filter(|_| risen.decisions >= least)?;
        is_over(risen.denied, risen.decisions, most).then_some(BoundKind::Denials(most))
    }

    fn broken_by_answers(&self, risen: &CandidateTotals) -> Option<BoundKind> {
        let CandidateTerms { bounds, least, .. } = self.terms;
        if risen.requests < least {
            return None;
        }
        if let Some(most) = bounds
            .errors
            .filter(|most| is_over(risen.errors, risen.requests, *most))
        {
            return Some(BoundKind::Errors(most));
        }
        let most = bounds.latency?;
        let found_s = quantile(&small(&risen.latency), MOST_REQUESTS)?;
        (found_s > most.as_secs_f32()).then_some(BoundKind::Latency { most, found_s })
    }

    /// Whether there are enough requests to judge the errors and the latency that are bounded.
    fn answers_are_judged(&self, risen: &CandidateTotals) -> bool {
        let CandidateTerms { bounds, least, .. } = self.terms;
        let answered: u64 = risen.latency.iter().sum();
        (bounds.errors.is_none() || risen.requests >= least)
            && (bounds.latency.is_none() || answered >= least)
    }
}

impl Samples {
    fn new(now: Instant, totals: CandidateTotals) -> Self {
        Self {
            kept: VecDeque::from([(now, totals)]),
        }
    }

    /// Goes on to `totals`. Returns how far the window goes back, and what was counted within: few
    /// requests a second are judged over the time that it takes to have enough of them.
    fn advance(
        &mut self,
        now: Instant,
        totals: CandidateTotals,
        over: Duration,
        is_enough: impl Fn(&CandidateTotals) -> bool,
    ) -> (Duration, CandidateTotals) {
        if self.kept.len() > 1
            && self
                .kept
                .iter()
                .rev()
                .take(2)
                .all(|(_, last)| *last == totals)
        {
            self.kept.pop_back();
        }
        self.kept.push_back((now, totals));
        while let Some((at, before)) = self.kept.get(1)
            && now.saturating_duration_since(*at) >= over
            && is_enough(&totals.since(before))
        {
            self.kept.pop_front();
        }
        let (since, before) = self.kept.front().copied().unwrap_or((now, totals));
        let age = now.saturating_duration_since(since);
        if self.kept.len() > MOST_SAMPLES {
            self.thin(since, age);
        }
        (age, totals.since(&before))
    }

    /// Keeps about half as many samples as there may be, at even distances, and the newest. A
    /// window is then up to a 150th longer than it has to be.
    fn thin(&mut self, since: Instant, age: Duration) {
        let distance = age / (MOST_SAMPLES as u32 / 2);
        let newest = self.kept.pop_back();
        let mut next = since;
        self.kept.retain(|(at, _)| {
            let is_kept = *at >= next;
            if is_kept {
                next = *at + distance;
            }
            is_kept
        });
        self.kept.extend(newest);
    }
}

/// Whether `part` is a greater share of `whole` than so many hundredths of a percent.
fn is_over(part: u64, whole: u64, most: u16) -> bool {
    u128::from(part) * 10_000 > u128::from(whole) * u128::from(most)
}

impl fmt::Display for BrokenBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            bound,
            over,
            totals,
        } = self;
        let over = over.as_secs_f64();
        match bound {
            BoundKind::Denials(most) => {
                let found = percent(totals.denied, totals.decisions);
                let most = Hundredths(*most);
                write!(
                    f,
                    "denials were {found} of {} requests in {over:.1} s, over {most}",
                    totals.decisions
                )
            }
            BoundKind::Errors(most) => {
                let found = percent(totals.errors, totals.requests);
                let most = Hundredths(*most);
                write!(
                    f,
                    "answers 5xx were {found} of {} requests in {over:.1} s, over {most}",
                    totals.requests
                )
            }
            BoundKind::Latency { most, found_s } => {
                let found = f64::from(*found_s) * 1e3;
                let most = show_duration(*most);
                write!(
                    f,
                    "the latency of 99 % of {} requests in {over:.1} s was {found:.0} ms, over {most}",
                    totals.requests
                )
            }
        }
    }
}

impl fmt::Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CandidateTotals {
            decisions,
            denied,
            requests,
            errors,
            ..
        } = self.totals;
        let denied = percent(denied, decisions);
        let errors = percent(errors, requests);
        let after = self.after.as_secs_f64();
        write!(
            f,
            "within its bounds for {after:.0} s: denials were {denied} of {decisions} requests, answers 5xx {errors}"
        )
    }
}

/// A share in hundredths of a percent.
struct Hundredths(u16);

impl fmt::Display for Hundredths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 100.0)
    }
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}%", 100.0 * part as f64 / (whole.max(1)) as f64)
}

fn small(counts: &[u64; BUCKETS]) -> [u32; BUCKETS] {
    counts.map(|count| u32::try_from(count).unwrap_or(u32::MAX))
}

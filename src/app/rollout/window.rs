//! The last seconds of a candidate, and whether they are within its bounds.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use tollgate_limiter::limit::units::show_duration;

use super::counters::CandidateTotals;
use crate::clock::Instant;
use crate::config::CandidateTerms;
use crate::console::live::latency::quantile;
use crate::console::live::totals::BUCKETS;

/// The share of requests whose latency is bounded.
const MOST_REQUESTS: f64 = 0.99;

/// Counts of a candidate since it acts on this node.
pub struct CandidateWindow {
    terms: CandidateTerms,
    began: (Instant, CandidateTotals),
    /// The oldest first: one that is as old as the window, or older, and those within. Where nothing was counted for a while,
    /// the first and the last of that while: with little traffic a window is long.
    samples: VecDeque<(Instant, CandidateTotals)>,
}

/// The judgement of a candidate by the last seconds.
#[derive(Clone, Debug, PartialEq)]
pub enum CandidateVerdict {
    /// Nothing yet, or nothing against it.
    GoesOn,
    /// It has been within its bounds for as long as it had to be.
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
    pub fn new(terms: CandidateTerms, now: Instant, totals: CandidateTotals) -> Self {
        Self { terms, began: (now, totals), samples: VecDeque::from([(now, totals)]) }
    }

    /// Goes on to `totals`, and judges the last seconds.
    pub fn advance(&mut self, now: Instant, totals: CandidateTotals) -> CandidateVerdict {
        if self.samples.len() > 1 && self.samples.iter().rev().take(2).all(|(_, last)| *last == totals) {
            self.samples.pop_back();
        }
        self.samples.push_back((now, totals));
        let CandidateTerms { over, least, .. } = self.terms;
        // Few requests a second are judged over the time that it takes to have enough of them.
        let is_left = |(at, before): &(Instant, CandidateTotals)| {
            let risen = totals.since(before);
            now.saturating_duration_since(*at) >= over && risen.decisions >= least && risen.requests >= least
        };
        while self.samples.get(1).is_some_and(is_left) {
            self.samples.pop_front();
        }
        let Some((since, before)) = self.samples.front() else { return CandidateVerdict::GoesOn };
        let (over, risen) = (now.saturating_duration_since(*since), totals.since(before));
        if let Some(bound) = self.broken(&risen) {
            return CandidateVerdict::Abort(BrokenBound { bound, over, totals: risen });
        }
        let (began, before) = &self.began;
        let (after, totals) = (now.saturating_duration_since(*began), totals.since(before));
        let is_due = self.terms.promote_after.is_some_and(|promote_after| after >= promote_after);
        if !is_due || totals.decisions < least {
            return CandidateVerdict::GoesOn;
        }
        CandidateVerdict::Promote(Passed { after, totals })
    }

    fn broken(&self, risen: &CandidateTotals) -> Option<BoundKind> {
        let CandidateTerms { bounds, least, .. } = self.terms;
        let is_over = |part: u64, whole: u64, most: u16| {
            whole >= least && u128::from(part) * 10_000 > u128::from(whole) * u128::from(most)
        };
        if let Some(most) = bounds.denials.filter(|most| is_over(risen.denied, risen.decisions, *most)) {
            return Some(BoundKind::Denials(most));
        }
        if let Some(most) = bounds.errors.filter(|most| is_over(risen.errors, risen.requests, *most)) {
            return Some(BoundKind::Errors(most));
        }
        let most = bounds.latency.filter(|_| risen.requests >= least)?;
        let found_s = quantile(&small(&risen.latency), MOST_REQUESTS)?;
        (found_s > most.as_secs_f32()).then_some(BoundKind::Latency { most, found_s })
    }
}

impl fmt::Display for BrokenBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bound, over, totals } = self;
        let over = over.as_secs_f64();
        match bound {
            BoundKind::Denials(most) => {
                let (found, most) = (percent(totals.denied, totals.decisions), Hundredths(*most));
                write!(f, "denials were {found} of {} requests in {over:.1} s, over {most}", totals.decisions)
            }
            BoundKind::Errors(most) => {
                let (found, most) = (percent(totals.errors, totals.requests), Hundredths(*most));
                write!(f, "answers 5xx were {found} of {} requests in {over:.1} s, over {most}", totals.requests)
            }
            BoundKind::Latency { most, found_s } => {
                let (found, most) = (f64::from(*found_s) * 1e3, show_duration(*most));
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
        let CandidateTotals { decisions, denied, requests, errors, .. } = self.totals;
        let (denied, errors) = (percent(denied, decisions), percent(errors, requests));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::config::CandidateBounds;

    const SECOND: Duration = Duration::from_secs(1);

    fn terms(bounds: CandidateBounds) -> CandidateTerms {
        CandidateTerms { bounds, over: 5 * SECOND, least: 50, promote_after: None }
    }

    /// A window that has seen so many requests of each second, and what it said of each: from the first that ends it.
    fn end(terms: CandidateTerms, seconds: &[CandidateTotals]) -> Option<(usize, CandidateVerdict)> {
        let began = clock::now();
        let mut totals =
            CandidateTotals { decisions: 1_000, denied: 1_000, requests: 1_000, errors: 1_000, ..totals(0, 0) };
        let mut window = CandidateWindow::new(terms, began, totals);
        let mut verdicts = (1..).zip(seconds).map(|(second, more)| {
            totals.decisions += more.decisions;
            totals.denied += more.denied;
            totals.requests += more.requests;
            totals.errors += more.errors;
            totals.latency.iter_mut().zip(more.latency).for_each(|(count, more)| *count += more);
            (second, window.advance(began + u32::try_from(second).unwrap_or(0) * SECOND, totals))
        });
        verdicts.find(|(_, verdict)| *verdict != CandidateVerdict::GoesOn)
    }

    fn totals(decisions: u64, denied: u64) -> CandidateTotals {
        CandidateTotals { decisions, denied, requests: decisions, ..CandidateTotals::default() }
    }

    fn shown(end: Option<(usize, CandidateVerdict)>) -> (usize, String) {
        match end {
            Some((second, CandidateVerdict::Abort(broken))) => (second, broken.to_string()),
            Some((second, CandidateVerdict::Promote(passed))) => (second, passed.to_string()),
            _ => (0, String::new()),
        }
    }

    #[test]
    fn a_share_over_its_bound_ends_a_candidate_once_there_are_enough_requests() {
        let denials = CandidateBounds { denials: Some(500), ..CandidateBounds::default() };
        let found = end(terms(denials), &[totals(20, 6), totals(20, 6), totals(20, 6)]);
        assert_eq!(shown(found), (3, "denials were 30.0% of 60 requests in 3.0 s, over 5%".to_owned()));
        assert_eq!(end(terms(denials), &[totals(1_000, 50); 20]), None, "the bound itself is allowed");
        let found = end(terms(denials), &[totals(9, 9); 20]);
        assert_eq!(
            shown(found),
            (6, "denials were 100.0% of 54 requests in 6.0 s, over 5%".to_owned()),
            "few a second"
        );
        assert_eq!(end(terms(denials), &[totals(2, 2); 20]), None, "there are never enough");
        let errors = CandidateBounds { errors: Some(50), ..CandidateBounds::default() };
        let failing = CandidateTotals { errors: 1, ..totals(100, 100) };
        let found = end(terms(errors), &[totals(100, 100), failing]);
        assert_eq!(found, None, "half a percent is allowed");
        let found = end(terms(errors), &[failing]);
        assert_eq!(shown(found), (1, "answers 5xx were 1.0% of 100 requests in 1.0 s, over 0.5%".to_owned()));
    }

    #[test]
    fn what_is_older_than_the_window_does_not_count() {
        let denials = CandidateBounds { denials: Some(5_000), ..CandidateBounds::default() };
        let mut seconds = vec![totals(100, 0); 60];
        seconds.extend([totals(100, 100); 4]);
        let found = end(terms(denials), &seconds);
        assert_eq!(shown(found), (63, "denials were 60.0% of 500 requests in 5.0 s, over 50%".to_owned()));
    }

    #[test]
    fn the_latency_of_most_requests_is_bounded() {
        let most = Some(Duration::from_millis(100));
        let latency = CandidateBounds { latency: most, ..CandidateBounds::default() };
        let of = |fast: u64, slow: u64| {
            let mut totals = totals(fast + slow, 0);
            (totals.latency[0], totals.latency[BUCKETS - 1]) = (fast, slow);
            totals
        };
        assert_eq!(end(terms(latency), &[of(995, 5)]), None);
        let found = end(terms(latency), &[of(980, 20)]);
        assert_eq!(
            shown(found),
            (1, "the latency of 99 % of 1000 requests in 1.0 s was 60000 ms, over 100ms".to_owned())
        );
    }

    #[test]
    fn a_candidate_that_was_asked_and_stayed_within_its_bounds_passes() {
        let denials = CandidateBounds { denials: Some(500), ..CandidateBounds::default() };
        let terms = CandidateTerms { promote_after: Some(6 * SECOND), ..terms(denials) };
        let found = end(terms, &[totals(10, 0); 10]);
        let words = "within its bounds for 6 s: denials were 0.0% of 60 requests, answers 5xx 0.0%";
        assert_eq!(shown(found), (6, words.to_owned()));
        assert_eq!(end(terms, &[totals(1, 0); 40]), None, "too few requests speak for it");
        let found = end(CandidateTerms { promote_after: Some(30 * SECOND), ..terms }, &[totals(3, 3); 60]);
        assert_eq!(shown(found), (17, "denials were 100.0% of 51 requests in 17.0 s, over 5%".to_owned()));
    }

    #[test]
    fn a_window_keeps_few_samples_while_nothing_is_counted() {
        let began = clock::now();
        let mut window = CandidateWindow::new(terms(CandidateBounds::default()), began, totals(0, 0));
        for second in 1..10_000_u32 {
            window.advance(began + second * SECOND, totals(u64::from(second / 1_000), 0));
        }
        assert!(window.samples.len() <= 20, "{}", window.samples.len());
    }
}

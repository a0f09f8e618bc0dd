//! The last ten minutes of a route, of a limit, or of all.

use std::collections::VecDeque;

use super::history::{History, NOW};
use super::totals::{LimitTotals, TrafficTotals};
use tollgate_gateway::observe::latency::{BUCKETS, quantile};

/// The requests of a route, or of all.
#[derive(Debug, Default)]
pub struct TrafficTrack {
    pub history: History<TrafficSample>,
    pub totals: TrafficTotals,
    /// The latencies of the last few steps.
    latencies: VecDeque<[u32; BUCKETS]>,
}

/// The requests of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrafficSample {
    pub requests: u32,
    /// Answered with 429.
    pub denied: u32,
    /// Answered with 5xx.
    pub errors: u32,
    /// In seconds, of all steps that count as now. Not a number: there were no requests.
    pub median: f32,
    pub p99: f32,
}

/// The decisions of a limit.
#[derive(Debug, Default)]
pub struct LimitTrack {
    pub history: History<DecisionSample>,
    pub totals: LimitTotals,
}

/// The decisions of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecisionSample {
    pub allowed: u32,
    /// Degraded ones too.
    pub denied: u32,
    /// Requests that would be denied if the limit were enforced: it only counts.
    pub shadow_denied: u32,
}

impl TrafficTrack {
    /// A track that begins where `totals` were counted.
    pub fn since(totals: TrafficTotals) -> Self {
        Self {
            totals,
            ..Self::default()
        }
    }

    /// Goes on to `totals`, one step later.
    pub fn advance(&mut self, totals: &TrafficTotals) {
        let before = &self.totals;
        let mut latencies = [0; BUCKETS];
        for (bucket, count) in latencies.iter_mut().enumerate() {
            *count = risen(totals.latency[bucket], before.latency[bucket]);
        }
        let requests = risen(totals.requests, before.requests);
        // A route that never had one keeps no history.
        if requests == 0 && self.history.is_empty() {
            self.totals = totals.clone();
            return;
        }
        self.latencies.push_back(latencies);
        if self.latencies.len() > NOW {
            self.latencies.pop_front();
        }
        let mut recent = [0; BUCKETS];
        for step in &self.latencies {
            for (sum, count) in recent.iter_mut().zip(step) {
                *sum += count;
            }
        }
        let sample = TrafficSample {
            requests,
            denied: risen(totals.denied, before.denied),
            errors: risen(totals.errors, before.errors),
            median: quantile(&recent, 0.5).unwrap_or(f32::NAN),
            p99: quantile(&recent, 0.99).unwrap_or(f32::NAN),
        };
        self.history.push(sample);
        self.totals = totals.clone();
    }
}

impl LimitTrack {
    /// A track that begins where `totals` were counted.
    pub fn since(totals: LimitTotals) -> Self {
        Self {
            totals,
            ..Self::default()
        }
    }

    /// Goes on to `totals`, one step later.
    pub fn advance(&mut self, totals: LimitTotals) {
        let denied = totals.risen("denied", &self.totals);
        let degraded = totals.risen("degraded", &self.totals);
        let sample = DecisionSample {
            allowed: totals.risen("allowed", &self.totals),
            denied: denied.saturating_add(degraded),
            shadow_denied: totals.risen("shadow_denied", &self.totals),
        };
        if sample != DecisionSample::default() || !self.history.is_empty() {
            self.history.push(sample);
        }
        self.totals = totals;
    }
}

impl LimitTotals {
    /// Decisions with a `verdict` since the counts were those `before`.
    fn risen(&self, verdict: &str, before: &Self) -> u32 {
        risen(self.of(verdict), before.of(verdict))
    }
}

/// The rise of a count, which may begin anew.
fn risen(now: u64, before: u64) -> u32 {
    u32::try_from(now.saturating_sub(before)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_what_was_added_since_the_last() {
        let mut track = TrafficTrack::default();
        track.advance(&TrafficTotals::default());
        assert!(track.history.is_empty(), "nothing has happened");
        let mut totals = TrafficTotals {
            requests: 5,
            denied: 2,
            errors: 1,
            ..TrafficTotals::default()
        };
        totals.latency[0] = 5;
        track.advance(&totals);
        track.advance(&totals);
        let samples: Vec<_> = track.history.iter().collect();
        assert_eq!(
            (samples[0].requests, samples[0].denied, samples[0].errors),
            (5, 2, 1)
        );
        assert_eq!(
            (samples[1].requests, samples[1].median),
            (0, samples[0].median),
            "it still counts as now"
        );
        (0..NOW).for_each(|_| track.advance(&totals));
        assert!(track.history.last().unwrap().median.is_nan());
    }

    #[test]
    fn a_degraded_request_counts_as_denied() {
        let mut track = LimitTrack::default();
        let mut totals = LimitTotals::default();
        (
            totals.0[0][0],
            totals.0[1][2],
            totals.0[2][0],
            totals.0[5][3],
        ) = (7, 3, 2, 1);
        track.advance(totals);
        let expected = DecisionSample {
            allowed: 7,
            denied: 5,
            shadow_denied: 1,
        };
        assert_eq!(track.history.last(), Some(expected));
    }
}

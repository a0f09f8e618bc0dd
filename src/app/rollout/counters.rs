//! Counts of candidates in this process, read from its metrics.

use std::collections::HashMap;

use metrics::Key;

use crate::config::Candidate;
use crate::console::live::totals::BUCKETS;
use crate::gateway::Gateway;
use crate::observe::recorder::MetricsHandle;
use crate::observe::series::label;

/// Verdicts of requests that a limit counts, and whether it denies them or would.
const COUNTED: [(&str, bool); 5] =
    [("allowed", false), ("denied", true), ("degraded", true), ("shadow_allowed", false), ("shadow_denied", true)];

/// Counts of one candidate since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CandidateTotals {
    /// Requests that it decided on.
    pub decisions: u64,
    /// Those that it denied, or would have.
    pub denied: u64,
    /// Requests of the routes that it counts.
    pub requests: u64,
    /// Those that were answered with 5xx.
    pub errors: u64,
    pub latency: [u64; BUCKETS],
}

impl CandidateTotals {
    /// Reads the totals of each candidate. Metrics of other limits and routes are passed over.
    pub fn read(metrics: &MetricsHandle, gateway: &Gateway, candidates: &[Candidate]) -> Vec<Self> {
        let mut totals = vec![Self::default(); candidates.len()];
        let by_limit: HashMap<&str, usize> =
            candidates.iter().enumerate().map(|(at, candidate)| (&*candidate.limit, at)).collect();
        let mut by_route: HashMap<&str, Vec<usize>> = HashMap::new();
        for route in gateway.routes.iter().map(|route| &route.target.route) {
            let counted: Vec<usize> =
                route.limits.iter().filter_map(|used| by_limit.get(&*used.limit.name).copied()).collect();
            if !counted.is_empty() {
                by_route.insert(&route.name, counted);
            }
        }
        metrics.visit_counters("tollgate_ratelimit_decisions_total", |key, count| {
            let verdict = COUNTED.iter().find(|(verdict, _)| *verdict == label(key, "verdict"));
            if let (Some((_, is_denial)), Some(at)) = (verdict, by_limit.get(label(key, "limit"))) {
                totals[*at].decisions += count;
                totals[*at].denied += if *is_denial { count } else { 0 };
            }
        });
        let of_route = |key: &Key| by_route.get(label(key, "route")).map_or(&[][..], Vec::as_slice);
        metrics.visit_counters("tollgate_requests_total", |key, count| {
            let is_error = label(key, "status").starts_with('5');
            for at in of_route(key) {
                totals[*at].requests += count;
                totals[*at].errors += if is_error { count } else { 0 };
            }
        });
        metrics.visit_histograms("tollgate_request_duration_seconds", |key, latency| {
            for at in of_route(key) {
                totals[*at].latency.iter_mut().zip(latency.counts()).for_each(|(bucket, count)| *bucket += count);
            }
        });
        totals
    }

    /// The counts since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let mut latency = self.latency;
        latency.iter_mut().zip(before.latency).for_each(|(now, before)| *now = now.saturating_sub(before));
        Self {
            decisions: self.decisions.saturating_sub(before.decisions),
            denied: self.denied.saturating_sub(before.denied),
            requests: self.requests.saturating_sub(before.requests),
            errors: self.errors.saturating_sub(before.errors),
            latency,
        }
    }
}

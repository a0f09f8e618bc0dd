//! Counts of candidates in this process, read from its metrics.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tollgate_config::Candidate;
use tollgate_gateway::Gateway;
use tollgate_gateway::observe::latency::BUCKETS;
use tollgate_gateway::observe::recorder::MetricsHandle;
use tollgate_gateway::observe::series::label;

/// Verdicts of requests that a limit counts, each with whether it is a denial, or would be one.
const COUNTED: [(&str, bool); 5] = [
    ("allowed", false),
    ("denied", true),
    ("degraded", true),
    ("shadow_allowed", false),
    ("shadow_denied", true),
];

/// Counts of one candidate since it acts on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CandidateTotals {
    /// Requests that it decided on.
    pub decisions: u64,
    /// Requests that it denied, or would have.
    pub denied: u64,
    /// Requests of the routes that it counts, of each while it counts it.
    pub requests: u64,
    /// Requests that were answered with 5xx.
    pub errors: u64,
    pub latency: [u64; BUCKETS],
}

/// The metrics of one candidate at a moment: counts since the process began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CandidateReading {
    pub decisions: u64,
    pub denied: u64,
    /// The routes that it counts at this moment, by name.
    pub routes: HashMap<Arc<str>, RouteReading>,
}

/// The metrics of one route at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteReading {
    pub requests: u64,
    pub errors: u64,
    pub latency: [u64; BUCKETS],
}

impl CandidateReading {
    /// Reads the metrics of each candidate, and leaves out those of other limits and routes.
    pub fn read(metrics: &MetricsHandle, gateway: &Gateway, candidates: &[Candidate]) -> Vec<Self> {
        let mut readings = vec![Self::default(); candidates.len()];
        let mut by_limit: HashMap<&str, usize> = HashMap::new();
        for (at, candidate) in candidates.iter().enumerate() {
            by_limit.insert(&candidate.limit, at);
        }
        let mut by_route: HashMap<&str, BTreeSet<usize>> = HashMap::new();
        for entry in &gateway.routes {
            let route = &entry.target.route;
            for used in &route.limits {
                if let Some(at) = by_limit.get(&*used.limit.name) {
                    by_route.entry(&route.name).or_default().insert(*at);
                    // A route without a request has no metrics yet, and is counted from its first.
                    readings[*at]
                        .routes
                        .insert(route.name.clone(), RouteReading::default());
                }
            }
        }
        metrics.visit_counters("tollgate_ratelimit_decisions_total", |key, count| {
            let mut verdicts = COUNTED.iter();
            if let Some(at) = by_limit.get(label(key, "limit"))
                && let Some((_, is_denial)) =
                    verdicts.find(|(verdict, _)| *verdict == label(key, "verdict"))
            {
                readings[*at].decisions += count;
                readings[*at].denied += if *is_denial { count } else { 0 };
            }
        });
        metrics.visit_counters("tollgate_requests_total", |key, count| {
            let route = label(key, "route");
            let is_error = label(key, "status").starts_with('5');
            for at in by_route.get(route).into_iter().flatten() {
                if let Some(route) = readings[*at].routes.get_mut(route) {
                    route.requests += count;
                    route.errors += if is_error { count } else { 0 };
                }
            }
        });
        metrics.visit_histograms("tollgate_request_duration_seconds", |key, latency| {
            let route = label(key, "route");
            for at in by_route.get(route).into_iter().flatten() {
                if let Some(route) = readings[*at].routes.get_mut(route) {
                    for (bucket, count) in route.latency.iter_mut().zip(latency.counts()) {
                        *bucket += count;
                    }
                }
            }
        });
        readings
    }
}

impl CandidateTotals {
    /// The counts since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            decisions: self.decisions.saturating_sub(before.decisions),
            denied: self.denied.saturating_sub(before.denied),
            requests: self.requests.saturating_sub(before.requests),
            errors: self.errors.saturating_sub(before.errors),
            latency: risen(&self.latency, &before.latency),
        }
    }

    /// Adds what has come from `before` to `now`. A route that joins begins at what it has counted
    /// by then, and one that leaves takes nothing away.
    pub fn add_since(&mut self, now: &CandidateReading, before: &CandidateReading) {
        self.decisions += now.decisions.saturating_sub(before.decisions);
        self.denied += now.denied.saturating_sub(before.denied);
        for (name, route) in &now.routes {
            if let Some(before) = before.routes.get(name) {
                self.add_route(route, before);
            }
        }
    }

    fn add_route(&mut self, now: &RouteReading, before: &RouteReading) {
        self.requests += now.requests.saturating_sub(before.requests);
        self.errors += now.errors.saturating_sub(before.errors);
        let latency = risen(&now.latency, &before.latency);
        for (bucket, count) in self.latency.iter_mut().zip(latency) {
            *bucket += count;
        }
    }
}

fn risen(now: &[u64; BUCKETS], before: &[u64; BUCKETS]) -> [u64; BUCKETS] {
    std::array::from_fn(|bucket| now[bucket].saturating_sub(before[bucket]))
}

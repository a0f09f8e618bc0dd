//! The counts of the process since it started, as its metrics have them.

use std::collections::HashMap;

use metrics::Key;

use tollgate_gateway::observe::latency::BUCKETS;
use tollgate_gateway::observe::recorder::MetricsHandle;
use tollgate_gateway::observe::series::label;

/// The verdicts of a limit, by their labels.
pub const VERDICTS: [&str; 6] = [
    "allowed",
    "denied",
    "degraded",
    "exempt",
    "shadow_allowed",
    "shadow_denied",
];

/// The deciders of a limit, by their labels.
pub const DECIDERS: [&str; 4] = ["redis", "lease", "denial_cache", "local"];

/// All counts.
#[derive(Debug, Default)]
pub struct Totals {
    pub routes: HashMap<String, TrafficTotals>,
    pub limits: HashMap<String, LimitTotals>,
    pub upstreams: HashMap<String, UpstreamTotals>,
}

/// The requests of a route, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrafficTotals {
    pub requests: u64,
    /// Answered with 429.
    pub denied: u64,
    /// Answered with 5xx.
    pub errors: u64,
    pub latency: [u64; BUCKETS],
}

/// The decisions of a limit: a row for each of [`VERDICTS`], a column for each of [`DECIDERS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitTotals(pub [[u64; DECIDERS.len()]; VERDICTS.len()]);

/// The requests to an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTotals {
    pub requests: u64,
    /// Requests that the upstream did not answer, for whatever reason but the client's.
    pub failures: u64,
}

/// Outcomes of a request to an upstream that are not its failures: it has answered, or the client
/// has given up.
const NO_FAILURES: [&str; 3] = ["response", "client_error", "cancelled"];

impl Totals {
    pub fn read(metrics: &MetricsHandle) -> Self {
        let mut totals = Self::default();
        metrics.visit_counters("tollgate_requests_total", |key, count| {
            totals.requests(key, count)
        });
        metrics.visit_histograms("tollgate_request_duration_seconds", |key, latency| {
            let route = totals.route(label(key, "route"));
            for (bucket, count) in route.latency.iter_mut().zip(latency.counts()) {
                *bucket += count;
            }
        });
        metrics.visit_counters("tollgate_ratelimit_decisions_total", |key, count| {
            totals.decisions(key, count)
        });
        metrics.visit_counters("tollgate_upstream_requests_total", |key, count| {
            totals.forwarded(key, count)
        });
        totals
    }

    fn route(&mut self, name: &str) -> &mut TrafficTotals {
        entry(&mut self.routes, name)
    }

    fn requests(&mut self, key: &Key, count: u64) {
        let route = self.route(label(key, "route"));
        let status = label(key, "status");
        route.requests += count;
        route.denied += if status == "429" { count } else { 0 };
        route.errors += if status.starts_with('5') { count } else { 0 };
    }

    fn decisions(&mut self, key: &Key, count: u64) {
        // Each limit has many such counters, and most of them stay at zero.
        if count == 0 {
            return;
        }
        let Some(row) = position(&VERDICTS, label(key, "verdict")) else {
            return;
        };
        let Some(column) = position(&DECIDERS, label(key, "decided_by")) else {
            return;
        };
        let name = label(key, "limit");
        match self.limits.get_mut(name) {
            Some(limit) => limit.0[row][column] += count,
            None => entry(&mut self.limits, name).0[row][column] += count,
        }
    }

    fn forwarded(&mut self, key: &Key, count: u64) {
        let upstream = entry(&mut self.upstreams, label(key, "upstream"));
        upstream.requests += count;
        upstream.failures += if NO_FAILURES.contains(&label(key, "outcome")) {
            0
        } else {
            count
        };
    }
}

impl TrafficTotals {
    /// Adds what has come to `before`.
    pub fn add_since(&mut self, now: &Self, before: &Self) {
        self.requests += now.requests.saturating_sub(before.requests);
        self.denied += now.denied.saturating_sub(before.denied);
        self.errors += now.errors.saturating_sub(before.errors);
        for (bucket, count) in self.latency.iter_mut().enumerate() {
            *count += now.latency[bucket].saturating_sub(before.latency[bucket]);
        }
    }
}

impl LimitTotals {
    /// Decisions with this verdict, of all deciders.
    pub fn of(&self, verdict: &str) -> u64 {
        match position(&VERDICTS, verdict) {
            Some(row) => self.0[row].iter().sum(),
            None => 0,
        }
    }
}

fn position(words: &[&str], word: &str) -> Option<usize> {
    words.iter().position(|known| *known == word)
}

fn entry<'a, T: Default>(map: &'a mut HashMap<String, T>, name: &str) -> &'a mut T {
    if !map.contains_key(name) {
        map.insert(name.to_owned(), T::default());
    }
    map.entry(name.to_owned()).or_default()
}

//! The adaptive bound of an upstream: on the requests that wait for its answers, by how long they
//! wait. `gradient` has the arithmetic, which runs on the control plane.
//!
//! Guarantees that no more requests wait than the limit says, by all workers together, and that a
//! request takes no lock.

pub mod gradient;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use gradient::{AdaptiveRule, AnswerSample, Gradient};
use metrics::{Gauge, gauge};
use parking_lot::Mutex;

use super::health::micros;
use super::latency::histogram::LatencyHistogram;
use tollgate_limiter::clock;

/// The bound, shared by all workers. A reload that leaves its rule as it is keeps it, and another
/// rule takes over what it knows.
pub struct AdaptiveBound {
    rule: AdaptiveRule,
    limit: AtomicUsize,
    /// By all of its rules.
    in_flight: Arc<AtomicUsize>,
    /// The most in flight since the limit was last looked at.
    peak: AtomicUsize,
    latency: LatencyHistogram,
    /// Requests that were sent before do not count, in microseconds of the monotonic clock: they
    /// waited for more others.
    counted_from: AtomicU64,
    /// In microseconds. 0: it was not measured yet.
    shortest: AtomicU64,
    /// Locked by the control plane alone.
    gradient: Mutex<Gradient>,
    limit_gauge: Gauge,
    shortest_gauge: Gauge,
}

/// The place of a request among those that wait for an answer, until it is dropped.
pub struct AdaptivePlace<'a>(&'a AdaptiveBound);

impl AdaptiveBound {
    pub fn new(upstream: &str, rule: AdaptiveRule) -> Self {
        let now = clock::monotonic_micros();
        Self::with(
            upstream,
            rule,
            Gradient::new(rule, now),
            Arc::default(),
            now,
        )
    }

    /// In place of this one, with another rule.
    pub fn with_rule(&self, upstream: &str, rule: AdaptiveRule) -> Self {
        let now = clock::monotonic_micros();
        let gradient = self.gradient.lock().with_rule(rule, now, fastrand::f64());
        Self::with(upstream, rule, gradient, self.in_flight.clone(), now)
    }

    fn with(
        upstream: &str,
        rule: AdaptiveRule,
        gradient: Gradient,
        in_flight: Arc<AtomicUsize>,
        now: u64,
    ) -> Self {
        let shortest = micros(gradient.shortest_latency().unwrap_or_default());
        let bound = Self {
            rule,
            limit: AtomicUsize::new(gradient.limit()),
            peak: AtomicUsize::new(in_flight.load(Ordering::Relaxed)),
            in_flight,
            latency: LatencyHistogram::default(),
            counted_from: AtomicU64::new(now),
            shortest: AtomicU64::new(shortest),
            gradient: Mutex::new(gradient),
            limit_gauge: gauge!("tollgate_upstream_concurrency_limit", "upstream" => upstream.to_owned()),
            shortest_gauge: gauge!("tollgate_upstream_min_rtt_seconds", "upstream" => upstream.to_owned()),
        };
        bound.limit_gauge.set(bound.limit() as f64);
        bound
    }

    pub fn rule(&self) -> &AdaptiveRule {
        &self.rule
    }

    /// How many requests may wait for an answer.
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// How many do.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The latency of requests that wait for no other. `None`: it was not measured yet.
    pub fn shortest_latency(&self) -> Option<Duration> {
        match self.shortest.load(Ordering::Relaxed) {
            0 => None,
            micros => Some(Duration::from_micros(micros)),
        }
    }

    /// A place for another request. `None`: there is none.
    #[inline]
    pub fn enter(&self) -> Option<AdaptivePlace<'_>> {
        let limit = self.limit();
        let entered = self
            .in_flight
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                (count < limit).then_some(count + 1)
            });
        let before = entered.ok()?;
        if before >= self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(before + 1, Ordering::Relaxed);
        }
        Some(AdaptivePlace(self))
    }

    /// Whether no more requests wait than may.
    pub fn is_within_limit(&self) -> bool {
        self.in_flight() <= self.limit()
    }

    /// Records the time from a whole request to the head of its response, which has come just now.
    #[inline]
    pub fn record(&self, latency: Duration) {
        let sent_at = clock::monotonic_micros().saturating_sub(micros(latency));
        if sent_at >= self.counted_from.load(Ordering::Relaxed) {
            self.latency.record(latency);
        }
    }

    /// Records how long a request was waited for that nobody waits for any more. That says
    /// something only if it was slow by then.
    pub fn record_unanswered(&self, waited: Duration) {
        if self
            .shortest_latency()
            .is_some_and(|shortest| waited > shortest)
        {
            self.record(waited);
        }
    }

    /// Sets the limit by what was recorded until `now`, in microseconds of the monotonic clock. For
    /// the control plane.
    pub fn tend(&self, now: u64) {
        let Some(mut gradient) = self.gradient.try_lock() else {
            return;
        };
        if !gradient.is_due(now, self.latency.total()) {
            return;
        }
        let peak = self.peak.swap(self.in_flight(), Ordering::Relaxed);
        let sample = self.latency.take().map(|counts| AnswerSample {
            count: counts.total(),
            median: counts.median(),
            peak,
        });
        let was_measuring = gradient.is_measuring();
        gradient.advance(now, sample, fastrand::f64());
        if gradient.is_measuring() && !was_measuring {
            self.counted_from.store(now, Ordering::Relaxed);
        }
        let shortest = gradient.shortest_latency().unwrap_or_default();
        self.shortest.store(micros(shortest), Ordering::Relaxed);
        self.limit.store(gradient.limit(), Ordering::Relaxed);
        self.limit_gauge.set(gradient.limit() as f64);
        self.shortest_gauge.set(shortest.as_secs_f64());
    }
}

impl Drop for AdaptivePlace<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

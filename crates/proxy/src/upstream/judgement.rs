//! The judgement of an upstream's endpoints: what their requests and probes say of them, and which
//! of them it is picked from then.
//!
//! Guarantees that judging one endpoint never changes what is known of another.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::StatusCode;

use super::Upstream;
use super::endpoints::{Endpoint, UpstreamConnectError};
use super::health::ejection::{self, EjectionReason};
use super::health::micros;
use super::latency::EndpointLatency;
use super::latency::outliers::outliers;
use super::rotation::{ChangingRotation, Rotation, Rotations};
use super::spec::health::{EjectSpec, LatencyRule, ProbeThresholds};
use tollgate_limiter::clock;

impl Upstream {
    /// Whether it judges endpoints by their requests.
    #[inline]
    pub fn ejects(&self) -> bool {
        self.spec.eject.is_some()
    }

    /// Whether it looks at how its requests end.
    #[inline]
    pub fn observes(&self) -> bool {
        self.observes
    }

    /// Whether it asks how long its requests take.
    pub fn measures_latency(&self) -> bool {
        self.adaptive.is_some() || self.judges_latency()
    }

    /// Whether it judges endpoints by the latency of their requests, too.
    pub fn judges_latency(&self) -> bool {
        self.latency_rule().is_some()
    }

    fn latency_rule(&self) -> Option<&LatencyRule> {
        self.spec.eject.as_ref()?.latency.as_ref()
    }

    /// Records a response of `endpoint`. `latency`: from the whole request to the response's head,
    /// unless that came before.
    pub fn record_response(
        &self,
        endpoint: &Arc<Endpoint>,
        status: StatusCode,
        latency: impl FnOnce() -> Option<Duration>,
    ) {
        if ejection::is_failure(status) {
            return self.record_failure(endpoint, status.as_str());
        }
        endpoint.condition().ejection().succeeded();
        if self.measures_latency()
            && let Some(latency) = latency()
        {
            self.record_latency(endpoint, latency);
        }
    }

    fn record_latency(&self, endpoint: &Arc<Endpoint>, latency: Duration) {
        if self.judges_latency() {
            endpoint.condition().record_latency(latency);
        }
        if let Some(adaptive) = &self.adaptive {
            adaptive.record(latency);
        }
    }

    /// Records that `endpoint` had a whole request for so long, and that nobody waits for the
    /// response any more. That says something only if it was slow by then.
    pub fn record_unanswered(&self, endpoint: &Arc<Endpoint>, waited: Duration) {
        if self.latency_rule().is_some_and(|rule| waited > rule.above) {
            endpoint.condition().record_latency(waited);
        }
        if let Some(adaptive) = &self.adaptive {
            adaptive.record_unanswered(waited);
        }
    }

    /// Records that `endpoint` could not be connected to. A lack of descriptors is no fault of its
    /// own.
    pub fn record_unconnected(&self, endpoint: &Arc<Endpoint>, error: &UpstreamConnectError) {
        self.metrics.connect_failed(error);
        if self.ejects() && !matches!(error, UpstreamConnectError::Exhausted(_)) {
            self.record_failure(endpoint, &error.to_string());
        }
    }

    /// Records that a request to `endpoint` failed. Ejects it, if that was one too many.
    pub fn record_failure(&self, endpoint: &Arc<Endpoint>, reason: &str) {
        let (Some(eject), Rotations::Changing(changing)) = (&self.spec.eject, &self.rotations)
        else {
            return;
        };
        let failures = endpoint.condition().ejection().failed();
        // Without the lock: an endpoint that fails and has to stay must not make every request wait
        // for it.
        if failures < eject.after || !may_eject(endpoint, &changing.load(), eject) {
            return;
        }
        let _changing = changing.lock();
        if let Some(time) = self.eject(endpoint, changing, eject, EjectionReason::Failures) {
            let upstream = &*self.spec.name;
            let endpoint = endpoint.url();
            let for_s = time.as_secs_f64();
            tracing::warn!(
                upstream,
                endpoint,
                reason,
                failures,
                for_s,
                "an endpoint is ejected"
            );
        }
    }

    /// Ejects the endpoints that are far slower than the others, at the end of each window.
    fn judge_latency(&self, now: u64) {
        let (Some(eject), Rotations::Changing(changing)) = (&self.spec.eject, &self.rotations)
        else {
            return;
        };
        let Some(rule) = &eject.latency else { return };
        let due = self.latency_due.load(Ordering::Relaxed);
        if due != 0 && now < due {
            return;
        }
        self.latency_due.store(
            now.saturating_add(micros(rule.window)).max(1),
            Ordering::Relaxed,
        );
        if due == 0 {
            return;
        }
        let _changing = changing.lock();
        let rotation = changing.load();
        let mut medians = Vec::with_capacity(rotation.all().len());
        for endpoint in rotation.all() {
            medians.push(median(endpoint, rule));
        }
        for outlier in outliers(rule, &medians) {
            let Some(endpoint) = rotation.all().get(outlier.place) else {
                continue;
            };
            if let Some(time) = self.eject(endpoint, changing, eject, EjectionReason::Latency) {
                let upstream = &*self.spec.name;
                let endpoint = endpoint.url();
                let reason = "it is slow";
                let for_s = time.as_secs_f64();
                let median_s = outlier.median.as_secs_f64();
                let others_s = outlier.others.as_secs_f64();
                tracing::warn!(
                    upstream,
                    endpoint,
                    reason,
                    median_s,
                    others_s,
                    for_s,
                    "an endpoint is ejected"
                );
            }
        }
    }

    /// Ejects `endpoint`, if the rule lets one more be out. Returns for how long. To be called with
    /// the changes locked.
    fn eject(
        &self,
        endpoint: &Arc<Endpoint>,
        changing: &ChangingRotation,
        eject: &EjectSpec,
        reason: EjectionReason,
    ) -> Option<Duration> {
        let rotation = changing.load();
        if !may_eject(endpoint, &rotation, eject) {
            return None;
        }
        let time = endpoint
            .condition()
            .ejection()
            .eject(clock::monotonic_micros(), eject, reason);
        self.turn(changing, &rotation, rotation.all().into());
        Some(time)
    }

    /// Takes back the endpoints whose ejection is over at `now`, in microseconds of the monotonic
    /// clock, and lets the shares of new ones grow.
    pub fn review(&self, now: u64) {
        let Rotations::Changing(changing) = &self.rotations else {
            return;
        };
        if !changing.load().is_to_be_reviewed(|| now) {
            return;
        }
        let Some(_changing) = changing.try_lock() else {
            return;
        };
        let rotation = changing.load();
        let ejected = rotation
            .all()
            .iter()
            .filter(|endpoint| endpoint.condition().ejection().is_out());
        for endpoint in ejected {
            let over = self
                .spec
                .eject
                .as_ref()
                .is_some_and(|eject| endpoint.condition().ejection().review(now, eject));
            if over {
                endpoint.condition().start(now);
                // Answers to requests from before the ejection say nothing any more.
                endpoint
                    .condition()
                    .latency()
                    .into_iter()
                    .for_each(EndpointLatency::begin_anew);
                let upstream = &*self.spec.name;
                let endpoint = endpoint.url();
                tracing::info!(upstream, endpoint, "an endpoint is no longer ejected");
            }
        }
        self.turn(changing, &rotation, rotation.all().into());
    }

    /// Takes back the endpoints whose ejection is over, and those that another has judged: an
    /// upstream from before a reload. Ejects those that are slow, and sets the limit of an adaptive
    /// bound.
    pub fn tend(&self, now: u64) {
        if let Some(adaptive) = &self.adaptive {
            adaptive.tend(now);
        }
        self.review(now);
        self.judge_latency(now);
        let Rotations::Changing(changing) = &self.rotations else {
            return;
        };
        if changing.load().is_stale() {
            let _changing = changing.lock();
            let rotation = changing.load();
            self.turn(changing, &rotation, rotation.all().into());
        }
    }

    /// Records the outcome of a probe of `endpoint`.
    pub fn record_probe(
        &self,
        endpoint: &Arc<Endpoint>,
        outcome: Result<(), Arc<str>>,
        thresholds: ProbeThresholds,
    ) {
        let Rotations::Changing(changing) = &self.rotations else {
            return;
        };
        let error = outcome.as_ref().err().cloned();
        let _changing = changing.lock();
        let condition = endpoint.condition();
        let is_ours = changing
            .load()
            .all()
            .iter()
            .any(|known| Arc::ptr_eq(known, endpoint));
        if !condition.probes().record(outcome, thresholds) || !is_ours {
            return;
        }
        let upstream = &*self.spec.name;
        let endpoint = endpoint.url();
        match error {
            Some(reason) => tracing::warn!(upstream, endpoint, %reason, "an endpoint is unhealthy"),
            None => {
                condition.start(clock::monotonic_micros());
                tracing::info!(upstream, endpoint, "an endpoint is healthy again");
            }
        }
        let rotation = changing.load();
        self.turn(changing, &rotation, rotation.all().into());
    }

    /// Picks from those of `all` that are fit now. To be called with the changes locked.
    pub(super) fn turn(
        &self,
        changing: &ChangingRotation,
        before: &Rotation,
        all: Box<[Arc<Endpoint>]>,
    ) {
        let rotation =
            Rotation::new(all, self.rotation_rules(), clock::monotonic_micros()).following(before);
        if rotation.is_panicking() != before.is_panicking() {
            let upstream = &*self.spec.name;
            if rotation.is_panicking() {
                tracing::warn!(
                    upstream,
                    "too few endpoints are in service: all of them are used"
                );
            } else {
                tracing::info!(
                    upstream,
                    "enough endpoints are in service again: the others are not used"
                );
            }
        }
        changing.store(rotation);
    }
}

/// The median latency of an endpoint's window, which ends. `None`: the endpoint is not judged.
fn median(endpoint: &Endpoint, rule: &LatencyRule) -> Option<u64> {
    let median = endpoint.condition().latency()?.end_window(rule.requests)?;
    if endpoint.condition().is_in_service() {
        Some(median)
    } else {
        None
    }
}

fn is_out(endpoint: &Endpoint) -> bool {
    endpoint.condition().ejection().is_out()
}

/// Whether `endpoint` is in, and the rule lets one more be out.
fn may_eject(endpoint: &Arc<Endpoint>, rotation: &Rotation, eject: &EjectSpec) -> bool {
    let is_ours = rotation
        .all()
        .iter()
        .any(|known| Arc::ptr_eq(known, endpoint));
    let out = rotation.all().iter().filter(|known| is_out(known)).count();
    is_ours && !is_out(endpoint) && out < eject.most_of(rotation.all().len())
}

#[cfg(test)]
pub(super) mod tests;

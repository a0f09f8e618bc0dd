//! The judgement of an upstream's endpoints: what their requests and probes say of them, and which of them it is picked from then.
//!
//! Guarantees that judging one endpoint never changes what is known of another.

use std::sync::Arc;

use http::StatusCode;

use super::Upstream;
use super::endpoints::{Endpoint, UpstreamConnectError};
use super::health::condition::ProbeThresholds;
use super::health::ejection;
use super::rotation::{ChangingRotation, Rotation, Rotations};
use crate::clock;

impl Upstream {
    /// Whether it judges endpoints by their requests.
    #[inline]
    pub fn ejects(&self) -> bool {
        self.spec.eject.is_some()
    }

    /// Records a response of `endpoint`.
    pub fn record_status(&self, endpoint: &Arc<Endpoint>, status: StatusCode) {
        if ejection::is_failure(status) {
            self.record_failure(endpoint, status.as_str());
        } else {
            endpoint.condition().ejection().succeeded();
        }
    }

    /// Records that `endpoint` could not be connected to. A lack of descriptors is no fault of its own.
    pub fn record_unconnected(&self, endpoint: &Arc<Endpoint>, error: &UpstreamConnectError) {
        self.metrics.connect_failed(error);
        if self.ejects() && !matches!(error, UpstreamConnectError::Exhausted(_)) {
            self.record_failure(endpoint, &error.to_string());
        }
    }

    /// Records that a request to `endpoint` failed. Ejects it, if that was one too many.
    pub fn record_failure(&self, endpoint: &Arc<Endpoint>, reason: &str) {
        let (Some(eject), Rotations::Changing(changing)) = (&self.spec.eject, &self.rotations) else { return };
        let record = endpoint.condition().ejection();
        let failures = record.failed();
        if failures < eject.after || record.is_out() {
            return;
        }
        let _changing = changing.lock();
        let rotation = changing.load();
        let is_ours = rotation.all().iter().any(|known| Arc::ptr_eq(known, endpoint));
        let out = rotation.all().iter().filter(|known| known.condition().ejection().is_out()).count();
        if !is_ours || record.is_out() || out >= eject.most_of(rotation.all().len()) {
            return;
        }
        let time = record.eject(clock::monotonic_micros(), eject);
        let (upstream, endpoint) = (&*self.spec.name, endpoint.url());
        let for_s = time.as_secs_f64();
        tracing::warn!(upstream, endpoint, reason, failures, for_s, "an endpoint is ejected");
        self.turn(changing, &rotation, rotation.all().into());
    }

    /// Takes back the endpoints whose ejection is over at `now`, in microseconds of the monotonic clock, and lets the shares of
    /// new ones grow.
    pub fn review(&self, now: u64) {
        let Rotations::Changing(changing) = &self.rotations else { return };
        if !changing.load().is_to_be_reviewed(|| now) {
            return;
        }
        let Some(_changing) = changing.try_lock() else { return };
        let rotation = changing.load();
        let ejected = rotation.all().iter().filter(|endpoint| endpoint.condition().ejection().is_out());
        for endpoint in ejected {
            let over = self.spec.eject.as_ref().is_some_and(|eject| endpoint.condition().ejection().review(now, eject));
            if over {
                endpoint.condition().start(now);
                let (upstream, endpoint) = (&*self.spec.name, endpoint.url());
                tracing::info!(upstream, endpoint, "an endpoint is no longer ejected");
            }
        }
        self.turn(changing, &rotation, rotation.all().into());
    }

    /// Takes back the endpoints whose ejection is over, and those that another has judged: an upstream from before a reload.
    pub fn tend(&self, now: u64) {
        self.review(now);
        let Rotations::Changing(changing) = &self.rotations else { return };
        if changing.load().is_stale() {
            let _changing = changing.lock();
            let rotation = changing.load();
            self.turn(changing, &rotation, rotation.all().into());
        }
    }

    /// Records the outcome of a probe of `endpoint`.
    pub fn record_probe(&self, endpoint: &Arc<Endpoint>, outcome: Result<(), Arc<str>>, thresholds: ProbeThresholds) {
        let Rotations::Changing(changing) = &self.rotations else { return };
        let error = outcome.as_ref().err().cloned();
        let _changing = changing.lock();
        let condition = endpoint.condition();
        let is_ours = changing.load().all().iter().any(|known| Arc::ptr_eq(known, endpoint));
        if !condition.probes().record(outcome, thresholds) || !is_ours {
            return;
        }
        let (upstream, endpoint) = (&*self.spec.name, endpoint.url());
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
    pub(super) fn turn(&self, changing: &ChangingRotation, before: &Rotation, all: Box<[Arc<Endpoint>]>) {
        let rotation = Rotation::new(all, self.spec.rotation_rules(), clock::monotonic_micros());
        if rotation.is_panicking() != before.is_panicking() {
            let upstream = &*self.spec.name;
            if rotation.is_panicking() {
                tracing::warn!(upstream, "too few endpoints are in service: all of them are used");
            } else {
                tracing::info!(upstream, "enough endpoints are in service again: the others are not used");
            }
        }
        changing.store(rotation);
    }
}

//! Probes endpoints when they are due, on the control plane.
//!
//! Guarantees one probe of an endpoint at a time, spread so that a fleet's gateways do not ask all at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use super::probe;
use crate::clock;
use crate::upstream::Upstream;
use crate::upstream::endpoints::Endpoint;
use crate::upstream::health::after;
use crate::upstream::health::condition::EndpointCondition;

/// How often it is looked whether something is due.
const TICK: Duration = Duration::from_millis(100);

/// How often it is looked whether there is anything to watch at all.
const IDLE: Duration = Duration::from_secs(1);

/// The part of the interval by which probes are early or late.
const JITTER: f64 = 0.1;

/// Watches over the `upstreams` there are at each moment, for ever.
pub async fn run(upstreams: impl Fn() -> Vec<Arc<Upstream>>) {
    loop {
        let watched = upstreams();
        watched.iter().for_each(tend);
        sleep(if watched.is_empty() { IDLE } else { TICK }).await;
    }
}

/// Takes back endpoints whose ejection is over, and starts the probes that are due.
pub fn tend(upstream: &Arc<Upstream>) {
    let now = clock::monotonic_micros();
    upstream.tend(now);
    let Some(spec) = &upstream.spec().health else { return };
    for endpoint in upstream.endpoints().iter() {
        let probes = endpoint.condition().probes();
        if probes.due.load(Ordering::Relaxed) <= now && !probes.under_way.swap(true, Ordering::Relaxed) {
            let apart = spec.interval.mul_f64(1.0 + JITTER * (2.0 * fastrand::f64() - 1.0));
            probes.due.store(after(apart), Ordering::Relaxed);
            let under_way = ProbeUnderWay(Arc::clone(endpoint.condition()));
            tokio::spawn(probe_once(Arc::clone(upstream), Arc::clone(endpoint), under_way));
        }
    }
}

async fn probe_once(upstream: Arc<Upstream>, endpoint: Arc<Endpoint>, _under_way: ProbeUnderWay) {
    let Some(spec) = &upstream.spec().health else { return };
    // `None`: nothing was learnt of the endpoint.
    if let Some(outcome) = probe::probe(&endpoint, spec).await {
        upstream.record_probe(&endpoint, outcome, spec.thresholds);
    }
}

/// Lets the next probe start when it is dropped.
struct ProbeUnderWay(Arc<EndpointCondition>);

impl Drop for ProbeUnderWay {
    fn drop(&mut self) {
        self.0.probes().under_way.store(false, Ordering::Relaxed);
    }
}

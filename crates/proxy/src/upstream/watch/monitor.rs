//! Probes endpoints when they are due, on the control plane.
//!
//! Guarantees one probe of an endpoint at a time, spread so that neither the endpoints of an
//! upstream are asked all at once nor one by all of a fleet's gateways.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use super::probe;
use crate::upstream::Upstream;
use crate::upstream::endpoints::Endpoint;
use crate::upstream::health::after;
use crate::upstream::health::condition::{EndpointCondition, ProbeRecord};
use tollgate_limiter::clock;

/// How often it is looked whether something is due.
const TICK: Duration = Duration::from_millis(100);

/// How often it is looked whether there is anything to watch at all.
const IDLE: Duration = Duration::from_secs(1);

/// The part of the interval by which probes are early or late.
const JITTER: f64 = 0.1;

/// First probes of an upstream's endpoints that are under way. A new endpoint does not wait for its
/// turn in the interval, and a thousand of them must not take all descriptors.
const MOST_FIRST_PROBES: usize = 32;

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
    let Some(spec) = &upstream.spec().health else {
        return;
    };
    let endpoints = upstream.endpoints();
    let mut first_probes = endpoints
        .iter()
        .map(|endpoint| endpoint.condition().probes())
        .filter(|probes| is_first(probes) && probes.under_way.load(Ordering::Relaxed))
        .count();
    for endpoint in endpoints.iter() {
        let probes = endpoint.condition().probes();
        let is_first = is_first(probes);
        if is_first && first_probes >= MOST_FIRST_PROBES {
            continue;
        }
        if probes.due.load(Ordering::Relaxed) <= now
            && !probes.under_way.swap(true, Ordering::Relaxed)
        {
            first_probes += usize::from(is_first);
            // All of them may be new: their next probes are spread over the interval, and so stay.
            let part = if is_first {
                fastrand::f64()
            } else {
                1.0 + JITTER * (2.0 * fastrand::f64() - 1.0)
            };
            let apart = spec.interval.mul_f64(part);
            probes.due.store(after(apart), Ordering::Relaxed);
            let under_way = ProbeUnderWay(Arc::clone(endpoint.condition()));
            tokio::spawn(probe_once(
                Arc::clone(upstream),
                Arc::clone(endpoint),
                under_way,
            ));
        }
    }
}

/// Whether no probe has ended yet.
fn is_first(probes: &ProbeRecord) -> bool {
    probes.counts() == (0, 0)
}

async fn probe_once(upstream: Arc<Upstream>, endpoint: Arc<Endpoint>, _under_way: ProbeUnderWay) {
    let Some(spec) = &upstream.spec().health else {
        return;
    };
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::TcpListener;

    use super::*;
    use crate::upstream::health::micros;
    use crate::upstream::spec::health::{HealthCheck, HealthSpec, ProbeThresholds};
    use crate::upstream::{UpstreamSpec, test_spec};

    const INTERVAL: Duration = Duration::from_secs(3600);

    /// An upstream with so many endpoints, which take connections.
    fn probed(endpoints: usize, listener: &TcpListener) -> Arc<Upstream> {
        let address = listener.local_addr().unwrap();
        let thresholds = ProbeThresholds {
            unhealthy_after: 1,
            healthy_after: 1,
        };
        let health = Some(HealthSpec {
            check: HealthCheck::Tcp,
            interval: INTERVAL,
            timeout: Duration::from_secs(20),
            thresholds,
        });
        let urls = std::iter::repeat_n(format!("http://{address}"), endpoints);
        Arc::new(Upstream::new(
            Arc::new(UpstreamSpec {
                health,
                ..test_spec(urls)
            }),
            None,
        ))
    }

    fn count(upstream: &Upstream, is_counted: fn(&ProbeRecord) -> bool) -> usize {
        upstream
            .endpoints()
            .iter()
            .filter(|endpoint| is_counted(endpoint.condition().probes()))
            .count()
    }

    fn under_way(upstream: &Upstream) -> usize {
        count(upstream, |probes| probes.under_way.load(Ordering::Relaxed))
    }

    fn probed_once(upstream: &Upstream) -> usize {
        count(upstream, |probes| probes.counts() == (1, 0))
    }

    #[tokio::test]
    async fn all_that_are_new_are_probed_at_once_within_a_bound_and_then_spread_over_the_interval()
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let upstream = probed(100, &listener);
        // Nothing runs between two looks.
        tend(&upstream);
        tend(&upstream);
        assert_eq!(under_way(&upstream), MOST_FIRST_PROBES);
        assert_eq!(probed_once(&upstream), 0);
        while probed_once(&upstream) < 100 {
            tend(&upstream);
            assert!(under_way(&upstream) <= MOST_FIRST_PROBES);
            tokio::task::yield_now().await;
        }
        let now = clock::monotonic_micros();
        let endpoints = upstream.endpoints();
        let due = endpoints
            .iter()
            .map(|endpoint| endpoint.condition().probes().due.load(Ordering::Relaxed));
        let tenths: BTreeSet<u64> = due
            .map(|due| due.saturating_sub(now) * 10 / micros(INTERVAL))
            .collect();
        // Fewer than seven of ten have one of a hundred once in 10^50.
        assert!(
            tenths.len() >= 7 && tenths.iter().all(|tenth| *tenth < 10),
            "{tenths:?}"
        );
    }

    #[tokio::test]
    async fn a_probe_after_the_first_comes_an_interval_later() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let upstream = probed(1, &listener);
        let endpoint = Arc::clone(&upstream.endpoints()[0]);
        let probes = endpoint.condition().probes();
        for passed in 1..=2 {
            probes.due.store(0, Ordering::Relaxed);
            tend(&upstream);
            while probes.counts() != (passed, 0) || probes.under_way.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
            }
        }
        let later = probes
            .due
            .load(Ordering::Relaxed)
            .saturating_sub(clock::monotonic_micros());
        assert!(later > micros(INTERVAL) * 8 / 10 && later < micros(INTERVAL) * 12 / 10);
    }
}

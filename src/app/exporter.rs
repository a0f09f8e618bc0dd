//! Renders the metrics for Prometheus, with the gauges as of now.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use metrics::{Gauge, Key, gauge};
use tokio::time::sleep;
use tollgate_limiter::store::memory::MemoryStore;

use super::optional::team::Policies;
use super::shared::SharedState;
use tollgate_gateway::account::InFlight;
use tollgate_gateway::observe::process_metrics::ProcessMetrics;
use tollgate_gateway::observe::recorder::MetricsHandle;
use tollgate_gateway::observe::series::label;
use tollgate_gateway::{Gateway, UNROUTED};
use tollgate_limiter::clock;
use tollgate_proxy::upstream::watch::report;

/// The recorder's handle, and the sources of the gauges that are read when somebody scrapes.
pub struct Exporter {
    recorded: MetricsHandle,
    memory: Arc<MemoryStore>,
    gateway: Arc<ArcSwap<Gateway>>,
    /// The requests of each worker.
    in_flight: Vec<Arc<InFlight>>,
    requests: Gauge,
    tunnels: Gauge,
    buckets: Gauge,
    process: ProcessMetrics,
    policies: Option<Arc<Policies>>,
}

impl Exporter {
    pub fn new(
        recorded: MetricsHandle,
        shared: &SharedState,
        in_flight: Vec<Arc<InFlight>>,
        policies: Option<Arc<Policies>>,
    ) -> Self {
        Self {
            recorded,
            memory: shared.memory.clone(),
            gateway: shared.gateway.clone(),
            in_flight,
            requests: gauge!("tollgate_requests_in_flight"),
            tunnels: gauge!("tollgate_tunnels"),
            buckets: gauge!("tollgate_local_buckets"),
            process: ProcessMetrics::new(),
            policies,
        }
    }

    /// Requests in flight, and how many of them are tunnels.
    pub fn in_flight(&self) -> (usize, usize) {
        let mut requests = 0;
        let mut tunnels = 0;
        for worker in &self.in_flight {
            requests += worker.count();
            tunnels += worker.tunnels();
        }
        (requests, tunnels)
    }

    /// All metrics in Prometheus's text format.
    pub fn render(&self) -> String {
        let (requests, tunnels) = self.in_flight();
        self.requests.set(requests as f64);
        self.tunnels.set(tunnels as f64);
        self.buckets.set(self.memory.len() as f64);
        self.process.collect();
        if let Some(policies) = &self.policies {
            policies.show_age();
        }
        let mut upstreams: Vec<_> = self.gateway.load().watched_upstreams().collect();
        upstreams.sort_by(|one, other| one.spec().name.cmp(&other.spec().name));
        self.recorded.render() + &report::metrics(&upstreams)
    }
}

/// How often series whose limit or route may be gone are looked for.
const SERIES_CHECK: Duration = Duration::from_secs(10);

/// Forgets the series of limits and routes that `gateway` has not had for a while: each change of
/// policies would otherwise make the metrics grow.
pub async fn forget_gone(recorded: &MetricsHandle, gateway: &ArcSwap<Gateway>) {
    loop {
        sleep(SERIES_CHECK).await;
        let gateway = gateway.load_full();
        let limits: HashSet<&str> = gateway
            .limits
            .iter()
            .map(|entry| &*entry.limit().name)
            .collect();
        let routes = gateway.routes.iter().map(|route| &*route.target.route.name);
        let routes: HashSet<&str> = routes.chain([UNROUTED]).collect();
        recorded.forget(clock::now(), |key| is_gone(key, &limits, &routes));
    }
}

/// Whether a series is of a limit or a route that is not there.
fn is_gone(key: &Key, limits: &HashSet<&str>, routes: &HashSet<&str>) -> bool {
    is_unknown(label(key, "limit"), limits) || is_unknown(label(key, "route"), routes)
}

fn is_unknown(label: &str, names: &HashSet<&str>) -> bool {
    !label.is_empty() && !names.contains(label)
}

#[cfg(test)]
mod tests {
    use metrics::Label;

    use super::*;

    #[test]
    fn a_series_goes_with_its_limit_or_its_route() {
        let limits = HashSet::from(["shop.few"]);
        let routes = HashSet::from(["orders", UNROUTED]);
        for (labels, gone) in [
            (&[("limit", "shop.few")][..], false),
            (&[("limit", "shop.many"), ("verdict", "denied")], true),
            (&[("route", "orders"), ("status", "200")], false),
            (&[("route", UNROUTED)], false),
            (&[("route", "shop.few")], true),
            (&[("upstream", "shop.many")], false),
            (&[], false),
        ] {
            let named = labels
                .iter()
                .map(|(name, value)| Label::new(*name, *value))
                .collect::<Vec<_>>();
            assert_eq!(
                is_gone(
                    &Key::from_parts("tollgate_x_total", named),
                    &limits,
                    &routes
                ),
                gone,
                "{labels:?}"
            );
        }
    }
}

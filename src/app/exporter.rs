//! Renders the metrics for Prometheus, with the gauges as of now.

use std::sync::Arc;

use arc_swap::ArcSwap;
use metrics::{Gauge, gauge};
use tollgate_limiter::store::memory::MemoryStore;

use super::policies::handle::Policies;
use super::shared::SharedState;
use crate::gateway::Gateway;
use crate::gateway::account::InFlight;
use crate::observe::metrics::ProcessMetrics;
use crate::observe::recorder::MetricsHandle;
use crate::upstream::watch::report;

/// The recorder's handle, and the sources of the gauges that are read when somebody scrapes.
pub struct Exporter {
    recorded: MetricsHandle,
    memory: Arc<MemoryStore>,
    gateway: Arc<ArcSwap<Gateway>>,
    /// Of each worker.
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
        let requests = self.in_flight.iter().map(|worker| worker.count()).sum();
        (requests, self.in_flight.iter().map(|worker| worker.tunnels()).sum())
    }

    /// All metrics in Prometheus's text format.
    pub fn render(&self) -> String {
        let (requests, tunnels) = self.in_flight();
        self.requests.set(requests as f64);
        self.tunnels.set(tunnels as f64);
        self.buckets.set(self.memory.len() as f64);
        self.process.collect();
        self.policies.iter().for_each(|policies| policies.show_age());
        let mut upstreams: Vec<_> = self.gateway.load().watched_upstreams().collect();
        upstreams.sort_by(|one, other| one.spec().name.cmp(&other.spec().name));
        self.recorded.render() + &report::metrics(&upstreams)
    }
}

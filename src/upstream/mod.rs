//! The servers behind the gateway. An upstream is a named set of endpoints: `endpoints` has the address and state of
//! each, `balance` picks the next, `budget` bounds retries and `metrics` counts.
//!
//! Guarantees that picking an endpoint takes no lock, and that the state is shared by all workers.

pub mod balance;
pub mod budget;
pub mod endpoints;
pub mod metrics;

use std::sync::Arc;
use std::time::Duration;

pub use balance::Balance;
use balance::{Balancer, Tried};
use budget::RetryBudget;
use endpoints::{Endpoint, PickedEndpoint};
use http::uri::Authority;
use metrics::UpstreamMetrics;

/// An upstream, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSpec {
    pub name: Arc<str>,
    /// `http://` endpoints, at least one.
    pub endpoints: Vec<Authority>,
    pub balance: Balance,
    /// Longest time to open a TCP connection.
    pub connect_timeout: Duration,
    /// Longest time from sending the request to the response's header section.
    pub response_timeout: Duration,
    /// Longest time between two reads of a response body, or two writes of a request body.
    pub idle_timeout: Duration,
    /// How long an idle connection is kept.
    pub keepalive_timeout: Duration,
    /// Idle connections kept per endpoint and worker.
    pub keepalive_connections: usize,
}

/// A running upstream, shared by all workers of the node. A reload keeps it if its spec stays equal.
pub struct Upstream {
    spec: Arc<UpstreamSpec>,
    endpoints: Box<[Arc<Endpoint>]>,
    balancer: Balancer,
    budget: RetryBudget,
    metrics: UpstreamMetrics,
}

impl Upstream {
    /// Resolves the upstream's metrics, so the metrics recorder must be installed already. Opens no connection.
    pub fn new(spec: Arc<UpstreamSpec>) -> Self {
        let endpoints = spec.endpoints.iter().map(|authority| Arc::new(Endpoint::new(authority))).collect();
        let balancer = Balancer::new(spec.balance);
        let metrics = UpstreamMetrics::new(&spec.name);
        Self { spec, endpoints, balancer, budget: RetryBudget::default(), metrics }
    }

    /// The spec it was built from.
    pub fn spec(&self) -> &Arc<UpstreamSpec> {
        &self.spec
    }

    pub fn endpoints(&self) -> &[Arc<Endpoint>] {
        &self.endpoints
    }

    pub fn budget(&self) -> &RetryBudget {
        &self.budget
    }

    pub fn metrics(&self) -> &UpstreamMetrics {
        &self.metrics
    }

    /// The next endpoint for a request that was already sent to those in `tried`, to which it is added. `None`: none is
    /// left.
    pub fn pick(&self, tried: &mut Tried) -> Option<PickedEndpoint> {
        self.balancer.pick(&self.endpoints, tried)
    }
}

//! The servers behind the gateway. An upstream is a named set of endpoints: `url` says where each is, `endpoints` has its
//! state, and `lookup` the addresses of names, `tls` how they are secured. `balance` picks the next one, `bounds` and `budget` bound connections,
//! requests and retries. `metrics` counts and `failure_log` logs.
//!
//! Guarantees that picking an endpoint takes no lock, and that the state is shared by all workers.

pub mod balance;
pub mod bounds;
pub mod budget;
pub mod endpoints;
pub mod failure_log;
mod lookup;
pub mod metrics;
pub mod tls;
pub mod url;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use balance::Balance;
use balance::{Balancer, Tried};
use bounds::{ConnectionBound, UpstreamBounds};
use budget::RetryBudget;
use endpoints::{Endpoint, PickedEndpoint};
use metrics::UpstreamMetrics;
pub use tls::Http2Policy;
use tls::UpstreamTls;
use url::EndpointUrl;

/// An upstream, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSpec {
    pub name: Arc<str>,
    /// At least one.
    pub endpoints: Vec<EndpointUrl>,
    pub balance: Balance,
    /// Longest time to open a connection, and to wait for one at the bounds.
    pub connect_timeout: Duration,
    /// Longest time from sending the request to the response's header section.
    pub response_timeout: Duration,
    /// Longest time between two reads of a response body, or two writes of a request body.
    pub idle_timeout: Duration,
    /// How long an idle connection is kept.
    pub keepalive_timeout: Duration,
    /// How long a tunnel, such as a WebSocket, may carry nothing.
    pub tunnel_idle_timeout: Duration,
    /// Idle connections kept per endpoint and worker.
    pub keepalive_connections: usize,
    pub bounds: UpstreamBounds,
    /// Connections begin with a header of the PROXY protocol, version 2, and carry one request.
    pub proxy_protocol: bool,
    /// Of `https://` endpoints.
    pub http2: Http2Policy,
    /// Of an upstream with `https://` endpoints.
    pub tls: Option<UpstreamTls>,
}

/// A running upstream, shared by all workers of the node. A reload keeps it if its spec stays equal.
pub struct Upstream {
    spec: Arc<UpstreamSpec>,
    endpoints: Box<[Arc<Endpoint>]>,
    balancer: Balancer,
    budget: RetryBudget,
    connection_bound: Option<Arc<ConnectionBound>>,
    metrics: UpstreamMetrics,
}

impl UpstreamSpec {
    /// Whether its connections must not carry requests of another upstream with the same endpoint.
    fn needs_own_connections(&self) -> bool {
        self.bounds.connections.is_some() || self.proxy_protocol || self.tls.is_some()
    }
}

/// A number that tells an upstream from every other one in this process.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Upstream {
    /// Resolves the upstream's metrics, so the metrics recorder must be installed already. Opens no connection.
    pub fn new(spec: Arc<UpstreamSpec>) -> Self {
        let own = spec.needs_own_connections().then(next_number);
        // A connection that carries one request needs no streams.
        let http2 = if spec.proxy_protocol { Http2Policy::Never } else { spec.http2 };
        let endpoint = |url| Endpoint::new(url, spec.tls.as_ref(), http2, own).with_proxy_header(spec.proxy_protocol);
        let endpoints = spec.endpoints.iter().map(|url| Arc::new(endpoint(url))).collect();
        let balancer = Balancer::new(spec.balance);
        let metrics = UpstreamMetrics::new(&spec.name);
        let connection_bound = ConnectionBound::new(&spec.bounds, metrics.pending());
        Self { spec, endpoints, balancer, budget: RetryBudget::default(), connection_bound, metrics }
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

    /// `None`: its connections are not bounded.
    pub fn connection_bound(&self) -> Option<&Arc<ConnectionBound>> {
        self.connection_bound.as_ref()
    }

    /// Whether it takes another request.
    pub fn admits_request(&self) -> bool {
        let in_flight = || self.endpoints.iter().map(|endpoint| endpoint.in_flight()).sum::<usize>();
        self.spec.bounds.requests.is_none_or(|most| in_flight() < most.get())
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

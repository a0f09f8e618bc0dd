//! The servers behind the gateway: who they are, how they fare and which one is next.
//!
//! Guarantees that choosing takes no lock and that the state outlives any single worker. Knows nothing of HTTP messages.

pub mod balance;
pub mod budget;
pub mod endpoints;
pub mod meters;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use http::uri::Authority;

use budget::RetryBudget;
use endpoints::Endpoint;
use meters::Meters;

/// An upstream by name, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSpec {
    pub name: Arc<str>,
    /// `http://` endpoints, at least one.
    pub endpoints: Vec<Authority>,
    pub balance: Balance,
    /// Establishing a TCP connection.
    pub connect_timeout: Duration,
    /// From the request being sent to the response's header section.
    pub response_timeout: Duration,
    /// Between two reads of a response body, or two writes of a request body.
    pub idle_timeout: Duration,
    /// How long an unused connection is kept, per worker.
    pub keepalive_timeout: Duration,
    /// Unused connections kept per endpoint and worker.
    pub keepalive_connections: usize,
}

/// How the next endpoint is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Balance {
    #[default]
    RoundRobin,
    /// The less loaded of two endpoints drawn at random.
    LeastRequests,
}

/// An upstream at work: shared by all workers of the node, and by the configurations that describe it alike.
pub struct Upstream {
    spec: Arc<UpstreamSpec>,
    endpoints: Box<[Arc<Endpoint>]>,
    /// Where round robin goes on.
    next: AtomicUsize,
    budget: RetryBudget,
    meters: Meters,
}

impl Upstream {
    /// Resolves the upstream's metrics, so the metrics recorder must be installed already. Opens no connection.
    pub fn new(spec: Arc<UpstreamSpec>) -> Self {
        let endpoints = spec.endpoints.iter().map(|authority| Arc::new(Endpoint::new(authority))).collect();
        let meters = Meters::new(&spec.name);
        Self { spec, endpoints, next: AtomicUsize::new(0), budget: RetryBudget::default(), meters }
    }

    /// What it was built from: equal specs may share one `Upstream` across a reload.
    pub fn spec(&self) -> &Arc<UpstreamSpec> {
        &self.spec
    }

    pub fn endpoints(&self) -> &[Arc<Endpoint>] {
        &self.endpoints
    }

    pub fn budget(&self) -> &RetryBudget {
        &self.budget
    }

    pub fn meters(&self) -> &Meters {
        &self.meters
    }
}

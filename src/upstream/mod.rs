//! The servers behind the gateway: who they are and which one is next.

use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;

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

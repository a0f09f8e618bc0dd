//! The question by which an endpoint shows whether it is healthy, and how often it is asked.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::uri::PathAndQuery;
use tollgate_limiter::limit::status_set::StatusSet;

use super::condition::ProbeThresholds;

/// How an upstream's endpoints are probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSpec {
    pub check: HealthCheck,
    /// From one probe of an endpoint to the next.
    pub interval: Duration,
    /// Longest time of a probe, connecting included.
    pub timeout: Duration,
    pub thresholds: ProbeThresholds,
}

/// The question to an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthCheck {
    /// A GET of this path has to be answered with one of these statuses.
    Http {
        path: PathAndQuery,
        host: Option<HeaderValue>,
        status: StatusSet,
    },
    /// The health service of gRPC has to say that this service serves. Empty: the server as a
    /// whole.
    Grpc { service: Arc<str> },
    /// It has to take a connection, TLS included.
    Tcp,
}

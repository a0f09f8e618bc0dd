//! The judgement of endpoints as data: how they are probed, and when those that fail or are slow
//! are ejected.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::uri::PathAndQuery;
use tollgate_limiter::limit::status_set::StatusSet;

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
    /// The endpoint has to take a connection, TLS included.
    Tcp,
}

/// How many outcomes in a row change what an endpoint counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeThresholds {
    pub unhealthy_after: u32,
    pub healthy_after: u32,
}

/// When endpoints are ejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EjectSpec {
    /// Failures in a row.
    pub after: u32,
    /// How long the first time. Each further time takes that much longer.
    pub base: Duration,
    /// The longest time.
    pub longest: Duration,
    /// The share of the endpoints that may be out.
    pub at_most: Percentage,
    /// When an endpoint is out because it is slow. `None`: never.
    pub latency: Option<LatencyRule>,
}

impl EjectSpec {
    /// How many of `count` endpoints may be out: at least one, unless it is the only one.
    pub fn most_of(&self, count: usize) -> usize {
        self.at_most.of(count).max(usize::from(count > 1))
    }
}

/// When an endpoint is far slower than the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyRule {
    /// Half of its answers take longer than this,
    pub above: Duration,
    /// and longer than so many times the median of the others.
    pub factor: u32,
    /// An endpoint with fewer answers in a window is not judged, and no other by it.
    pub requests: u32,
    /// The time after which endpoints are judged, again and again.
    pub window: Duration,
}

/// A share of endpoints, in whole percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percentage(u8);

impl Percentage {
    pub const ALL: Self = Self(100);

    /// Anything above 100 is 100.
    pub fn new(percent: u8) -> Self {
        Self(percent.min(100))
    }

    /// This share of `count`, rounded down.
    pub fn of(self, count: usize) -> usize {
        count.saturating_mul(usize::from(self.0)) / 100
    }

    /// Whether `part` of `count` is less than this share.
    pub fn exceeds(self, part: usize, count: usize) -> bool {
        part.saturating_mul(100) < count.saturating_mul(usize::from(self.0))
    }
}

//! An upstream as data: what an operator writes under `upstreams`. `endpoint` is a single server,
//! `balance` says which is next, `health` when one is out, `bounds` how much the upstream takes,
//! and `discovery` how endpoints are found.

pub mod balance;
pub mod bounds;
pub mod discovery;
pub mod endpoint;
pub mod health;

use std::sync::Arc;
use std::time::Duration;

use balance::Balance;
use bounds::{RESPONSE_HEAD, UpstreamBounds};
use discovery::DiscoverySpec;
use endpoint::EndpointSpec;
use health::{EjectSpec, HealthSpec, Percentage};

use super::tls::{Http2Policy, UpstreamTls};
use tollgate_spec::route::timeouts::UpstreamTimeLimits;
use tollgate_wire::http::h1::SectionBounds;

/// An upstream, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSpec {
    pub name: Arc<str>,
    /// At least one, unless they are discovered.
    pub endpoints: Vec<EndpointSpec>,
    /// How endpoints are found while the gateway runs. `None`: they are those above.
    pub discovery: Option<DiscoverySpec>,
    pub balance: Balance,
    /// How endpoints are probed. `None`: not at all.
    pub health: Option<HealthSpec>,
    /// When endpoints that fail requests are ejected. `None`: never.
    pub eject: Option<EjectSpec>,
    /// All endpoints are used where a smaller share of them is in service.
    pub panic_threshold: Percentage,
    /// The time in which an endpoint that comes into service gets to its share of the requests.
    pub slow_start: Option<Duration>,
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
    /// Requests over HTTP/2 keep their trailers.
    pub request_trailers: bool,
    /// The largest header section of an answer, in every version.
    pub response_head: SectionBounds,
    /// Whether `https://` endpoints are offered HTTP/2.
    pub http2: Http2Policy,
    /// How `https://` endpoints are verified.
    pub tls: Option<UpstreamTls>,
}

impl UpstreamSpec {
    /// An upstream of these endpoints with the defaults of the file.
    pub fn new(name: Arc<str>, endpoints: Vec<EndpointSpec>) -> Self {
        Self {
            name,
            endpoints,
            discovery: None,
            balance: Balance::default(),
            health: None,
            eject: None,
            panic_threshold: Percentage::default(),
            slow_start: None,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            keepalive_timeout: Duration::from_secs(4),
            tunnel_idle_timeout: Duration::from_secs(3600),
            keepalive_connections: 64,
            bounds: UpstreamBounds::default(),
            proxy_protocol: false,
            request_trailers: false,
            response_head: RESPONSE_HEAD,
            http2: Http2Policy::Auto,
            tls: None,
        }
    }

    /// The settings with the time limits of a route in place of its own.
    pub fn with_time_limits(&self, limits: &UpstreamTimeLimits) -> Self {
        Self {
            connect_timeout: limits.connect.unwrap_or(self.connect_timeout),
            response_timeout: limits.response.unwrap_or(self.response_timeout),
            idle_timeout: limits.idle.unwrap_or(self.idle_timeout),
            tunnel_idle_timeout: limits.tunnel_idle.unwrap_or(self.tunnel_idle_timeout),
            ..self.clone()
        }
    }

    /// Whether an endpoint that is out for one of them is out for the other.
    pub fn judges_as(&self, other: &Self) -> bool {
        self.latency_judgement() == other.latency_judgement() && self.health == other.health
    }

    /// Whether endpoints are ejected for their latency. `None`: they are not ejected at all.
    fn latency_judgement(&self) -> Option<bool> {
        let eject = self.eject.as_ref()?;
        Some(eject.latency.is_some())
    }

    /// Whether connections must not carry requests of another upstream with the same endpoint.
    pub fn needs_own_connections(&self) -> bool {
        self.bounds.connections.is_some()
            || self.proxy_protocol
            || self.tls.is_some()
            || self.response_head != RESPONSE_HEAD
    }
}

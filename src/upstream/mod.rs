//! The servers behind the gateway. An upstream is a named set of endpoints: `url` says where each
//! is, `endpoints` opens connections to it, `lookup` has the addresses of names, and `tls` how they
//! are secured. `discovery` finds endpoints while the gateway runs. `health` has what is known of
//! the state of each, `latency` how fast they are, `judgement` draws conclusions from their
//! requests and probes, `rotation` has those that are fit, and `balance` picks the next one, where
//! asked for by the `affinity` of requests. `bounds`, `adaptive` and `budget` bound connections,
//! requests and retries. `metrics` counts and `failure_log` logs. `watch` is for the control plane:
//! it probes endpoints, and shows them.
//!
//! Guarantees that picking an endpoint takes no lock, and that the state is shared by all workers.

pub mod adaptive;
pub mod affinity;
pub mod balance;
pub mod bounds;
pub mod budget;
pub mod discovery;
pub mod endpoints;
pub mod failure_log;
pub mod health;
mod judgement;
pub mod latency;
mod lookup;
pub mod metrics;
mod rotation;
pub mod tls;
pub mod url;
pub mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use adaptive::{AdaptiveBound, AdaptivePlace};
use affinity::Affinity;
pub use balance::Balance;
use balance::{Balancer, Tried};
use bounds::{ConnectionBound, UpstreamBounds};
use budget::RetryBudget;
use discovery::{Discovery, DiscoverySpec};
use endpoints::{Endpoint, EndpointRole, EndpointSpec, PickedEndpoint};
use health::Percentage;
use health::check::HealthSpec;
use health::ejection::EjectSpec;
#[cfg(test)]
pub use judgement::tests::spec as test_spec;
use metrics::UpstreamMetrics;
use rotation::{ChangingRotation, CurrentEndpoints, Rotation, RotationRules, Rotations};
pub use tls::Http2Policy;
use tls::UpstreamTls;
use tollgate_limiter::limit::key::Facts;

use crate::clock;
use crate::error::Failure;
use crate::route::timeouts::UpstreamTimeLimits;

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
    /// Of `https://` endpoints.
    pub http2: Http2Policy,
    /// Of an upstream with `https://` endpoints.
    pub tls: Option<UpstreamTls>,
}

/// A running upstream, shared by all workers of the node. A reload keeps it if its spec stays
/// equal.
pub struct Upstream {
    spec: Arc<UpstreamSpec>,
    rotations: Rotations,
    balancer: Balancer,
    budget: RetryBudget,
    connection_bound: Option<Arc<ConnectionBound>>,
    adaptive: Option<Arc<AdaptiveBound>>,
    /// Its requests are bounded, one way or the other.
    bounds_requests: bool,
    /// It looks at how its requests end.
    observes: bool,
    metrics: UpstreamMetrics,
    /// Tells its connections from those of others, where they must not be shared.
    own_connections: Option<u64>,
    discovery: Option<Arc<Discovery>>,
    /// The version of the discovered list that its endpoints are.
    followed: AtomicU64,
    /// When the latencies of its endpoints are judged next, in microseconds of the monotonic clock.
    /// 0: not yet known.
    latency_due: AtomicU64,
}

/// An upstream, and the settings that hold for a request to it.
#[derive(Clone, Copy)]
pub struct Destination<'a> {
    pub upstream: &'a Arc<Upstream>,
    /// The upstream's, or those with the time limits of a route.
    pub spec: &'a Arc<UpstreamSpec>,
}

impl UpstreamSpec {
    /// With the time limits of a route in place of its own.
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
    fn judges_as(&self, other: &Self) -> bool {
        let ejects = |spec: &Self| spec.eject.as_ref().map(|eject| eject.latency.is_some());
        ejects(self) == ejects(other) && self.health == other.health
    }

    fn rotation_rules(&self) -> RotationRules {
        RotationRules {
            panic_threshold: self.panic_threshold,
            slow_start: self.slow_start,
        }
    }

    /// The part of the endpoint with this URL.
    fn role(&self, of: &EndpointSpec, url: &str) -> EndpointRole {
        let sticky = match &self.balance {
            Balance::Sticky(cookie) => {
                let affinity = Affinity::of_endpoint(cookie, &self.name, url);
                cookie.set_cookie(affinity).map(|field| (affinity, field))
            }
            Balance::RoundRobin | Balance::LeastRequests | Balance::Hash(_) => None,
        };
        EndpointRole {
            weight: of.weight,
            priority: of.priority,
            seed: affinity::seed(url),
            sticky,
        }
    }

    /// An endpoint, with connections of its own upstream where that has a number.
    fn endpoint(&self, of: &EndpointSpec, own_connections: Option<u64>) -> Endpoint {
        // A connection that carries one request needs no streams.
        let http2 = if self.proxy_protocol {
            Http2Policy::Never
        } else {
            self.http2
        };
        let endpoint = Endpoint::new(&of.url, self.tls.as_ref(), http2, own_connections);
        let role = self.role(of, endpoint.url());
        endpoint
            .with_proxy_header(self.proxy_protocol)
            .with_host(of.host.clone())
            .with_role(role)
    }

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
    /// Resolves the upstream's metrics, so the metrics recorder must be installed already. Opens no
    /// connection. Endpoints that it has in common with `before` keep their condition, if both
    /// judge them alike.
    pub fn new(spec: Arc<UpstreamSpec>, before: Option<&Self>) -> Self {
        let own_connections = spec.needs_own_connections().then(next_number);
        // The findings of an upstream that judges otherwise say nothing here.
        let judges_alike = |before: &&Self| before.spec.judges_as(&spec);
        let mut known: Vec<_> = before.filter(judges_alike).map_or_else(Vec::new, |before| {
            before.endpoints().iter().cloned().collect()
        });
        let mut endpoint = |of: &EndpointSpec| {
            let endpoint = spec.endpoint(of, own_connections);
            // An endpoint that is listed twice is two, each with a condition of its own.
            match known.iter().position(|known| known.url() == endpoint.url()) {
                Some(at) => endpoint.with_condition(Arc::clone(known.remove(at).condition())),
                None => endpoint,
            }
        };
        let discovery = spec.discovery.as_ref().map(|discovery| {
            let running = before
                .and_then(|before| before.discovery.as_ref())
                .filter(|of| of.spec() == discovery);
            running
                .cloned()
                .unwrap_or_else(|| Arc::new(Discovery::new(&spec.name, discovery.clone())))
        });
        let discovered = discovery.as_ref().map(|discovery| discovery.list());
        let listed = discovered
            .as_ref()
            .map_or(&*spec.endpoints, |list| &list.endpoints);
        let endpoints: Box<[_]> = listed.iter().map(|of| Arc::new(endpoint(of))).collect();
        let rotation = Rotation::new(endpoints, spec.rotation_rules(), clock::monotonic_micros());
        let rotation = match before {
            Some(before) => rotation.following(&before.rotations.current()),
            None => rotation,
        };
        let rotations = if spec.eject.is_some() || spec.health.is_some() || discovery.is_some() {
            Rotations::Changing(ChangingRotation::new(rotation))
        } else {
            Rotations::Fixed(rotation)
        };
        let balancer = Balancer::new(spec.balance.clone());
        let metrics = UpstreamMetrics::new(&spec.name);
        let connection_bound = ConnectionBound::new(&spec.bounds, metrics.pending());
        let adaptive = spec.bounds.adaptive.map(|rule| {
            match before.and_then(|before| before.adaptive.as_ref()) {
                Some(running) if *running.rule() == rule => running.clone(),
                Some(running) => Arc::new(running.with_rule(&spec.name, rule)),
                None => Arc::new(AdaptiveBound::new(&spec.name, rule)),
            }
        });
        let followed = AtomicU64::new(discovered.map_or(0, |list| list.version));
        let budget = RetryBudget::default();
        Self {
            bounds_requests: spec.bounds.requests.is_some() || adaptive.is_some(),
            observes: spec.eject.is_some() || adaptive.is_some(),
            spec,
            rotations,
            balancer,
            budget,
            connection_bound,
            adaptive,
            metrics,
            own_connections,
            discovery,
            followed,
            latency_due: AtomicU64::new(0),
        }
    }

    /// The spec it was built from.
    pub fn spec(&self) -> &Arc<UpstreamSpec> {
        &self.spec
    }

    /// All its endpoints, in service or not.
    pub fn endpoints(&self) -> CurrentEndpoints<'_> {
        CurrentEndpoints(self.rotations.current())
    }

    /// Whether so few of its endpoints are in service that all get requests.
    pub fn is_panicking(&self) -> bool {
        self.rotations.current().is_panicking()
    }

    /// Whether its endpoints change while it runs.
    pub fn has_changing_endpoints(&self) -> bool {
        matches!(self.rotations, Rotations::Changing(_))
    }

    /// Whether the control plane has to look after it.
    pub fn is_watched(&self) -> bool {
        self.has_changing_endpoints() || self.adaptive.is_some()
    }

    /// How its endpoints are found, if they are.
    pub fn discovery(&self) -> Option<&Arc<Discovery>> {
        self.discovery.as_ref()
    }

    pub fn budget(&self) -> &RetryBudget {
        &self.budget
    }

    /// `None`: its connections are not bounded.
    pub fn connection_bound(&self) -> Option<&Arc<ConnectionBound>> {
        self.connection_bound.as_ref()
    }

    /// `None`: its requests are not bounded by its latency.
    pub fn adaptive_bound(&self) -> Option<&AdaptiveBound> {
        self.adaptive.as_deref()
    }

    /// Takes another request. It has its place until it is answered, where that is bounded.
    ///
    /// # Errors
    /// When it takes none.
    #[inline]
    pub fn admit(&self) -> Result<Option<AdaptivePlace<'_>>, Failure> {
        if self.bounds_requests {
            self.admit_within_bounds()
        } else {
            Ok(None)
        }
    }

    fn admit_within_bounds(&self) -> Result<Option<AdaptivePlace<'_>>, Failure> {
        if !self.admits_request() {
            return Err(Failure::UpstreamOverloaded);
        }
        let Some(adaptive) = &self.adaptive else {
            return Ok(None);
        };
        adaptive
            .enter()
            .map(Some)
            .ok_or(Failure::ConcurrencyLimited)
    }

    /// Whether a request that it has taken may be sent again.
    pub fn admits_retry(&self) -> bool {
        self.admits_request()
            && self
                .adaptive
                .as_ref()
                .is_none_or(|adaptive| adaptive.is_within_limit())
    }

    /// Whether `requests` lets another one in.
    fn admits_request(&self) -> bool {
        self.spec
            .bounds
            .requests
            .is_none_or(|most| self.rotations.current().in_flight() < most.get())
    }

    pub fn metrics(&self) -> &UpstreamMetrics {
        &self.metrics
    }

    /// The next endpoint for a request that was already sent to those in `tried`, to which it is
    /// added. `None`: none is left.
    pub fn pick(&self, tried: &mut Tried) -> Option<PickedEndpoint> {
        match &self.rotations {
            Rotations::Fixed(rotation) => self
                .balancer
                .pick(rotation.members(), tried)
                .or_else(|| self.pick_backup(rotation, tried)),
            Rotations::Changing(_) => self.pick_of_changing(tried),
        }
    }

    /// A request that could be sent to no member may try the backups.
    #[cold]
    fn pick_backup(&self, rotation: &Rotation, tried: &mut Tried) -> Option<PickedEndpoint> {
        self.balancer.pick(rotation.others(), tried)
    }

    fn pick_of_changing(&self, tried: &mut Tried) -> Option<PickedEndpoint> {
        let mut rotation = self.rotations.current();
        if rotation.is_to_be_reviewed(clock::monotonic_micros) {
            self.review(clock::monotonic_micros());
            rotation = self.rotations.current();
        }
        let picked = self.balancer.pick(rotation.members(), tried);
        // None of them could be connected to: an endpoint that is out may do.
        picked.or_else(|| self.balancer.pick(rotation.others(), tried))
    }

    /// The next endpoint for a request that failed at those in `before`, to which it is added: one
    /// that is fit and that it has not failed at, or else any. `None`: there is none.
    pub fn pick_another(&self, before: &mut Tried) -> Option<PickedEndpoint> {
        if before.count() > 0 {
            let rotation = self.rotations.current();
            let another = self.balancer.pick_instead(rotation.members(), before);
            if let Some(another) = another.filter(|endpoint| !endpoint.is_backing_off()) {
                return Some(another);
            }
            before.begin_anew();
        }
        self.pick(before)
    }

    /// The part that the request has in common with others, by its `facts`, where endpoints are
    /// picked by that.
    pub fn affinity(&self, facts: &Facts<'_>) -> Option<Affinity> {
        match &self.spec.balance {
            Balance::Hash(parts) => Affinity::of_key(parts, facts),
            Balance::Sticky(cookie) => Affinity::of_cookie(cookie, facts.headers),
            Balance::RoundRobin | Balance::LeastRequests => None,
        }
    }

    /// Whether endpoints are picked by what requests have in common.
    #[inline]
    pub fn asks_for_affinity(&self) -> bool {
        matches!(self.spec.balance, Balance::Hash(_) | Balance::Sticky(_))
    }
}

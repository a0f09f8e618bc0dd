//! The servers behind the gateway. An upstream is a named set of endpoints: `spec` is what an
//! operator writes, `url` says where each endpoint is, `endpoints` opens connections to it,
//! `lookup` has the addresses of names, and `tls` how they are secured. `discovery` finds endpoints
//! while the gateway runs. `health` has what is known of the state of each, `latency` how fast they
//! are, `judgement` draws conclusions from their requests and probes, `rotation` has those that are
//! fit, and `balance` picks the next one, where asked for by the `affinity` of requests. `bounds`,
//! `adaptive` and `budget` bound connections, requests and retries. `metrics` counts.
//! `watch` is for the control plane: it probes endpoints, and shows them.
//!
//! Guarantees that picking an endpoint takes no lock, and that the state is shared by all workers.

pub mod adaptive;
pub mod affinity;
pub mod balance;
pub mod bounds;
pub mod budget;
pub mod discovery;
pub mod endpoints;
pub mod health;
mod judgement;
pub mod latency;
mod lookup;
pub mod metrics;
mod rotation;
pub mod spec;
pub mod tls;
pub mod url;
pub mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adaptive::{AdaptiveBound, AdaptivePlace};
use affinity::Affinity;
use balance::{Balancer, Tried};
use bounds::ConnectionBound;
use budget::RetryBudget;
use discovery::Discovery;
use endpoints::{Endpoint, EndpointRole, PickedEndpoint};
#[cfg(test)]
pub use judgement::tests::spec as test_spec;
use metrics::UpstreamMetrics;
use rotation::{ChangingRotation, CurrentEndpoints, Rotation, RotationRules, Rotations};
pub use spec::UpstreamSpec;
pub use spec::balance::Balance;
use spec::endpoint::EndpointSpec;
pub use tls::Http2Policy;
use tollgate_limiter::limit::key::Facts;

use tollgate_limiter::clock;
use tollgate_wire::error::Failure;

/// A running upstream, shared by all workers of the node. A reload keeps it if its spec stays
/// equal.
pub struct Upstream {
    spec: Arc<UpstreamSpec>,
    rotations: Rotations,
    builder: EndpointBuilder,
    budget: RetryBudget,
    connection_bound: Option<Arc<ConnectionBound>>,
    adaptive: Option<Arc<AdaptiveBound>>,
    /// Whether requests are bounded, one way or the other.
    bounds_requests: bool,
    /// Whether it is looked at how requests end.
    observes: bool,
    metrics: UpstreamMetrics,
    discovery: Option<Arc<Discovery>>,
    /// The version of the discovered list that its endpoints are.
    followed: AtomicU64,
    /// When the latencies of its endpoints are judged next, in microseconds of the monotonic clock.
    /// 0: not yet known.
    latency_due: AtomicU64,
}

/// The parts of an upstream that its endpoints are built with.
struct EndpointBuilder {
    /// A number for connections that must not be shared with other upstreams.
    own_connections: Option<u64>,
    balancer: Balancer,
}

/// An upstream, and the settings that hold for a request to it.
#[derive(Clone, Copy)]
pub struct Destination<'a> {
    pub upstream: &'a Arc<Upstream>,
    /// The upstream's, or those with the time limits of a route.
    pub spec: &'a Arc<UpstreamSpec>,
}

/// A number that tells an upstream from every other one in this process.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn rules(spec: &UpstreamSpec) -> RotationRules {
    RotationRules {
        panic_threshold: spec.panic_threshold,
        slow_start: spec.slow_start,
    }
}

/// The discovery of endpoints: that of `before`, if it is the same.
fn discovery(spec: &UpstreamSpec, before: Option<&Upstream>) -> Option<Arc<Discovery>> {
    let discovery = spec.discovery.as_ref()?;
    if let Some(running) = before.and_then(Upstream::discovery)
        && running.spec() == discovery
    {
        return Some(running.clone());
    }
    Some(Arc::new(Discovery::new(&spec.name, discovery.clone())))
}

/// The adaptive bound, with what `before` knows of the latency.
fn adaptive_bound(spec: &UpstreamSpec, before: Option<&Upstream>) -> Option<Arc<AdaptiveBound>> {
    let rule = spec.bounds.adaptive?;
    let Some(running) = before.and_then(|before| before.adaptive.as_ref()) else {
        return Some(Arc::new(AdaptiveBound::new(&spec.name, rule)));
    };
    if *running.rule() == rule {
        return Some(running.clone());
    }
    Some(Arc::new(running.with_rule(&spec.name, rule)))
}

impl EndpointBuilder {
    /// The endpoints of a list. Those in common with `before` keep their condition, if both
    /// upstreams judge them alike.
    fn build_all(
        &self,
        spec: &UpstreamSpec,
        listed: &[EndpointSpec],
        before: Option<&Upstream>,
    ) -> Box<[Arc<Endpoint>]> {
        let mut known = match before {
            Some(before) if before.spec.judges_as(spec) => before.endpoints().to_vec(),
            _ => Vec::new(),
        };
        let mut endpoints = Vec::with_capacity(listed.len());
        for of in listed {
            let mut endpoint = self.build(spec, of);
            // An endpoint that is listed twice is two, each with a condition of its own.
            if let Some(at) = known.iter().position(|known| known.url() == endpoint.url()) {
                let condition = Arc::clone(known.remove(at).condition());
                endpoint = endpoint.with_condition(condition);
            }
            endpoints.push(Arc::new(endpoint));
        }
        endpoints.into()
    }

    fn build(&self, spec: &UpstreamSpec, of: &EndpointSpec) -> Endpoint {
        // A connection that carries one request needs no streams.
        let http2 = if spec.proxy_protocol {
            Http2Policy::Never
        } else {
            spec.http2
        };
        let endpoint = Endpoint::new(&of.url, spec.tls.as_ref(), http2, self.own_connections);
        let role = EndpointRole {
            weight: of.weight,
            priority: of.priority,
            seed: affinity::seed(endpoint.url()),
            sticky: self.balancer.mark(&spec.name, endpoint.url()),
        };
        endpoint
            .with_proxy_header(spec.proxy_protocol)
            .with_host(of.host.clone())
            .with_role(role)
    }
}

impl Upstream {
    /// Resolves the upstream's metrics, so the metrics recorder must be installed already. Opens no
    /// connection. Endpoints that it has in common with `before` keep their condition, if both
    /// judge them alike.
    pub fn new(spec: Arc<UpstreamSpec>, before: Option<&Self>) -> Self {
        let discovery = discovery(&spec, before);
        let discovered = discovery.as_ref().map(|discovery| discovery.list());
        let listed = match &discovered {
            Some(list) => &*list.endpoints,
            None => &spec.endpoints,
        };
        let builder = EndpointBuilder {
            own_connections: if spec.needs_own_connections() {
                Some(next_number())
            } else {
                None
            },
            balancer: Balancer::new(&spec.balance),
        };
        let endpoints = builder.build_all(&spec, listed, before);
        let rotation = Rotation::new(endpoints, rules(&spec), clock::monotonic_micros());
        let rotation = match before {
            Some(before) => rotation.following(&before.rotations.current()),
            None => rotation,
        };
        let rotations = if spec.eject.is_some() || spec.health.is_some() || discovery.is_some() {
            Rotations::Changing(ChangingRotation::new(rotation))
        } else {
            Rotations::Fixed(rotation)
        };
        let metrics = UpstreamMetrics::new(&spec.name);
        let adaptive = adaptive_bound(&spec, before);
        Self {
            bounds_requests: spec.bounds.requests.is_some() || adaptive.is_some(),
            observes: spec.eject.is_some() || adaptive.is_some(),
            connection_bound: ConnectionBound::new(&spec.bounds, metrics.pending()),
            rotations,
            builder,
            budget: RetryBudget::default(),
            adaptive,
            metrics,
            followed: AtomicU64::new(discovered.map_or(0, |list| list.version)),
            discovery,
            latency_due: AtomicU64::new(0),
            spec,
        }
    }

    /// The settings that it was built from.
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
                .builder
                .balancer
                .pick(rotation.members(), tried)
                .or_else(|| self.pick_backup(rotation, tried)),
            Rotations::Changing(_) => self.pick_of_changing(tried),
        }
    }

    /// A request that could be sent to no member may try the backups.
    #[cold]
    fn pick_backup(&self, rotation: &Rotation, tried: &mut Tried) -> Option<PickedEndpoint> {
        self.builder.balancer.pick(rotation.others(), tried)
    }

    fn pick_of_changing(&self, tried: &mut Tried) -> Option<PickedEndpoint> {
        let mut rotation = self.rotations.current();
        if rotation.is_to_be_reviewed(clock::monotonic_micros) {
            self.review(clock::monotonic_micros());
            rotation = self.rotations.current();
        }
        let picked = self.builder.balancer.pick(rotation.members(), tried);
        // None of them could be connected to: an endpoint that is out may do.
        picked.or_else(|| self.builder.balancer.pick(rotation.others(), tried))
    }

    /// The next endpoint for a request that failed at those in `before`, to which it is added: one
    /// that is fit and that it has not failed at, or else any. `None`: there is none.
    pub fn pick_another(&self, before: &mut Tried) -> Option<PickedEndpoint> {
        if before.count() > 0 {
            let rotation = self.rotations.current();
            let another = self
                .builder
                .balancer
                .pick_instead(rotation.members(), before);
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
        self.builder.balancer.affinity(facts)
    }

    /// Whether endpoints are picked by what requests have in common.
    #[inline]
    pub fn asks_for_affinity(&self) -> bool {
        self.builder.balancer.asks_for_affinity()
    }

    /// An endpoint of this upstream.
    fn build_endpoint(&self, of: &EndpointSpec) -> Endpoint {
        self.builder.build(&self.spec, of)
    }

    fn rotation_rules(&self) -> RotationRules {
        rules(&self.spec)
    }
}

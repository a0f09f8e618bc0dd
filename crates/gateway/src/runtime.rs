//! A configuration at work: its routes with their pipelines, limits and metrics, as requests meet
//! them.

use std::collections::HashSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use metrics::Counter;
use tollgate_limiter::request::catalog::Catalog;
use tollgate_limiter::request::rule::LimitStates;
use tollgate_limiter::request::rule_set::RuleSet;

use super::exchange::{RouteTarget, Upstreams, Worker};
use super::listener_rules::ListenerRules;
use super::maintenance::RouteMaintenance;
use super::route_metrics::RouteMetrics;
use super::steps::Pipeline;
use crate::observe::access_log::AccessLog;
use tollgate_identity::Authenticators;
use tollgate_proxy::upstream::Upstream;
use tollgate_spec::route::table::listeners::ListenerTables;
use tollgate_wire::body_memory::BodyMemory;
use tollgate_wire::error::Failure;
use tollgate_wire::transport::peer::TrustedPeers;
use tollgate_wire::transport::tls::server::acceptor::TlsAcceptor;

/// A configuration at work. Immutable; [`tollgate::app`] assembles it.
pub struct Gateway {
    /// The routes that each listener serves.
    pub tables: ListenerTables,
    /// The routes in the order that the tables were built from.
    pub routes: Vec<Arc<RouteRuntime>>,
    pub upstreams: Upstreams,
    pub authenticators: Authenticators,
    /// The limits for operators: requests meet their limits in [`RouteGuard::pipelines`].
    pub limits: Arc<Catalog>,
    /// The state of limits that a reload keeps.
    pub limit_states: Arc<LimitStates>,
    /// The memory for bodies that are read ahead. A reload keeps it.
    pub body_memory: Arc<BodyMemory>,
    pub trusted_proxies: TrustedPeers,
    /// The rules of each listener, besides its limits.
    pub listeners: Vec<ListenerRules>,
    pub access_log: Option<AccessLog>,
    /// The guard of requests that no route takes: a listener's limits count them too.
    pub unrouted: RouteGuard,
    pub panics: Counter,
}

impl Gateway {
    /// The upstreams whose endpoints change while they run.
    pub fn watched_upstreams(&self) -> impl Iterator<Item = Arc<Upstream>> {
        self.upstreams
            .values()
            .filter(|upstream| upstream.is_watched())
            .cloned()
    }

    /// The upstreams whose endpoints are found while they run.
    pub fn discovering_upstreams(&self) -> impl Iterator<Item = Arc<Upstream>> {
        self.upstreams
            .values()
            .filter(|upstream| upstream.discovery().is_some())
            .cloned()
    }

    /// The keys of the connections to all endpoints. `None`: no endpoint leaves while the gateway
    /// runs.
    pub fn connection_keys(&self) -> Option<HashSet<Arc<str>>> {
        self.discovering_upstreams().next()?;
        let mut keys = HashSet::new();
        for upstream in self.upstreams.values() {
            let endpoints = upstream.endpoints();
            keys.extend(endpoints.iter().map(|endpoint| endpoint.key().clone()));
        }
        Some(keys)
    }
}

/// The pipelines, the limits and the metrics of a route, or of requests without one.
pub struct RouteGuard {
    /// The pipelines by listener.
    pub pipelines: Vec<Pipeline>,
    /// The limits by listener: the listener's, then the route's. For explanations: requests meet
    /// them in the pipeline.
    pub rules: Vec<Arc<RuleSet>>,
    pub metrics: Arc<RouteMetrics>,
    /// The route's maintenance. `None`: the route is never under maintenance.
    pub maintenance: Option<Arc<RouteMaintenance>>,
    /// The answer by listener to a client that does not say who it is, where somebody asks. For
    /// explanations.
    pub unauthenticated: Vec<Option<Failure>>,
}

/// A route at work.
pub struct RouteRuntime {
    pub target: RouteTarget,
    pub guard: RouteGuard,
}

/// The place where one worker takes requests from one listener.
#[derive(Clone)]
pub struct WorkerListener {
    pub gateway: Arc<ArcSwap<Gateway>>,
    /// The listener's place in the configuration.
    pub index: usize,
    pub worker: Worker,
    /// The TLS side. `None`: the listener speaks HTTP in the clear.
    pub tls: Option<Arc<TlsAcceptor>>,
}

impl Gateway {
    /// How many listeners there are.
    pub fn listeners(&self) -> usize {
        self.unrouted.rules.len()
    }
}

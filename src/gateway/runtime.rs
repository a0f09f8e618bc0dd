//! A configuration at work: its routes with their chains, limits and metrics, as requests meet
//! them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use metrics::Counter;
use tollgate_limiter::request::catalog::Catalog;
use tollgate_limiter::request::rule::LimitStates;
use tollgate_limiter::request::rule_set::RuleSet;

use super::exchange::{RouteTarget, Upstreams, Worker};
use super::listener_rules::ListenerRules;
use super::maintenance::RouteMaintenance;
use super::route_metrics::RouteMetrics;
use super::stack::Chain;
use crate::body_memory::BodyMemory;
use crate::error::Failure;
use crate::identity::Authenticators;
use crate::observe::access_log::AccessLog;
use crate::route::table::RouteTable;
use crate::transport::peer::TrustedPeers;
use crate::transport::tls::server::acceptor::TlsAcceptor;
use crate::upstream::Upstream;

/// A configuration at work. Immutable; [`crate::app`] assembles it.
pub struct Gateway {
    pub table: RouteTable,
    /// In the order the table was built from.
    pub routes: Vec<Arc<RouteRuntime>>,
    pub upstreams: Upstreams,
    pub authenticators: Authenticators,
    /// For operators: requests meet their limits in [`RouteGuard::chains`].
    pub limits: Arc<Catalog>,
    /// The state of limits that a reload keeps.
    pub limit_states: Arc<LimitStates>,
    /// The memory for bodies that are read ahead. A reload keeps it.
    pub body_memory: Arc<BodyMemory>,
    pub trusted_proxies: TrustedPeers,
    /// The rules of each listener, besides its limits.
    pub listeners: Vec<ListenerRules>,
    pub access_log: Option<AccessLog>,
    /// For requests that no route takes: a listener's limits count them too.
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
        let upstreams = self.upstreams.values();
        let keys = upstreams.flat_map(|of| {
            of.endpoints()
                .iter()
                .map(|one| one.key().clone())
                .collect::<Vec<_>>()
        });
        Some(keys.collect())
    }
}

/// The chain, the limits and the metrics before an action.
pub struct RouteGuard {
    /// By listener.
    pub chains: Vec<Chain>,
    /// By listener: the listener's limits, then the route's. For explanations: requests meet them
    /// in the chain.
    pub rules: Vec<Arc<RuleSet>>,
    pub metrics: Arc<RouteMetrics>,
    /// When the route is under maintenance. `None`: never.
    pub maintenance: Option<Arc<RouteMaintenance>>,
    /// By listener: the answer to a client that does not say who it is, where somebody asks. For
    /// explanations.
    pub unauthenticated: Vec<Option<Failure>>,
    /// From a request's head to its answer's end, with all that it waits for.
    pub whole_time: Option<Duration>,
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
    /// `None`: it speaks HTTP in the clear.
    pub tls: Option<Arc<TlsAcceptor>>,
}

impl Gateway {
    /// How many listeners there are.
    pub fn listeners(&self) -> usize {
        self.unrouted.rules.len()
    }
}

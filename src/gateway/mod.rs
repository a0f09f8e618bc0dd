//! From a request to a route to an answer: what a configuration becomes once it runs.
//!
//! One [`Gateway`] serves all workers of the node and is replaced as a whole by a reload; what belongs to one worker
//! comes in by its [`WorkerListener`]. Knows nothing of sockets: whoever has a request calls [`stack::serve`].

use std::collections::HashMap;
use std::sync::Arc;

use account::{InFlight, RouteMetrics};
use arc_swap::ArcSwap;
use metrics::Counter;
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::request::catalog::Catalog;
use tollgate_limiter::request::rule::LimitStates;
use tollgate_limiter::request::rule_set::RuleSet;

use crate::observe::access_log::AccessLog;
use crate::proxy::Proxy;
use crate::route::Route;
use crate::route::table::RouteTable;
use crate::upstream::Upstream;
use tollgate_limiter::limit::client_address::TrustedProxies;

pub mod account;
mod actions;
mod body_bound;
mod exchange;
pub mod explain;
mod panic_guard;
mod rate_limit;
mod shed;
pub mod stack;
mod timeout;

/// The route of requests that no route takes, in metrics, logs and keys.
pub const UNROUTED: &str = "none";

/// A configuration at work. Immutable; [`crate::app`] assembles it.
pub struct Gateway {
    pub table: RouteTable,
    /// In the order the table was built from.
    pub routes: Vec<RouteRuntime>,
    pub upstreams: Upstreams,
    /// For operators: requests have theirs in [`RouteGuard::rules`].
    pub limits: Catalog,
    /// What limits keep across a reload.
    pub limit_states: Arc<LimitStates>,
    pub trusted_proxies: TrustedProxies,
    pub access_log: Option<AccessLog>,
    /// Of requests that no route takes: they are requests through a listener all the same.
    pub unrouted: RouteGuard,
    pub panics: Counter,
}

/// The upstreams of the node by name, with their state.
pub type Upstreams = HashMap<Arc<str>, Arc<Upstream>>;

/// What stands before an action: its chain, its limits and its metrics.
pub struct RouteGuard {
    /// By listener.
    pub chains: Vec<stack::Chain>,
    /// By listener: the listener's limits, then the route's. For explanations: requests meet them in the chain.
    pub rules: Vec<Arc<RuleSet>>,
    pub metrics: Arc<RouteMetrics>,
}

/// A route with all it needs to run.
pub struct RouteRuntime {
    pub route: Arc<Route>,
    pub guard: RouteGuard,
    /// Of a route that forwards.
    pub upstream: Option<Arc<Upstream>>,
}

/// Where one worker takes requests from one listener.
#[derive(Clone)]
pub struct WorkerListener {
    pub gateway: Arc<ArcSwap<Gateway>>,
    /// The listener's place in the configuration.
    pub index: usize,
    pub limiter: Limiter,
    pub proxy: Arc<Proxy>,
    pub in_flight: Arc<InFlight>,
}

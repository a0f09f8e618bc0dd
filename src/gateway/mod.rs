//! From a request to a route to an answer: what a configuration becomes once it runs.
//!
//! One [`Gateway`] serves all workers of the node and is replaced as a whole by a reload; what belongs to one worker
//! comes in by its [`Entrance`]. Knows nothing of sockets: whoever has a request calls [`stack::serve`].

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use account::{InFlight, RouteMetrics};
use arc_swap::ArcSwap;
use metrics::Counter;
use queue::Queues;
use route::Route;
use table::RouteTable;
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::decide::plans::cache::PlanCaches;
use tollgate_limiter::request::catalog::Catalog;
use tollgate_limiter::request::rule_set::RuleSet;

use crate::proxy::Proxy;
use crate::proxy::forwarded::TrustedProxies;
use crate::telemetry::AccessLog;
use crate::upstream::Upstream;

pub mod account;
mod actions;
mod body_bound;
pub mod explain;
mod limits;
pub mod path;
pub mod queue;
pub mod route;
pub mod stack;
pub mod table;

/// The route of requests that no route takes, in metrics, logs and keys.
pub const UNROUTED: &str = "none";

/// A configuration at work. Immutable; [`crate::app`] assembles it.
pub struct Gateway {
    pub table: RouteTable,
    /// In the order the table was built from.
    pub routes: Vec<Guarded>,
    pub upstreams: Upstreams,
    /// For operators: requests have theirs in [`Guard::rules`].
    pub limits: Catalog,
    /// What is known of plans in the shared store. A reload keeps it.
    pub plans: Arc<PlanCaches>,
    /// Requests that wait for a limit. A reload keeps them.
    pub queues: Queues,
    pub trusted_proxies: TrustedProxies,
    pub max_requests: Option<NonZeroUsize>,
    pub access_log: Option<AccessLog>,
    /// Of requests that no route takes: they are requests through a listener all the same.
    pub unrouted: Guard,
    pub panics: Counter,
}

/// The upstreams of the node by name, with their state.
pub type Upstreams = HashMap<Arc<str>, Arc<Upstream>>;

/// What stands before an action: its limits and its metrics.
pub struct Guard {
    /// By listener: the listener's limits, then the route's.
    pub rules: Vec<RuleSet>,
    pub metrics: Arc<RouteMetrics>,
}

/// A route with all it needs to run.
pub struct Guarded {
    pub route: Arc<Route>,
    pub guard: Guard,
    /// Of a route that forwards.
    pub upstream: Option<Arc<Upstream>>,
}

/// Where one worker takes requests from one listener.
#[derive(Clone)]
pub struct Entrance {
    pub gateway: Arc<ArcSwap<Gateway>>,
    /// The listener's place in the configuration.
    pub listener: usize,
    pub limiter: Limiter,
    pub proxy: Arc<Proxy>,
    pub in_flight: Arc<InFlight>,
}

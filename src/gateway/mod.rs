//! From a request to a route to an answer: what a configuration becomes once it runs.
//!
//! One [`Gateway`] serves all workers of the node and is replaced as a whole by a reload; what belongs to one worker
//! comes in by its [`Entrance`]. Knows nothing of sockets: whoever has a request calls [`stack::serve`].

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use arc_swap::ArcSwap;
use metrics::Counter;

use crate::proxy::Proxy;
use crate::proxy::forwarded::TrustedProxies;
use crate::rate_limit::catalog::Catalog;
use crate::rate_limit::limiter::Limiter;
use crate::rate_limit::rules::Rules;
use crate::telemetry::AccessLog;
use crate::upstream::Upstream;
use account::{InFlight, RouteMetrics};
use route::Route;
use table::RouteTable;

pub mod account;
mod actions;
mod body_bound;
pub mod explain;
pub mod path;
pub mod route;
pub mod stack;
pub mod table;

/// A configuration at work. Immutable; [`crate::app`] assembles it.
pub struct Gateway {
    pub table: RouteTable,
    /// In the order the table was built from.
    pub routes: Vec<Guarded>,
    pub upstreams: Upstreams,
    /// For operators: requests have theirs in [`Guarded::rules`].
    pub limits: Catalog,
    pub trusted_proxies: TrustedProxies,
    pub max_requests: Option<NonZeroUsize>,
    pub access_log: Option<AccessLog>,
    /// Counts requests that no route took.
    pub unrouted: Arc<RouteMetrics>,
    pub panics: Counter,
}

/// The upstreams of the node by name, with their state.
pub type Upstreams = HashMap<Arc<str>, Arc<Upstream>>;

/// A route with all it needs to run.
pub struct Guarded {
    pub route: Arc<Route>,
    /// By listener: the listener's limits, then the route's.
    pub rules: Vec<Rules>,
    pub metrics: Arc<RouteMetrics>,
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

//! From the file to the domain.
//!
//! Two steps: `raw` mirrors the file and refuses unknown keys; `build` turns it into [`Config`] and judges what needs
//! more than one place of the file. All mistakes of a file are found at once. Domain types know nothing of this module.

mod build;
mod decode;
mod env;
mod load;
mod mistake;
mod node;
mod raw;
mod record;
mod restart;
mod schema;
pub mod watch;
mod yaml;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
pub use load::{Loaded, load, parse};
pub use mistake::{Mistake, Mistakes, nearest};
pub use schema::schema;
use tollgate_limiter::limit::spec::{Limit, LimitUse};
use tollgate_limiter::store::redis::spec::RedisSpec;

use crate::gateway::route::Route;
use crate::server::ListenerSpec;
use crate::upstream::UpstreamSpec;

/// A whole, checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub workers: NonZeroUsize,
    pub listeners: Vec<Listener>,
    pub admin: Option<SocketAddr>,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// `None`: buckets live in this process.
    pub store: Option<RedisSpec>,
    /// Buckets kept in this process at most.
    pub max_local_buckets: NonZeroUsize,
    pub access_log: AccessLog,
    /// How long in-flight requests may take after SIGTERM.
    pub drain_timeout: Duration,
    /// Also send `x-ratelimit-*` fields.
    pub legacy_headers: bool,
    /// Requests in flight per worker; beyond: 503. `None`: no bound.
    pub max_requests: Option<NonZeroUsize>,
    pub limits: Vec<Arc<Limit>>,
    pub upstreams: Vec<Arc<UpstreamSpec>>,
    pub routes: Vec<Arc<Route>>,
}

/// A listener and the limits that count every request through it, before the route's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    pub server: ListenerSpec,
    pub limits: Vec<LimitUse>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AccessLog {
    #[default]
    Off,
    Json,
}

impl Config {
    /// What there is, in a few words.
    pub fn summary(&self) -> String {
        let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
        let parts = [
            count(self.routes.len(), "route"),
            count(self.limits.len(), "limit"),
            count(self.upstreams.len(), "upstream"),
            count(self.listeners.len(), "listener"),
        ];
        parts.join(", ")
    }
}

impl Loaded {
    /// Logs the warnings.
    pub fn warn(&self) {
        for warning in &self.warnings {
            tracing::warn!(hint = warning.hint.as_deref(), "{}", warning.headline());
        }
    }
}

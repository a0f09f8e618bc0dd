//! A whole, checked configuration, in types of the domain.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::uri::Authority;
use tollgate_limiter::limit::definition::{Limit, LimitUse};
use tollgate_limiter::store::redis::spec::RedisSpec;

use super::candidate::Candidate;
use tollgate_identity::api_key::RouteKeys;
use tollgate_identity::openid::spec::{GroupRole, OpenIdSpec};
use tollgate_identity::spec::AuthenticatorSpec;
use tollgate_proxy::upstream::UpstreamSpec;
use tollgate_spec::access_log::AccessLogSpec;
use tollgate_spec::body_keys::BodyKeyBounds;
use tollgate_spec::listener::ListenerSpec;
use tollgate_spec::route::Route;
use tollgate_spec::route::error_pages::ErrorPages;
use tollgate_spec::route::networks::NetworkRules;
use tollgate_wire::transport::peer::TrustedPeers;
use tollgate_wire::transport::tls::server::spec::TlsServerSpec;

/// A whole, checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The name of this node among the nodes of its fleet.
    pub node_name: Arc<str>,
    pub workers: NonZeroUsize,
    pub listeners: Vec<ListenerConfig>,
    /// `None`: off.
    pub admin: Option<AdminSpec>,
    pub trusted_proxies: TrustedPeers,
    /// `None`: buckets live in this process.
    pub store: Option<RedisSpec>,
    /// Where policies come from. `None`: there are none.
    pub policies: Option<PolicySource>,
    /// Buckets kept in this process at most.
    pub max_local_buckets: NonZeroUsize,
    /// `None`: off.
    pub access_log: Option<AccessLogSpec>,
    /// How long in-flight requests may take after SIGTERM.
    pub drain_timeout: Duration,
    /// The Unix socket at which another process takes over from this one.
    pub handover: Option<PathBuf>,
    /// Also send `x-ratelimit-*` fields.
    pub legacy_headers: bool,
    /// Requests in flight per worker; beyond: 503. `None`: no bound.
    pub max_requests: Option<NonZeroUsize>,
    /// Whether tunnels count as requests in flight.
    pub tunnels_count: bool,
    /// Pages in place of errors, where a route has none of its own.
    pub error_pages: Option<Arc<ErrorPages>>,
    /// The bounds on bodies that are read ahead of limits.
    pub body_keys: BodyKeyBounds,
    pub limits: Vec<Arc<Limit>>,
    /// The limits among them that are tried out.
    pub candidates: Vec<Candidate>,
    /// The API keys of policies, by route. `None`: no policies are known.
    pub policy_keys: Option<RouteKeys>,
    pub upstreams: Vec<Arc<UpstreamSpec>>,
    pub authenticators: Vec<Arc<AuthenticatorSpec>>,
    pub routes: Vec<Arc<Route>>,
}

/// The admin server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminSpec {
    pub address: SocketAddr,
    /// Where probes and metrics are besides, without anything else.
    pub probe_address: Option<SocketAddr>,
    /// `None`: it speaks HTTP in the clear.
    pub tls: Option<TlsServerSpec>,
    /// The `Strict-Transport-Security` of its answers.
    pub hsts: Option<HeaderValue>,
    /// Where browsers find it, if not at its address.
    pub public_url: Option<PublicUrl>,
    /// The provider that people may sign in at.
    pub openid: Option<SignInSpec>,
}

/// Where browsers find the admin server: scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    pub is_secure: bool,
    /// Host, and the port where it has one.
    pub authority: Authority,
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)
    }
}

/// How people sign in at a provider of OpenID Connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignInSpec {
    pub provider: OpenIdSpec,
    /// The roles of each of its groups. `None`: groups do not decide.
    pub roles: Option<Vec<(String, Vec<GroupRole>)>>,
    /// Whether an account is made at somebody's first sign-in.
    pub creates_accounts: bool,
}

impl AdminSpec {
    /// In the clear, with nothing beside it.
    pub const fn at(address: SocketAddr) -> Self {
        Self {
            address,
            probe_address: None,
            tls: None,
            hsts: None,
            public_url: None,
            openid: None,
        }
    }

    /// Whether browsers reach it by HTTPS.
    pub fn is_secure(&self) -> bool {
        self.tls.is_some() || self.public_url.as_ref().is_some_and(|url| url.is_secure)
    }

    /// Whether only a restart takes `new` over: all but certificates, and what clients must show.
    fn is_another(&self, new: &Self) -> bool {
        let both = self.tls.is_some() && new.tls.is_some();
        let tls = if both { &self.tls } else { &new.tls };
        let mut like = Self {
            tls: tls.clone(),
            ..new.clone()
        };
        if let (Some(own), Some(other)) = (&self.openid, &mut like.openid) {
            other.provider.take_files_of(&own.provider);
        }
        *self != like
    }

    /// Whether the files for its provider have another content than those of `new`.
    fn has_other_files(&self, new: &Self) -> bool {
        matches!((&self.openid, &new.openid), (Some(own), Some(other)) if {
            let mut like = own.provider.clone();
            like.take_files_of(&other.provider);
            like != own.provider
        })
    }
}

/// The database of policies, and this node's copy of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySource {
    pub database: DatabaseUrl,
    pub copy: PathBuf,
    /// Whether a start without database and copy fails.
    pub required: bool,
}

/// The address of a database, credentials included. Not printable, and never quoted in a mistake.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(pub Arc<str>);

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatabaseUrl")
    }
}

/// A listener and the limits that count every request through it, before the route's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    /// The name by which routes list it.
    pub name: Option<Arc<str>>,
    pub server: ListenerSpec,
    /// `None`: it speaks HTTP in the clear.
    pub tls: Option<TlsServerSpec>,
    /// The `Strict-Transport-Security` of its answers.
    pub hsts: Option<HeaderValue>,
    /// The port of HTTPS that its clients are sent to.
    pub redirect_to_https: Option<u16>,
    /// The clients that it takes.
    pub networks: NetworkRules,
    /// The authenticators that are asked who a client is, on routes that say nothing of it, and
    /// where there is no route.
    pub authenticate: Vec<Arc<str>>,
    pub limits: Vec<LimitUse>,
}

impl Config {
    /// The numbers of routes, limits, upstreams and listeners, in a few words.
    pub fn summary(&self) -> String {
        let parts = [
            counted(self.routes.len(), "route"),
            counted(self.limits.len(), "limit"),
            counted(self.upstreams.len(), "upstream"),
            counted(self.listeners.len(), "listener"),
        ];
        parts.join(", ")
    }

    /// The sections in which `new` differs and which are only read at start: sockets, threads and
    /// what they were built around. A reload applies everything else.
    pub fn needs_restart(&self, new: &Self) -> Vec<&'static str> {
        let admin_changed = match (&self.admin, &new.admin) {
            (Some(old), Some(new)) => old.is_another(new),
            (old, new) => old.is_some() != new.is_some(),
        };
        let store_changed = match (&self.store, &new.store) {
            (Some(old), Some(new)) => {
                *old != RedisSpec {
                    tls: old.tls.clone(),
                    ..new.clone()
                }
            }
            (old, new) => old.is_some() != new.is_some(),
        };
        let changed = [
            ("node_name", self.node_name != new.node_name),
            ("workers", self.workers != new.workers),
            ("listeners", !self.servers().eq(new.servers())),
            ("handover", self.handover != new.handover),
            ("admin", admin_changed),
            ("store", store_changed),
            ("policies", self.policies != new.policies),
            (
                "max_local_buckets",
                self.max_local_buckets != new.max_local_buckets,
            ),
        ];
        sections_that_differ(&changed)
    }

    /// The files of `new` that have another content, and are only read at start: a renewed
    /// certificate keeps nothing else of the configuration from being applied.
    pub fn renewed_files(&self, new: &Self) -> Vec<&'static str> {
        let store =
            matches!((&self.store, &new.store), (Some(old), Some(new)) if old.tls != new.tls);
        let admin =
            matches!((&self.admin, &new.admin), (Some(old), Some(new)) if old.has_other_files(new));
        let renewed = [("store.tls", store), ("admin.openid_connect", admin)];
        sections_that_differ(&renewed)
    }

    /// All uses of limits: of listeners, and of routes.
    pub fn limit_uses(&self) -> impl Iterator<Item = &LimitUse> {
        let of_listeners = self.listeners.iter().flat_map(|listener| &listener.limits);
        of_listeners.chain(self.routes.iter().flat_map(|route| &route.limits))
    }

    /// Whether `new` differs in nothing but its routes and limits, and what policies say of these.
    pub fn differs_in_routes_alone(&self, new: &Self) -> bool {
        let Self {
            node_name,
            workers,
            listeners,
            admin,
            trusted_proxies,
            store,
            policies,
            max_local_buckets,
            access_log,
            drain_timeout,
            handover,
            legacy_headers,
            max_requests,
            tunnels_count,
            error_pages,
            body_keys,
            limits: _,
            candidates: _,
            policy_keys: _,
            upstreams,
            authenticators,
            routes: _,
        } = self;
        *node_name == new.node_name
            && *workers == new.workers
            && *listeners == new.listeners
            && *admin == new.admin
            && *trusted_proxies == new.trusted_proxies
            && *store == new.store
            && *policies == new.policies
            && *max_local_buckets == new.max_local_buckets
            && *access_log == new.access_log
            && *drain_timeout == new.drain_timeout
            && *handover == new.handover
            && *legacy_headers == new.legacy_headers
            && *max_requests == new.max_requests
            && *tunnels_count == new.tunnels_count
            && *error_pages == new.error_pages
            && *body_keys == new.body_keys
            && *upstreams == new.upstreams
            && *authenticators == new.authenticators
    }

    /// The parts of the listeners that a reload cannot change: their sockets, and whether they
    /// speak TLS. Certificates and limits it does change.
    fn servers(&self) -> impl Iterator<Item = (&ListenerSpec, bool)> {
        self.listeners
            .iter()
            .map(|listener| (&listener.server, listener.tls.is_some()))
    }
}

/// A number of things, such as `2 routes`.
fn counted(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// The names of the sections that differ.
fn sections_that_differ(sections: &[(&'static str, bool)]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for (name, differs) in sections {
        if *differs {
            names.push(*name);
        }
    }
    names
}

//! The whole file: its sections, and the keys outside of any section.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

use crate::report::Report;
use crate::scalar::address::{IncludedPath, SocketPath};
use crate::scalar::number::{BoundedDuration, DAY, WholeNumber};
use crate::scalar::text::DefinedName;
use crate::section::access_log::RawAccessLog;
use crate::section::admin::reach::{AdminSurroundings, warn_of_shared_host};
use crate::section::admin::server::RawAdmin;
use crate::section::authenticator::api_key::KeySources;
use crate::section::authenticator::definition::{AuthenticatorContext, RawAuthenticator};
use crate::section::body_keys::{RawBodyKeys, body_keys};
use crate::section::common::named::NamedSection;
use crate::section::defaults::RawDefaults;
use crate::section::error_pages::{RawErrorPage, error_pages};
use crate::section::known::KnownParts;
use crate::section::limit::assigned::{PolicyPlans, PolicyTables};
use crate::section::limit::definition::{LimitContext, RawLimit};
use crate::section::listener::definition::{ListenerSections, RawListener};
use crate::section::listener::serving::ServingListeners;
use crate::section::policies::source::{RawPolicySource, policy_source};
use crate::section::route::definition::{NamedSections, RawRoute};
use crate::section::store::RawStore;
use crate::section::trusted_proxies::{TrustedProxy, trusted_peers};
use crate::section::upstream::balance::{warn_of_shared_cookies, warn_of_unknown_clients};
use crate::section::upstream::definition::RawUpstream;
use crate::section::{admin, authenticator, limit, listener, route, store, upstream};
use crate::settings::Config;
use crate::yaml::collection::{Mapping, NonEmptyList, OneOrMore};
use crate::yaml::decode::{Decode, Located, SchemaDefinitions};
use crate::yaml::record::{Record, RecordReader, RecordSchema, record};
use tollgate_identity::spec::AuthenticatorSpec;

record! {
    /// The configuration of a Tollgate gateway.
    RawConfig {
        /// Keys about the file itself.
        group _tree: TreeKeys,
        /// The name of this node among the nodes of its fleet. Default: the name of its machine.
        optional node_name: Located<DefinedName>,
        /// Threads that serve requests, each with its own connections. Default: one per core.
        optional workers: Located<WholeNumber<1, 1024>>,
        /// How long requests in flight may take to finish after SIGTERM.
        default("30s") drain_timeout: Located<BoundedDuration<DAY>>,
        /// A Unix socket at which `tollgate run --take-over` takes over from this process without
        /// losing a connection.
        optional handover: Located<SocketPath>,
        /// A line for each request: off, json or combined, or its format, destination and sample.
        default("off") access_log: RawAccessLog,
        /// Proxies in front, whose claims about their clients are believed: addresses, networks,
        /// and unix for Unix sockets.
        optional trusted_proxies: Vec<Located<TrustedProxy>>,
        /// Requests in flight per worker; further ones are answered with 503. Default: no bound.
        optional max_requests: Located<WholeNumber<1, 1_000_000_000>>,
        /// Whether tunnels, such as WebSockets, count as requests in flight for max_requests.
        default(true) tunnels_count: Located<bool>,
        /// Buckets kept in this process at most.
        default(1_000_000) max_local_buckets: Located<WholeNumber<1, 1_000_000_000>>,
        /// Which header fields answers carry.
        optional headers: RawAnswerHeaders,
        /// Pages in place of errors, for requests that no route takes and routes that have none of
        /// their own.
        optional error_pages: NonEmptyList<RawErrorPage>,
        /// Bounds on request bodies that are read ahead of limits which count by a member of them.
        optional body_keys: RawBodyKeys,
        /// Where to listen for requests.
        required listeners: NonEmptyList<RawListener>,
        /// The admin server, or `off`.
        optional admin: RawAdmin,
        /// The memory that all nodes share. Leave it out for one node: buckets then live in this
        /// process.
        optional store: RawStore,
        /// Policies that people edit, kept in a database. They lie over this file.
        optional policies: RawPolicySource,
        /// Rate limits, by name.
        optional limits: Mapping<DefinedName, RawLimit>,
        /// Ways in which clients say who they are, by name.
        optional authenticators: Mapping<DefinedName, RawAuthenticator>,
        /// Groups of servers to forward to, by name.
        optional upstreams: Mapping<DefinedName, RawUpstream>,
        /// Which requests are forwarded or answered, and how.
        required routes: NonEmptyList<RawRoute>,
    }
}

record! {
    /// Which header fields answers carry.
    RawAnswerHeaders {
        /// Also send x-ratelimit-limit, x-ratelimit-remaining and x-ratelimit-reset.
        default(false) legacy_ratelimit: Located<bool>,
    }
}

/// The keys that join and complete the tree. They are taken out of it before the rest is read.
pub struct TreeKeys;

impl Record for TreeKeys {
    fn keys() -> Vec<&'static str> {
        vec!["include", "defaults"]
    }

    fn read(_: &RecordReader<'_>, _: &mut Report) -> Self {
        Self
    }

    fn add_to(schema: &mut RecordSchema, definitions: &mut SchemaDefinitions) {
        let doc = "Files and folders to read besides this one, by paths from its own folder.";
        schema.add("include", RawInclude::schema(definitions), doc, None);
        let doc = "What routes, limits and upstreams have that do not say otherwise.";
        schema.add("defaults", RawDefaults::schema(definitions), doc, None);
    }
}

/// Paths of files and folders.
pub type RawInclude = OneOrMore<Located<IncludedPath>>;

/// The whole configuration, where some limits have the plans of policies and some parts are known.
/// `None`: a mistake was reported.
pub fn build(
    file: &RawConfig,
    plans: &PolicyPlans,
    known: &KnownParts,
    report: &mut Report,
) -> Option<Config> {
    let upstreams = NamedSection::build("upstream", &file.upstreams, |name, raw| {
        upstream::definition::build(name, raw, report)
    });
    let available = AuthenticatorContext {
        upstreams: &upstreams,
        sources: KeySources {
            has_store: file.store.is_present(),
            has_policies: file.policies.is_present(),
        },
    };
    let authenticators = NamedSection::build("authenticator", &file.authenticators, |name, raw| {
        authenticator::definition::build(name, raw, available, report)
    });
    let credentials: Vec<_> = authenticators
        .built()
        .map(AuthenticatorSpec::place)
        .collect();
    let autonomy = file
        .store
        .valid()
        .and_then(|store| Some(store.autonomy.value()?.0));
    let policies = &PolicyTables::new(plans);
    let context = LimitContext {
        upstreams: &upstreams,
        has_store: file.store.is_present(),
        autonomy,
        policies,
        credentials: &credentials,
    };
    let mut limits = NamedSection::build("limit", &file.limits, |name, raw| {
        limit::definition::build(name, raw, &context, report)
    });
    for limit in &known.limits {
        limits.add(&limit.name, limit);
        if let Some(name) = limit.on_limit.upstream() {
            upstreams.mark_used(name);
        }
    }
    let admin = admin::server::build(&file.admin, report);
    let sections = ListenerSections {
        limits: &limits,
        authenticators: &authenticators,
    };
    let listeners = listener::definition::build(&file.listeners, sections, report);
    let surroundings = AdminSurroundings {
        listeners: &file.listeners,
        has_accounts: file.policies.is_present(),
        has_proxies: file.trusted_proxies.is_present(),
    };
    if let Some(Some(admin)) = &admin {
        surroundings.check(&file.admin, admin, report);
    }
    listener::definition::check_handover(&file.listeners, &file.handover, report);
    let workers = file
        .workers
        .build(|at| Some(at.value.count()))
        .map(|count| count.unwrap_or_else(one_per_core));
    upstream::definition::warn_of_few_connections(&file.upstreams, workers, report);
    let sections = NamedSections {
        limits: &limits,
        upstreams: &upstreams,
        authenticators: &authenticators,
    };
    let serving = ServingListeners::new(&file.listeners);
    let routes = route::definition::build(&file.routes, &serving, sections, known, report);
    let built_routes = routes.as_deref().unwrap_or_default();
    warn_of_shared_host(&file.admin, built_routes, report);
    let balanced = upstream::definition::balanced(&file.upstreams);
    warn_of_shared_cookies(&balanced, report);
    warn_of_unknown_clients(&balanced, &serving, built_routes, report);
    serving.warn_of_open(built_routes, report);
    limits.warn_of_unused(report);
    upstreams.warn_of_unused(report);
    authenticators.warn_of_unused(report);
    let body_keys = body_keys(&file.body_keys);
    let trusted_proxies = file
        .trusted_proxies
        .build(|proxies| Some(trusted_peers(proxies, report)));
    Some(Config {
        node_name: file
            .node_name
            .build(|name| Some(name.value.0.clone()))?
            .unwrap_or_else(machine_name),
        workers: workers?,
        listeners: listeners?,
        admin: admin?,
        trusted_proxies: trusted_proxies?.unwrap_or_default(),
        store: file.store.build(|raw| store::build(raw, report))?,
        policies: file.policies.build(policy_source)?,
        max_local_buckets: file.max_local_buckets.value()?.count(),
        access_log: file.access_log.valid()?.spec(),
        drain_timeout: file.drain_timeout.value()?.0,
        handover: file.handover.build(|at| Some(at.value.0.clone()))?,
        legacy_headers: file
            .headers
            .build(|headers| headers.legacy_ratelimit.value())?
            .unwrap_or(false),
        error_pages: file.error_pages.build(|raw| error_pages(raw, report))?,
        tunnels_count: file.tunnels_count.value()?,
        max_requests: file.max_requests.build(|at| Some(at.value.count()))?,
        body_keys: body_keys?,
        limits: limits.into_all()?,
        candidates: Vec::new(),
        policy_keys: None,
        upstreams: upstreams.into_all()?,
        authenticators: authenticators.into_all()?,
        routes: routes?,
    })
}

/// The name of this machine, which is that of the pod in Kubernetes, as far as a node may be called
/// so.
fn machine_name() -> Arc<str> {
    let uname = rustix::system::uname();
    let name = uname.nodename().to_string_lossy();
    let name: String = name
        .chars()
        .filter(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.' | '-'))
        .take(DefinedName::LONGEST)
        .collect();
    if name.is_empty() {
        "node".into()
    } else {
        name.into()
    }
}

fn one_per_core() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

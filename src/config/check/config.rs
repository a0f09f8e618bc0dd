//! The whole configuration, section by section.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

use super::identity::AuthenticatorContext;
use super::identity::usage::AskingListeners;
use super::known::KnownParts;
use super::limit::assigned::PolicyTables;
use super::limit::definition::{self, LimitContext};
use super::listener::ListenerSections;
use super::listener::admin::{self, ProbedAddress};
use super::named::NamedSection;
use super::route::NamedSections;
use super::{identity, listener, route, store, upstream};
use crate::config::file::config::{RawBodyKeys, RawConfig};
use crate::config::file::policies::plans::PolicyPlans;
use crate::config::file::policies::source::RawPolicySource;
use crate::config::file::route::error_pages::error_pages;
use crate::config::file::scalar::text::DefinedName;
use crate::config::report::Report;
use crate::config::settings::{Config, PolicySource};
use crate::config::yaml::decode::Setting;
use crate::gateway::body_keys::BodyKeyBounds;
use crate::identity::spec::AuthenticatorSpec;

/// The whole configuration, where some limits have the plans of policies and some parts are known.
/// `None`: a mistake was reported.
pub fn config(
    file: &RawConfig,
    (plans, known): (&PolicyPlans, &KnownParts),
    report: &mut Report,
) -> Option<Config> {
    let upstreams = NamedSection::build("upstream", &file.upstreams, |name, raw| {
        upstream::build(name, raw, report)
    });
    let available = AuthenticatorContext {
        upstreams: &upstreams,
        has_store: file.store.is_present(),
        has_policies: file.policies.is_present(),
    };
    let authenticators = NamedSection::build("authenticator", &file.authenticators, |name, raw| {
        identity::build(name, raw, available, report)
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
        definition::build(name, raw, &context, report)
    });
    known
        .limits
        .iter()
        .for_each(|limit| limits.add(&limit.name, limit));
    known
        .limits
        .iter()
        .filter_map(|limit| limit.on_limit.upstream())
        .for_each(|name| upstreams.mark_used(name));
    let admin = admin::admin(&file.admin, report);
    let sections = ListenerSections {
        limits: &limits,
        authenticators: &authenticators,
    };
    let listeners = listener::build(&file.listeners, sections, report);
    admin::check(file, admin.as_ref().and_then(Option::as_ref), report);
    listener::check_handover(file, report);
    let workers = file
        .workers
        .build(|at| Some(at.value.count()))
        .map(|count| count.unwrap_or_else(one_per_core));
    upstream::warn_of_few_connections(file, workers, report);
    let sections = NamedSections {
        limits: &limits,
        upstreams: &upstreams,
        authenticators: &authenticators,
    };
    let routes = route::build(file, sections, known, report);
    admin::warn_of_shared_host(file, routes.as_deref().unwrap_or_default(), report);
    upstream::balance::warn_of_shared_cookies(file, report);
    let asking = AskingListeners::of(file);
    upstream::balance::warn_of_unknown_clients(
        file,
        &asking,
        routes.as_deref().unwrap_or_default(),
        report,
    );
    limits.warn_of_unused(report);
    upstreams.warn_of_unused(report);
    authenticators.warn_of_unused(report);
    let body_keys = body_keys(&file.body_keys);
    let trusted_proxies = file
        .trusted_proxies
        .build(|proxies| Some(listener::trusted_peers(proxies, report)));
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
    let fine = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.' | '-');
    let name: String = name
        .chars()
        .filter(fine)
        .take(DefinedName::LONGEST)
        .collect();
    if name.is_empty() {
        "node".into()
    } else {
        name.into()
    }
}

/// The bounds on bodies that are read ahead. `None`: a mistake was reported.
fn body_keys(setting: &Setting<RawBodyKeys>) -> Option<BodyKeyBounds> {
    let bytes = |size: u64| usize::try_from(size).ok().and_then(NonZeroUsize::new);
    let bounds = setting.build(|raw| {
        Some(BodyKeyBounds {
            max_body: bytes(raw.max_body.value()?.0)?,
            max_memory: bytes(raw.max_memory.value()?.0)?,
            timeout: raw.timeout.value()?.0,
        })
    });
    Some(bounds?.unwrap_or_default())
}

fn policy_source(raw: &RawPolicySource) -> Option<PolicySource> {
    Some(PolicySource {
        database: raw.database.value()?,
        copy: raw.copy.value()?.0,
        required: raw.required.value()?,
    })
}

/// Where a gateway can be asked whether it is ready; `Some(None)`: nowhere. `None`: said in the
/// report.
pub fn probed_address(file: &RawConfig) -> Option<Option<ProbedAddress>> {
    admin::probed_address(&file.admin)
}

fn one_per_core() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

//! Raw → domain: the checks that need more than one place of the file.
//!
//! Everything is visited even after a mistake. A part that cannot be built is `None`, with its mistake in the report, and
//! nothing is said of what only follows from it.

mod algorithm;
mod costs;
mod limits;
mod listeners;
mod named;
mod on_limit;
mod plans;
mod rewrite;
mod routes;
mod store;
mod ties;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::thread;

use named::Named;

use super::decode::{At, Slot};
use super::mistake::Report;
use super::{Config, raw};
use crate::upstream::UpstreamSpec;

/// The whole configuration. `None`: said in the report.
pub(super) fn config(file: &raw::File, report: &mut Report) -> Option<Config> {
    let upstreams = Named::build("upstream", &file.upstreams, upstream);
    let stored = file.store.is_present();
    let limits = Named::build("limit", &file.limits, |name, raw| limits::limit(name, raw, &upstreams, stored, report));
    let admin = listeners::admin(&file.admin);
    let listeners = listeners::build(&file.listeners, &limits, report);
    listeners::check_admin(file, admin.flatten(), report);
    let routes = routes::build(file, &limits, &upstreams, report);
    limits.warn_of_unused(report);
    upstreams.warn_of_unused(report);
    Some(Config {
        workers: workers(&file.workers)?,
        listeners: listeners?,
        admin: admin?,
        trusted_proxies: optional(&file.trusted_proxies, |proxies| {
            Some(proxies.iter().map(|at| at.value.0).collect::<Vec<_>>())
        })?
        .unwrap_or_default(),
        store: optional(&file.store, |raw| store::build(raw, report))?,
        max_local_buckets: file.max_local_buckets.value()?.count(),
        access_log: file.access_log.value()?,
        drain_timeout: file.drain_timeout.value()?.0,
        legacy_headers: optional(&file.headers, |headers| headers.legacy_ratelimit.value())?.unwrap_or(false),
        max_requests: optional(&file.max_requests, |at| Some(at.value.count()))?,
        limits: limits.into_all()?,
        upstreams: upstreams.into_all()?,
        routes: routes?,
    })
}

/// Where the admin server is; `Some(None)`: it is off. `None`: said in the report.
pub(super) fn admin(file: &raw::File) -> Option<Option<SocketAddr>> {
    listeners::admin(&file.admin)
}

/// `Some(None)`: the key is not there. `None`: it is, with a mistake.
fn optional<T, U>(slot: &Slot<T>, build: impl FnOnce(&T) -> Option<U>) -> Option<Option<U>> {
    match slot {
        Slot::Absent => Some(None),
        Slot::Bad => None,
        Slot::Good(raw) => build(raw).map(Some),
    }
}

fn workers<const MIN: u64, const MAX: u64>(slot: &Slot<At<raw::Whole<MIN, MAX>>>) -> Option<NonZeroUsize> {
    let per_core = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    Some(optional(slot, |at| Some(at.value.count()))?.unwrap_or_else(per_core))
}

fn upstream(name: &raw::Name, raw: &raw::Upstream) -> Option<UpstreamSpec> {
    Some(UpstreamSpec {
        name: name.0.clone(),
        endpoints: raw.endpoints.good()?.0.iter().map(|at| at.value.0.clone()).collect(),
        balance: raw.balance.value()?,
        connect_timeout: raw.connect_timeout.value()?.0,
        response_timeout: raw.response_timeout.value()?.0,
        idle_timeout: raw.idle_timeout.value()?.0,
        keepalive_timeout: raw.keepalive_timeout.value()?.0,
        keepalive_connections: raw.keepalive_connections.value()?.count().get(),
    })
}

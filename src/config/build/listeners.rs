//! Sockets: listeners and the admin server, none of them twice.

use std::collections::HashMap;
use std::net::SocketAddr;

use tollgate_limiter::limit::spec::Limit;

use super::limits::{path_params, uses};
use super::named::Named;
use crate::config::decode::{At, Many, Slot};
use crate::config::mistake::{Report, Trouble, quote};
use crate::config::{Listener, raw};
use crate::server::ListenerSpec;

/// Where the admin server is when the file does not say.
const DEFAULT_ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9901);

/// `Some(None)`: turned off. `None`: said in the report.
pub(super) fn admin(slot: &Slot<raw::Admin>) -> Option<Option<SocketAddr>> {
    match slot {
        Slot::Absent => Some(Some(DEFAULT_ADMIN)),
        Slot::Bad => None,
        Slot::Good(raw::Admin::Off) => Some(None),
        Slot::Good(raw::Admin::On(server)) => server.address.value().map(Some),
    }
}

/// All listeners. `None`: said in the report.
pub(super) fn build(
    slot: &Slot<Many<raw::Listener>>,
    limits: &Named<Limit>,
    report: &mut Report,
) -> Option<Vec<Listener>> {
    let raws = &slot.good()?.0;
    check_addresses(raws, report);
    // Not straight into an option: that would stop at the first listener with a mistake.
    let built: Vec<_> = raws.iter().map(|raw| listener(raw, limits, report)).collect();
    built.into_iter().collect()
}

fn check_addresses(raws: &[raw::Listener], report: &mut Report) {
    let mut lines = HashMap::new();
    for At { place, value } in raws.iter().filter_map(|raw| raw.address.good()) {
        // Each port 0 becomes a port of its own.
        if value.port() == 0 {
            continue;
        }
        match lines.get(value) {
            None => drop(lines.insert(*value, place.line)),
            Some(line) => {
                let trouble = Trouble::new(format!("another listener has {value} already, on line {line}"));
                report.mistake(place, trouble.hint("give each listener an address of its own"));
            }
        }
    }
}

fn listener(raw: &raw::Listener, limits: &Named<Limit>, report: &mut Report) -> Option<Listener> {
    let limits = uses(&raw.limits, limits, report).map(|used| {
        for used in &used {
            if let Some(param) = path_params(&used.limit_use.limit).next() {
                let limit = quote(&used.limit_use.limit.name);
                let trouble =
                    Trouble::new(format!("limit {limit} counts by {{{param}}}, which only a route's path has"));
                report.mistake(&used.place, trouble.hint("list this limit at the routes that have the parameter"));
            }
        }
        used.into_iter().map(|used| used.limit_use).collect()
    });
    Some(Listener { server: server(raw)?, limits: limits? })
}

fn server(raw: &raw::Listener) -> Option<ListenerSpec> {
    Some(ListenerSpec {
        address: raw.address.value()?,
        header_timeout: raw.header_timeout.value()?.0,
        keepalive_timeout: raw.keepalive_timeout.value()?.0,
        body_timeout: raw.body_timeout.value()?.0,
        max_header_bytes: usize::try_from(raw.max_header_size.value()?.0).ok()?,
        max_headers: raw.max_headers.value()?.count().get(),
        max_connections: raw.max_connections.value()?.count().get(),
    })
}

/// The admin server shares a port with no listener: on a wildcard address the one would take the other's connections.
pub(super) fn check_admin(file: &raw::File, admin: Option<SocketAddr>, report: &mut Report) {
    let listeners = file.listeners.good().map_or(&[][..], |raws| &raws.0);
    let addresses = listeners.iter().filter_map(|raw| raw.address.good());
    let Some(admin) = admin else { return };
    let Some(listener) = addresses.into_iter().find(|at| overlap(at.value, admin)) else { return };
    let place = match &file.admin {
        Slot::Good(raw::Admin::On(raw::AdminServer { address: Slot::Good(address), .. })) => &address.place,
        _ => &listener.place,
    };
    let trouble = Trouble::new(format!("the admin server ({admin}) and a listener ({}) overlap", listener.value));
    report.mistake(place, trouble.hint("give the admin server a port of its own, or turn it off: admin: off"));
}

fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let wildcard = a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() != 0 && a.port() == b.port() && (a.ip() == b.ip() || wildcard && a.is_ipv4() == b.is_ipv4())
}

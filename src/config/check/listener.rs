//! The addresses of listeners, none of them twice. `admin` has those of the admin server.

pub mod admin;
mod openid;
mod tls;

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use ipnet::IpNet;
use tollgate_limiter::limit::definition::Limit;

use super::identity::listed;
use super::identity::usage::check_listener_limit;
use super::limit::usage::{body_member, path_params, uses};
use super::named::NamedSection;
use super::networks::network_rules;
use crate::config::file::config::RawConfig;
use crate::config::file::listener::RawListener;
use crate::config::file::scalar::address::{Cidr, TrustedProxy};
use crate::config::report::{Location, Report, ValueProblem, quote};
use crate::config::settings::ListenerConfig;
use crate::config::yaml::collection::NonEmptyList;
use crate::config::yaml::decode::{Located, Setting};
use crate::identity::spec::AuthenticatorSpec;
use crate::server::ListenerSpec;
use crate::transport::listen_address::ListenAddress;
use crate::transport::peer::TrustedPeers;

/// Its owner and its group may connect to a Unix socket.
const DEFAULT_SOCKET_MODE: u32 = 0o660;

/// The proxies whose claims about their clients are believed.
pub fn trusted_peers(proxies: &[Located<TrustedProxy>], report: &mut Report) -> TrustedPeers {
    let networks = proxies.iter().filter_map(|at| match at.value {
        TrustedProxy::Network(network) => {
            warn_of_everybody(&at.location, network, report);
            Some(
                Located {
                    location: at.location.clone(),
                    value: Cidr(network),
                }
                .network(report),
            )
        }
        TrustedProxy::Unix => None,
    });
    let proxies_of_networks = networks.collect::<Vec<_>>().into();
    let unix = proxies
        .iter()
        .any(|at| matches!(at.value, TrustedProxy::Unix));
    TrustedPeers {
        proxies: proxies_of_networks,
        unix,
    }
}

/// If everybody is trusted, every client chooses the address that it is counted by.
fn warn_of_everybody(location: &Location, network: IpNet, report: &mut Report) {
    if network.prefix_len() == 0 {
        let problem = ValueProblem::new("every client is trusted to say which address it has");
        report.warning(
            location,
            problem.hint("list the networks of your proxies only"),
        );
    }
}

/// The sections that listeners refer to.
#[derive(Clone, Copy)]
pub struct ListenerSections<'a> {
    pub limits: &'a NamedSection<Limit>,
    pub authenticators: &'a NamedSection<AuthenticatorSpec>,
}

/// All listeners. `None`: a mistake was reported.
pub fn build(
    setting: &Setting<NonEmptyList<RawListener>>,
    sections: ListenerSections<'_>,
    report: &mut Report,
) -> Option<Vec<ListenerConfig>> {
    let raws = &setting.valid()?.0;
    check_addresses(raws, report);
    // Not straight into an option: that would stop at the first listener with a mistake.
    let built: Vec<_> = raws
        .iter()
        .map(|raw| listener(raw, sections, report))
        .collect();
    built.into_iter().collect()
}

fn check_addresses(raws: &[RawListener], report: &mut Report) {
    let mut lines = HashMap::new();
    for Located { location, value } in raws.iter().filter_map(|raw| raw.address.valid()) {
        // Each port 0 becomes a port of its own.
        if value.tcp().is_some_and(|address| address.port() == 0) {
            continue;
        }
        match lines.entry(value) {
            Entry::Vacant(entry) => {
                entry.insert(location.clone());
            }
            Entry::Occupied(line) => {
                let line = line.get().line_beside(location);
                let problem =
                    ValueProblem::new(format!("another listener has {value} already, on {line}"));
                report.mistake(
                    location,
                    problem.hint("give each listener an address of its own"),
                );
            }
        }
    }
}

fn listener(
    raw: &RawListener,
    sections: ListenerSections<'_>,
    report: &mut Report,
) -> Option<ListenerConfig> {
    if let (Setting::Valid(mode), Some(ListenAddress::Tcp(_))) =
        (&raw.socket_mode, raw.address.value())
    {
        let problem = ValueProblem::new("only a Unix socket has a mode");
        report.mistake(
            &mode.location,
            problem.hint("leave it out, or listen on unix:/path"),
        );
    }
    let authenticate = raw
        .authenticate
        .build(|names| listed(&names.0, sections.authenticators, report));
    let limits = uses(&raw.limits, sections.limits, report).map(|used| {
        for used in &used {
            if !raw.authenticate.is_present() {
                check_listener_limit(used, report);
            }
            if let Some(member) = body_member(&used.limit_use.limit) {
                let (limit, name) = (quote(&used.limit_use.limit.name), &member.name);
                let problem = ValueProblem::new(format!(
                    "limit {limit} counts by \"{name}\" of the body, which is read on routes only"
                ));
                report.mistake(
                    &used.location,
                    problem.hint("list the limit on the routes that it is for"),
                );
            }
            if let Some(param) = path_params(&used.limit_use.limit).next() {
                let limit = quote(&used.limit_use.limit.name);
                let problem = ValueProblem::new(format!(
                    "limit {limit} counts by {{{param}}}, which only a route's path has"
                ));
                report.mistake(
                    &used.location,
                    problem.hint("list this limit at the routes that have the parameter"),
                );
            }
        }
        used.into_iter().map(|used| used.limit_use).collect()
    });
    if let (Setting::Valid(redirect), true) = (&raw.redirect_to_https, raw.tls.is_present()) {
        let problem = ValueProblem::new("a listener with tls has nobody to redirect to HTTPS");
        report.mistake(
            &redirect.location,
            problem.hint("set it on the listener that speaks HTTP in the clear"),
        );
    }
    let hsts = raw.tls.valid().map_or(Some(None), |raw| {
        raw.hsts.build(|raw| tls::hsts(raw, report))
    });
    let tls = raw.tls.build(|raw| tls::tls(raw, report));
    let networks = network_rules(&raw.allow, &raw.deny, report);
    Some(ListenerConfig {
        server: server(raw)?,
        tls: tls?,
        hsts: hsts?,
        redirect_to_https: raw.redirect_to_https.build(|at| Some(at.value.0))?,
        networks: networks?,
        authenticate: authenticate?.unwrap_or_default(),
        limits: limits?,
    })
}

fn server(raw: &RawListener) -> Option<ListenerSpec> {
    Some(ListenerSpec {
        address: raw.address.value()?,
        socket_mode: raw
            .socket_mode
            .build(|at| Some(at.value.0))?
            .unwrap_or(DEFAULT_SOCKET_MODE),
        socket_name: raw.socket_name.build(|at| Some(at.value.0.clone()))?,
        proxy_protocol: raw.proxy_protocol.value()?,
        header_timeout: raw.header_timeout.value()?.0,
        keepalive_timeout: raw.keepalive_timeout.value()?.0,
        body_timeout: raw.body_timeout.value()?.0,
        min_body_rate: raw
            .min_body_rate
            .build(|at| Some(at.value.bytes_per_second()))?,
        max_header_bytes: usize::try_from(raw.max_header_size.value()?.0).ok()?,
        max_headers: raw.max_headers.value()?.count().get(),
        max_connections: raw.max_connections.value()?.count().get(),
        max_connections_per_client: raw
            .max_connections_per_client
            .build(|at| Some(u32::try_from(at.value.count().get()).unwrap_or(u32::MAX)))?,
    })
}

/// Hand-overs are asked for at a socket of their own.
pub fn check_handover(file: &RawConfig, report: &mut Report) {
    let listeners = file.listeners.valid().map_or(&[][..], |raws| &raws.0);
    let Some(handover) = file.handover.valid() else {
        return;
    };
    for Located { location, value } in listeners.iter().filter_map(|raw| raw.address.valid()) {
        if matches!(value, ListenAddress::Unix(path) if **path == *handover.value.0) {
            let problem = ValueProblem::new(format!("the socket of handover is at {value}, too"));
            report.mistake(location, problem.hint("give each socket a path of its own"));
        }
    }
}

//! `listeners`: the addresses that the gateway listens on, none of them twice.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use tollgate_limiter::limit::definition::Limit;

use crate::report::{Report, ValueProblem, quote};
use crate::scalar::address::{Cidr, SocketPath};
use crate::scalar::number::{BoundedDuration, ByteRate, ByteSize, DAY, WholeNumber};
use crate::scalar::text::DefinedName;
use crate::section::authenticator::definition::listed;
use crate::section::common::named::NamedSection;
use crate::section::common::networks::network_rules;
use crate::section::limit::uses::{
    CheckedUse, RawLimitUse, body_member, by_nobody, part_of_limit, path_params, uses,
};
use crate::section::listener::address::{HttpsPort, SocketMode};
use crate::section::listener::tls::{self, RawListenerTls};
use crate::settings::ListenerConfig;
use crate::yaml::collection::NonEmptyList;
use crate::yaml::decode::{Located, Setting};
use crate::yaml::record::record;
use tollgate_identity::spec::AuthenticatorSpec;
use tollgate_spec::listener::ListenerSpec;
use tollgate_wire::transport::listen_address::ListenAddress;

record! {
    /// An address to listen on, with bounds and timeouts for its clients.
    RawListener at location {
        /// Address and port, such as 0.0.0.0:8080 or [::]:8080, or unix:/path for a Unix socket.
        /// Port 0 takes any free one.
        required address: Located<ListenAddress>,
        /// The name by which routes list the listeners that serve them. Unique.
        optional name: Located<DefinedName>,
        /// Mode of a Unix socket, as chmod(1) takes it. Default: 0660, its owner and its group may
        /// connect.
        optional socket_mode: Located<SocketMode>,
        /// The name of its socket, where systemd opens several (FileDescriptorName=).
        optional socket_name: Located<DefinedName>,
        /// Speaks TLS: certificates and what clients must show. Without it, the listener speaks
        /// HTTP in the clear.
        optional tls: RawListenerTls,
        /// Connections begin with a header of the PROXY protocol, version 1 or 2. Only
        /// trusted_proxies may connect.
        default(false) proxy_protocol: Located<bool>,
        /// Sends every client to HTTPS: true, or the port of HTTPS if it is not 443. Not with tls.
        optional redirect_to_https: Located<HttpsPort>,
        /// Only clients in these networks are served; others get 403. Default: all.
        optional allow: NonEmptyList<Located<Cidr>>,
        /// Clients in these networks get 403, also those of allow.
        optional deny: NonEmptyList<Located<Cidr>>,
        /// The authenticators that are asked who the client is, on routes that do not say which,
        /// and where no route takes the request.
        optional authenticate: NonEmptyList<Located<DefinedName>>,
        /// Limits that count every request through this listener, before the route's own.
        optional limits: Vec<RawLimitUse>,
        /// From the first byte of a header section to its last; then 408.
        default("10s") header_timeout: Located<BoundedDuration<DAY>>,
        /// A connection without a request is closed after this.
        default("75s") keepalive_timeout: Located<BoundedDuration<DAY>>,
        /// Between two reads of a request body; then 408.
        default("30s") body_timeout: Located<BoundedDuration<DAY>>,
        /// Least rate of a body, such as 1KiB/s. Slower by body_timeout: 408 for a request; a
        /// response breaks off. Default: none.
        optional min_body_rate: Located<ByteRate<1_073_741_824>>,
        /// A request line and its header section; beyond it 414 or 431.
        default("64KiB") max_header_size: Located<ByteSize<8_192, 16_777_216>>,
        /// Header fields of a request; beyond it 431.
        default(100) max_headers: Located<WholeNumber<1, 10_000>>,
        /// Open connections, all workers together. Beyond it, those idle for longest are closed,
        /// and further ones wait.
        default(65_536) max_connections: Located<WholeNumber<1, 10_000_000>>,
        /// Open connections of one client: an IPv4 address, or an IPv6 /64. Further ones are reset.
        /// Default: no bound.
        optional max_connections_per_client: Located<WholeNumber<1, 10_000_000>>,
    }
}

/// The mode of a Unix socket that its owner and its group may connect to.
const DEFAULT_SOCKET_MODE: u32 = 0o660;

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
    check_names(raws, report);
    // Not straight into an option: that would stop at the first listener with a mistake.
    let built: Vec<_> = raws
        .iter()
        .map(|raw| listener(raw, sections, report))
        .collect();
    built.into_iter().collect()
}

fn check_addresses(raws: &[RawListener], report: &mut Report) {
    let mut lines = HashMap::new();
    for raw in raws {
        let Setting::Valid(Located { location, value }) = &raw.address else {
            continue;
        };
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

fn check_names(raws: &[RawListener], report: &mut Report) {
    let mut lines = HashMap::new();
    for raw in raws {
        let Setting::Valid(Located { location, value }) = &raw.name else {
            continue;
        };
        if let Some(line) = lines.insert(value.0.clone(), location) {
            let name = quote(&value.0);
            let line = line.line_beside(location);
            let problem =
                ValueProblem::new(format!("another listener is called {name}, on {line}"));
            report.mistake(
                location,
                problem.hint("give each listener a name of its own"),
            );
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
    let used = uses(&raw.limits, sections.limits, report);
    for used in used.iter().flatten() {
        if !raw.authenticate.is_present() {
            check_listener_limit(used, report);
        }
        check_parts(used, report);
    }
    if let Setting::Valid(redirect) = &raw.redirect_to_https
        && raw.tls.is_present()
    {
        let problem = ValueProblem::new("a listener with tls has nobody to redirect to HTTPS");
        report.mistake(
            &redirect.location,
            problem.hint("set it on the listener that speaks HTTP in the clear"),
        );
    }
    let hsts = tls::hsts(&raw.tls, report);
    let tls = raw.tls.build(|raw| tls::tls(raw, report));
    let networks = network_rules(&raw.allow, &raw.deny, report);
    Some(ListenerConfig {
        name: raw.name.build(|at| Some(at.value.0.clone()))?,
        server: server(raw)?,
        tls: tls?,
        hsts: hsts?,
        redirect_to_https: raw.redirect_to_https.build(|at| Some(at.value.0))?,
        networks: networks?,
        authenticate: authenticate?.unwrap_or_default(),
        limits: used?.into_iter().map(|used| used.limit_use).collect(),
    })
}

/// Reports a limit of a listener that counts by a part which only routes have.
fn check_parts(used: &CheckedUse, report: &mut Report) {
    let limit = &used.limit_use.limit;
    if let Some(member) = body_member(limit) {
        let problem = ValueProblem::new(format!(
            "limit {} counts by \"{}\" of the body, which is read on routes only",
            quote(&limit.name),
            member.name
        ));
        report.mistake(
            &used.location,
            problem.hint("list the limit on the routes that it is for"),
        );
    }
    if let Some(param) = path_params(limit).first() {
        let problem = ValueProblem::new(format!(
            "limit {} counts by {{{param}}}, which only a route's path has",
            quote(&limit.name)
        ));
        report.mistake(
            &used.location,
            problem.hint("list this limit at the routes that have the parameter"),
        );
    }
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

/// Reports a listener at the socket of `handover`: hand-overs have a socket of their own.
pub fn check_handover(
    setting: &Setting<NonEmptyList<RawListener>>,
    handover: &Setting<Located<SocketPath>>,
    report: &mut Report,
) {
    let listeners = setting.items();
    let Some(handover) = handover.valid() else {
        return;
    };
    for raw in listeners {
        let Setting::Valid(Located { location, value }) = &raw.address else {
            continue;
        };
        if matches!(value, ListenAddress::Unix(path) if **path == *handover.value.0) {
            let problem = ValueProblem::new(format!("the socket of handover is at {value}, too"));
            report.mistake(location, problem.hint("give each socket a path of its own"));
        }
    }
}

/// Reports a limit of a listener that counts by an identity, where requests have none: all of them
/// would share a bucket.
pub fn check_listener_limit(used: &CheckedUse, report: &mut Report) {
    if let Some(part) = part_of_limit(&used.limit_use.limit) {
        let hint = "add \"authenticate\" to the listener, or list the limit on routes that have it";
        report.mistake(
            &used.location,
            by_nobody(used, &part, "this listener").hint(hint),
        );
    }
}

//! The admin server: where it is, and who may reach it.
//!
//! Guarantees that nobody but processes of this machine reaches an admin server without a login,
//! and that no password goes over a network in the clear.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use super::{openid, tls};
use crate::config::file::config::RawConfig;
use crate::config::file::listener::{RawAdmin, RawAdminServer};
use crate::config::report::{Location, Report, ValueProblem};
use crate::config::settings::AdminSpec;
use crate::config::yaml::decode::{Located, Setting};
use crate::identity::openid::spec::is_this_machine;
use crate::route::{HostMatch, Route};

/// The address of the admin server when the file has none.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9901);

/// The admin server. `Some(None)`: turned off. `None`: a mistake was reported.
pub fn admin(setting: &Setting<RawAdmin>, report: &mut Report) -> Option<Option<AdminSpec>> {
    match setting {
        Setting::Absent => Some(Some(AdminSpec::at(DEFAULT_ADDRESS))),
        Setting::Invalid => None,
        Setting::Valid(RawAdmin::Off) => Some(None),
        Setting::Valid(RawAdmin::On(raw)) => server(raw, report).map(Some),
    }
}

fn server(raw: &RawAdminServer, report: &mut Report) -> Option<AdminSpec> {
    let hsts = raw.tls.valid().map_or(Some(None), |raw| {
        raw.hsts.build(|raw| tls::hsts(raw, report))
    });
    let tls = raw.tls.build(|raw| tls::tls(raw, report));
    let openid = raw.openid_connect.build(|raw| openid::sign_in(raw, report));
    Some(AdminSpec {
        address: raw.address.value()?,
        probe_address: raw.probe_address.build(|at| Some(at.value))?,
        tls: tls?,
        hsts: hsts?,
        public_url: raw.public_url.build(|at| Some(at.value.clone()))?,
        openid: openid?,
    })
}

/// The address of the admin server, or of its probes. `None`: the file does not say where it is.
pub fn probed_address(setting: &Setting<RawAdmin>) -> Option<Option<ProbedAddress>> {
    let clear = |address| ProbedAddress {
        address,
        needs_tls: false,
    };
    match setting {
        Setting::Absent => Some(Some(clear(DEFAULT_ADDRESS))),
        Setting::Invalid => None,
        Setting::Valid(RawAdmin::Off) => Some(None),
        Setting::Valid(RawAdmin::On(raw)) => match raw.probe_address.build(|at| Some(at.value))? {
            Some(address) => Some(Some(clear(address))),
            None => Some(Some(ProbedAddress {
                address: raw.address.value()?,
                needs_tls: raw.tls.is_present(),
            })),
        },
    }
}

/// The place that answers `/readyz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbedAddress {
    pub address: SocketAddr,
    /// Whether it speaks TLS alone.
    pub needs_tls: bool,
}

/// Holds the addresses of the admin server against each other, those of listeners, and who may
/// reach them.
pub fn check(file: &RawConfig, admin: Option<&AdminSpec>, report: &mut Report) {
    let Some(admin) = admin else { return };
    let raw = match &file.admin {
        Setting::Valid(RawAdmin::On(raw)) => Some(&**raw),
        _ => None,
    };
    let location = raw.and_then(|raw| Some(&raw.address.valid()?.location));
    check_port(file, (admin.address, location), report);
    if let Some(Located { location, value }) = raw.and_then(|raw| raw.probe_address.valid()) {
        check_port(file, (*value, Some(location)), report);
        if overlap(*value, admin.address) {
            let problem = ValueProblem::new(format!(
                "probe_address ({value}) and address ({}) overlap",
                admin.address
            ));
            report.mistake(
                location,
                problem.hint("give probes and metrics a port of their own"),
            );
        }
    }
    let has_accounts = file.policies.is_present();
    if let (Some(at), false) = (raw.and_then(|raw| raw.public_url.valid()), has_accounts) {
        let problem =
            ValueProblem::new("browsers elsewhere would reach an admin server without accounts");
        report.mistake(
            &at.location,
            problem.hint("keep accounts in a database of policies, or leave public_url out"),
        );
    }
    if let Some(Located { location, value }) = raw.and_then(|raw| raw.public_url.valid())
        && !value.is_secure
        && !is_this_machine(value.authority.host())
    {
        let problem = ValueProblem::new(format!(
            "passwords and tokens would go to {value} in the clear"
        ));
        report.mistake(
            location,
            problem.hint("write https://…; http:// is for localhost or a loopback address"),
        );
    }
    if let (Some(openid), false) = (raw.and_then(|raw| raw.openid_connect.valid()), has_accounts) {
        let problem = ValueProblem::new("there are no accounts that people could sign in to");
        report.mistake(
            &openid.location,
            problem.hint("keep accounts in a database of policies"),
        );
    }
    if let Some(openid) = raw.and_then(|raw| raw.openid_connect.valid())
        && admin.public_url.is_none()
        && !admin.address.ip().to_canonical().is_loopback()
    {
        let problem =
            ValueProblem::new("the provider could not send browsers back: there is no public_url");
        report.mistake(
            &openid.location,
            problem.hint("write where browsers find the console: public_url: https://…"),
        );
    }
    if let Some(location) = location {
        check_reach(admin, (location, has_accounts), report);
    }
    if let Some(at) = raw.and_then(|raw| raw.public_url.valid())
        && at.value.is_secure
        && admin.tls.is_none()
        && !admin.address.ip().to_canonical().is_loopback()
        && !file.trusted_proxies.is_present()
    {
        let problem = ValueProblem::new(
            "what a proxy on another machine brings is refused: it could be anybody in the clear",
        );
        report.warning(
            &at.location,
            problem.hint("name the proxy in front: trusted_proxies: [10.0.0.7]"),
        );
    }
}

/// Warns of a console whose host is also a route's: browsers send a cookie to all ports of its host
/// (RFC 6265 §8.5), so upstreams of the route get those of the console's sessions.
pub fn warn_of_shared_host(file: &RawConfig, routes: &[Arc<Route>], report: &mut Report) {
    let Setting::Valid(RawAdmin::On(raw)) = &file.admin else {
        return;
    };
    let Some(Located { location, value }) = raw.public_url.valid() else {
        return;
    };
    let host = value.authority.host().to_ascii_lowercase();
    let takes = |taken: &HostMatch| match taken {
        HostMatch::Any => false,
        HostMatch::Exact(taken) => **taken == *host,
        HostMatch::Suffix(suffix) => host.ends_with(&**suffix),
    };
    if let Some(route) = routes
        .iter()
        .find(|route| route.matches.hosts.iter().any(takes))
    {
        let problem = ValueProblem::new(format!(
            "the route \"{}\" takes requests for {host}, too: browsers send the cookies of the console's sessions along \
             with them",
            route.name
        ));
        report.warning(
            location,
            problem.hint("give the console a host name of its own: cookies ignore ports"),
        );
    }
}

/// An admin server that more than this machine reaches has a login, which is not listened to on its
/// way.
fn check_reach(
    admin: &AdminSpec,
    (location, has_accounts): (&Location, bool),
    report: &mut Report,
) {
    let address = admin.address;
    if address.ip().to_canonical().is_loopback() {
        return;
    }
    if !has_accounts {
        let problem = ValueProblem::new(format!(
            "whoever reaches {address} may reset buckets: there are no accounts"
        ));
        report.mistake(
            location,
            problem.hint(
                "write 127.0.0.1:9901, and probe_address: 0.0.0.0:9902 for probes and metrics; or keep accounts in a \
                 database of policies",
            ),
        );
    } else if !admin.is_secure() {
        let problem = ValueProblem::new(format!(
            "passwords and tokens would reach {address} in the clear"
        ));
        report.mistake(
            location,
            problem
                .hint("add tls, or public_url: https://… where a proxy in front speaks TLS, or write 127.0.0.1:9901"),
        );
    }
}

/// A port of the admin server is no listener's: on a wildcard address the one would take the
/// other's connections.
fn check_port(
    file: &RawConfig,
    (admin, location): (SocketAddr, Option<&Location>),
    report: &mut Report,
) {
    let listeners = file.listeners.valid().map_or(&[][..], |raws| &raws.0);
    let mut addresses = listeners.iter().filter_map(|raw| raw.address.valid());
    let Some(listener) = addresses.find(|at| {
        at.value
            .tcp()
            .is_some_and(|address| overlap(address, admin))
    }) else {
        return;
    };
    let location = location.unwrap_or(&listener.location);
    let problem = ValueProblem::new(format!(
        "the admin server ({admin}) and a listener ({}) overlap",
        listener.value
    ));
    report.mistake(
        location,
        problem.hint("give the admin server a port of its own, or turn it off: admin: off"),
    );
}

fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let wildcard = a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() != 0
        && a.port() == b.port()
        && (a.ip() == b.ip() || wildcard && a.is_ipv4() == b.is_ipv4())
}

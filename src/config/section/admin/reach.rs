//! The reach of the admin server: processes of this machine, or people with a login.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::config::report::{Location, Report, ValueProblem};
use crate::config::section::admin::server::RawAdmin;
use crate::config::section::listener::definition::RawListener;
use crate::config::settings::AdminSpec;
use crate::config::yaml::collection::NonEmptyList;
use crate::config::yaml::decode::{Located, Setting};
use crate::identity::openid::spec::is_this_machine;
use crate::route::{HostMatch, Route};

/// The rest of the file, as far as it decides who may reach the admin server.
pub struct AdminSurroundings<'a> {
    pub listeners: &'a Setting<NonEmptyList<RawListener>>,
    /// Whether people have accounts: they are in the database of policies.
    pub has_accounts: bool,
    /// Whether the file names proxies that are trusted.
    pub has_proxies: bool,
}

impl AdminSurroundings<'_> {
    /// Compares the addresses of the admin server with one another and with those of listeners, and
    /// judges who may reach them.
    pub fn check(&self, setting: &Setting<RawAdmin>, admin: &AdminSpec, report: &mut Report) {
        let raw = match setting {
            Setting::Valid(RawAdmin::On(raw)) => Some(&**raw),
            Setting::Valid(RawAdmin::Off) | Setting::Absent | Setting::Invalid => None,
        };
        let location = raw.and_then(|raw| Some(&raw.address.valid()?.location));
        self.check_port(admin.address, location, report);
        if let Some(Located { location, value }) = raw.and_then(|raw| raw.probe_address.valid()) {
            self.check_port(*value, Some(location), report);
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
        if let Some(at) = raw.and_then(|raw| raw.public_url.valid())
            && !self.has_accounts
        {
            let problem = ValueProblem::new(
                "browsers elsewhere would reach an admin server without accounts",
            );
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
        if let Some(openid) = raw.and_then(|raw| raw.openid_connect.valid())
            && !self.has_accounts
        {
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
            let problem = ValueProblem::new(
                "the provider could not send browsers back: there is no public_url",
            );
            report.mistake(
                &openid.location,
                problem.hint("write where browsers find the console: public_url: https://…"),
            );
        }
        if let Some(location) = location {
            self.check_reach(admin, location, report);
        }
        if let Some(at) = raw.and_then(|raw| raw.public_url.valid())
            && at.value.is_secure
            && admin.tls.is_none()
            && !admin.address.ip().to_canonical().is_loopback()
            && !self.has_proxies
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

    /// An admin server that more than this machine reaches has a login, which is not listened to on its
    /// way.
    fn check_reach(&self, admin: &AdminSpec, location: &Location, report: &mut Report) {
        let address = admin.address;
        if address.ip().to_canonical().is_loopback() {
            return;
        }
        if !self.has_accounts {
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
    fn check_port(&self, admin: SocketAddr, location: Option<&Location>, report: &mut Report) {
        let listeners = self.listeners.items();
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
}

/// Warns of a console whose host is also a route's: browsers send a cookie to all ports of its host
/// (RFC 6265 §8.5), so upstreams of the route get those of the console's sessions.
pub fn warn_of_shared_host(
    setting: &Setting<RawAdmin>,
    routes: &[Arc<Route>],
    report: &mut Report,
) {
    let Setting::Valid(RawAdmin::On(raw)) = setting else {
        return;
    };
    let Some(Located { location, value }) = raw.public_url.valid() else {
        return;
    };
    let host = value.authority.host().to_ascii_lowercase();
    if let Some(route) = routes
        .iter()
        .find(|route| names_host(&route.matches.hosts, &host))
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

/// Whether `host` is one of those that are named, or below one of them.
fn names_host(hosts: &[HostMatch], host: &str) -> bool {
    hosts.iter().any(|taken| match taken {
        HostMatch::Any => false,
        HostMatch::Exact(taken) => **taken == *host,
        HostMatch::Suffix(suffix) => host.ends_with(&**suffix),
    })
}

fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let wildcard = a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() != 0
        && a.port() == b.port()
        && (a.ip() == b.ip() || wildcard && a.is_ipv4() == b.is_ipv4())
}

//! The reach of the admin server: processes of this machine, or people with a login.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::report::{Location, Report, ValueProblem};
use crate::section::admin::server::{RawAdmin, RawAdminServer};
use crate::section::listener::definition::RawListener;
use crate::settings::{AdminSpec, PublicUrl};
use crate::yaml::collection::NonEmptyList;
use crate::yaml::decode::{Located, Setting};
use tollgate_identity::openid::spec::is_this_machine;
use tollgate_spec::route::{HostMatch, Route};
use tollgate_wire::transport::address::{is_loopback, is_wildcard};

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
        match setting {
            Setting::Valid(RawAdmin::On(raw)) => {
                self.check_addresses(raw, admin, report);
                self.check_public_url(raw, report);
                self.check_sign_in(raw, admin, report);
                if let Some(location) = raw.address.location() {
                    self.check_reach(admin, location, report);
                }
                self.warn_of_unknown_proxy(raw, admin, report);
            }
            Setting::Valid(RawAdmin::Off) | Setting::Absent | Setting::Invalid => {
                self.check_port(admin.address, None, report);
            }
        }
    }

    fn check_addresses(&self, raw: &RawAdminServer, admin: &AdminSpec, report: &mut Report) {
        self.check_port(admin.address, raw.address.location(), report);
        let Setting::Valid(Located { location, value }) = &raw.probe_address else {
            return;
        };
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

    fn check_public_url(&self, raw: &RawAdminServer, report: &mut Report) {
        let Setting::Valid(Located { location, value }) = &raw.public_url else {
            return;
        };
        if !self.has_accounts {
            let problem = ValueProblem::new(
                "browsers elsewhere would reach an admin server without accounts",
            );
            report.mistake(
                location,
                problem.hint("keep accounts in a database of policies, or leave public_url out"),
            );
        }
        if !value.is_secure && !is_this_machine(value.authority.host()) {
            let problem = ValueProblem::new(format!(
                "passwords and tokens would go to {value} in the clear"
            ));
            report.mistake(
                location,
                problem.hint("write https://…; http:// is for localhost or a loopback address"),
            );
        }
    }

    fn check_sign_in(&self, raw: &RawAdminServer, admin: &AdminSpec, report: &mut Report) {
        let Setting::Valid(openid) = &raw.openid_connect else {
            return;
        };
        if !self.has_accounts {
            let problem = ValueProblem::new("there are no accounts that people could sign in to");
            report.mistake(
                &openid.location,
                problem.hint("keep accounts in a database of policies"),
            );
        }
        if admin.public_url.is_none() && !is_loopback(admin.address.ip()) {
            let problem = ValueProblem::new(
                "the provider could not send browsers back: there is no public_url",
            );
            report.mistake(
                &openid.location,
                problem.hint("write where browsers find the console: public_url: https://…"),
            );
        }
    }

    fn warn_of_unknown_proxy(&self, raw: &RawAdminServer, admin: &AdminSpec, report: &mut Report) {
        let Setting::Valid(Located { location, value }) = &raw.public_url else {
            return;
        };
        if !value.is_secure
            || admin.tls.is_some()
            || is_loopback(admin.address.ip())
            || self.has_proxies
        {
            return;
        }
        let problem = ValueProblem::new(
            "what a proxy on another machine brings is refused: it could be anybody in the clear",
        );
        report.warning(
            location,
            problem.hint("name the proxy in front: trusted_proxies: [10.0.0.7]"),
        );
    }

    /// Reports an admin server that other machines reach, without a login or with one in the clear.
    fn check_reach(&self, admin: &AdminSpec, location: &Location, report: &mut Report) {
        let address = admin.address;
        if is_loopback(admin.address.ip()) {
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

    /// Reports a port of the admin server that a listener has: on a wildcard address the one would
    /// take the other's connections.
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
    public_url: &Located<PublicUrl>,
    routes: &[Arc<Route>],
    report: &mut Report,
) {
    let Located { location, value } = public_url;
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
    let wildcard = is_wildcard(a.ip()) || is_wildcard(b.ip());
    a.port() != 0
        && a.port() == b.port()
        && (a.ip() == b.ip() || wildcard && a.is_ipv4() == b.is_ipv4())
}

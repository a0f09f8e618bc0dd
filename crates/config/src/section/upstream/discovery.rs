//! `discover` of an upstream: endpoints that are found by DNS or in a file.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::report::{Location, Report, ValueProblem, quote};
use crate::scalar::address::is_dns_name;
use crate::scalar::number::{BoundedDuration, DAY, WholeNumber};
use crate::scalar::path::FilePath;
use crate::section::upstream::endpoint::RawEndpoint;
use crate::yaml::collection::NonEmptyList;
use crate::yaml::decode::{Located, Scalar, Setting, only_one};
use crate::yaml::record::record;
use crate::yaml::words::words;
use tollgate_proxy::upstream::discovery::{DiscoverySpec, DnsQuestion, DnsSpec};
use tollgate_proxy::upstream::url::EndpointScheme;

record! {
    /// How endpoints are found. Exactly one of dns, srv and file.
    RawDiscover at location {
        /// Each address of this name is an endpoint.
        optional dns: Located<DnsName>,
        /// Each server of this service is an endpoint: _http._tcp.orders.example.
        optional srv: Located<ServiceName>,
        /// The list of endpoints is in this file, which is read again when it changes.
        optional file: Located<FilePath>,
        /// The port of the addresses. Default: the scheme's.
        optional port: Located<WholeNumber<1, 65_535>>,
        /// How they are spoken to: http, https or h2c. Default: http.
        optional scheme: Located<EndpointScheme>,
        /// An answer is used for no less, whatever its TTL says. Default: 1s.
        optional min_ttl: Located<BoundedDuration<DAY, 100>>,
        /// An answer is used for no more, whatever its TTL says. Default: 60s.
        optional max_ttl: Located<BoundedDuration<DAY, 100>>,
        /// How long the last list is used while DNS says that there is none. Default: 0s.
        optional keep_on_empty: Located<BoundedDuration<DAY, 0>>,
        /// How long the last list is used while lookups fail. Default: for ever.
        optional keep_on_failure: Located<BoundedDuration<DAY, 0>>,
        /// The DNS servers that are asked. Default: those of /etc/resolv.conf, with its search
        /// domains.
        optional resolvers: NonEmptyList<Located<ResolverAddress>>,
    }
}

record! {
    /// Where the endpoints of an upstream are: listed, or found.
    RawEndpointSources {
        /// Where they are: http://host:port, https://host:port, h2c://host:port, or unix:/path for
        /// a socket of this machine. {url: …, weight: 2, backup: true} says more.
        optional endpoints: NonEmptyList<RawEndpoint>,
        /// Endpoints that are found by DNS or in a file, in place of endpoints.
        optional discover: RawDiscover,
    }
}

words! {
    EndpointScheme: "a scheme" { "http" => Http, "https" => Https, "h2c" => H2c }
}

/// The name of a host in DNS.
#[derive(Clone)]
pub struct DnsName(pub Arc<str>);

/// The name of a service in DNS (RFC 2782).
#[derive(Clone)]
pub struct ServiceName(pub Arc<str>);

/// The address of a DNS server, with port 53 unless another is given.
#[derive(Clone, Copy)]
pub struct ResolverAddress(pub SocketAddr);

impl Scalar for DnsName {
    const WHAT: &'static str = "a name in DNS";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let problem = ValueProblem::new(format!("{} is not a name in DNS", quote(text)));
        if text.parse::<IpAddr>().is_ok() {
            return Err(problem.hint("write an address under \"endpoints\""));
        }
        if !is_dns_name(text) {
            return Err(problem.hint(
                "write a host such as orders.prod.svc.cluster.local, without scheme and port",
            ));
        }
        Ok(Self(text.into()))
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

impl Scalar for ServiceName {
    const WHAT: &'static str = "the name of a service";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let mut labels = text.split('.');
        let service = labels.next().unwrap_or_default();
        let protocol = labels.next().unwrap_or_default();
        let has_domain = labels.next().is_some();
        let is_service = is_service_label(service) && is_service_label(protocol) && has_domain;
        if !is_service || !is_dns_name(text) {
            let problem = ValueProblem::new(format!(
                "{} is not the name of a service in DNS",
                quote(text)
            ));
            return Err(
                problem.hint("write _http._tcp.orders.example: service, protocol and domain")
            );
        }
        Ok(Self(text.into()))
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

/// Whether a label is that of a service or of its protocol (RFC 2782).
fn is_service_label(label: &str) -> bool {
    label.len() > 1 && label.starts_with('_')
}

impl Scalar for ResolverAddress {
    const WHAT: &'static str = "the address of a DNS server";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let address = match text.parse::<IpAddr>() {
            Ok(ip) => Some(SocketAddr::new(ip, 53)),
            Err(_) => text.parse().ok(),
        };
        match address {
            Some(address) if address.port() > 0 => Ok(Self(address)),
            Some(_) | None => {
                let problem = ValueProblem::new(format!(
                    "{} is not the address of a DNS server",
                    quote(text)
                ));
                Err(problem.hint("write 10.96.0.10, or 10.96.0.10:5353"))
            }
        }
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

const MIN_TTL: Duration = Duration::from_secs(1);

/// A minute: TTLs of a day would leave endpoints in use that have long been gone.
const MAX_TTL: Duration = Duration::from_secs(60);

/// How endpoints are found. `None`: a mistake was reported.
pub fn build(raw: &RawDiscover, report: &mut Report) -> Option<DiscoverySpec> {
    let source = source(raw, report);
    let dns = dns_settings(raw);
    if let Setting::Valid(at) = &raw.port
        && !raw.dns.is_present()
    {
        let problem = ValueProblem::new("\"port\" is for endpoints that \"dns\" finds");
        report.mistake(
            &at.location,
            problem.hint("remove it: services and files say the ports themselves"),
        );
        return None;
    }
    if let Some(location) = first_dns_key(raw)
        && raw.file.is_present()
    {
        let problem = ValueProblem::new("a file of endpoints is not looked up in DNS");
        report.mistake(location, problem.hint("keep \"file\" alone"));
        return None;
    }
    let question = match source? {
        EndpointSource::Dns(question) => question,
        EndpointSource::File(path) => return Some(DiscoverySpec::File(path)),
    };
    let spec = DnsSpec { question, ..dns? };
    if let Setting::Valid(at) = &raw.min_ttl
        && spec.min_ttl > spec.max_ttl
    {
        let problem = ValueProblem::new("\"min_ttl\" is longer than \"max_ttl\"");
        report.mistake(
            &at.location,
            problem.hint("give \"max_ttl\" too, or a shorter one"),
        );
        return None;
    }
    Some(DiscoverySpec::Dns(spec))
}

impl RawEndpointSources {
    /// The protocol of endpoints that are found by DNS, and where that is said.
    pub fn dns_scheme(&self) -> Option<(EndpointScheme, &Location)> {
        let discover = self.discover.valid()?;
        if discover.file.is_present() {
            return None;
        }
        let location = discover.scheme.location_or(&discover.location);
        Some((scheme(discover), location))
    }

    /// The protocols of its endpoints, as far as this file says, and where it does.
    pub fn schemes(&self) -> impl Iterator<Item = (EndpointScheme, &Location)> {
        let endpoints = self.endpoints.items();
        endpoints
            .iter()
            .map(|at| (at.url.value.scheme, &at.url.location))
            .chain(self.dns_scheme())
    }

    /// The name of all endpoints that are found by DNS: that of the host, or the domain of the
    /// service. The name of a service's server comes from DNS, which anybody on the way can change
    /// (RFC 6125 §1.7.2).
    pub fn dns_name(&self) -> Option<&str> {
        let discover = self.discover.valid()?;
        let name = match (discover.dns.valid(), discover.srv.valid()) {
            (Some(host), _) => &*host.value.0,
            (None, Some(service)) => service.value.0.splitn(3, '.').nth(2)?,
            (None, None) => return None,
        };
        Some(name.trim_end_matches('.'))
    }

    /// Whether endpoints are in a file, with any protocol.
    pub fn is_in_file(&self) -> bool {
        match &self.discover {
            Setting::Valid(discover) => discover.file.is_present(),
            Setting::Absent | Setting::Invalid => false,
        }
    }

    /// An upstream has endpoints or finds them. `None`: a mistake was reported.
    pub fn check(&self, location: &Location, report: &mut Report) -> Option<()> {
        match (&self.endpoints, &self.discover) {
            (Setting::Absent, Setting::Absent) => {
                let problem = ValueProblem::new("\"endpoints\" is missing");
                let hint = "give \"endpoints\", or \"discover\" for those that are found by DNS or in a file";
                report.mistake(location, problem.hint(hint));
                None
            }
            (Setting::Absent, _) | (_, Setting::Absent) => Some(()),
            (_, discover) => {
                if let Some(discover) = discover.valid() {
                    let problem = ValueProblem::new(
                        "an upstream has \"endpoints\" or finds them by \"discover\"",
                    );
                    report.mistake(&discover.location, problem.hint("keep one of the two"));
                }
                None
            }
        }
    }
}

fn scheme(raw: &RawDiscover) -> EndpointScheme {
    raw.scheme.value().unwrap_or(EndpointScheme::Http)
}

/// The way in which endpoints are found.
enum EndpointSource {
    Dns(DnsQuestion),
    File(PathBuf),
}

/// The question to DNS, or the file.
fn source(raw: &RawDiscover, report: &mut Report) -> Option<EndpointSource> {
    let port = match raw.port.value() {
        Some(port) => u16::try_from(port.0).ok()?,
        None => scheme(raw).default_port(),
    };
    let options = [
        raw.dns.build(|at| {
            let name = at.value.0.clone();
            Some(EndpointSource::Dns(DnsQuestion::Addresses { name, port }))
        }),
        raw.srv.build(|at| {
            let name = at.value.0.clone();
            Some(EndpointSource::Dns(DnsQuestion::Services { name }))
        }),
        raw.file
            .build(|at| Some(EndpointSource::File(at.value.0.clone()))),
    ];
    only_one(options).unwrap_or_else(|_| {
        let problem = ValueProblem::new("endpoints are found by exactly one of dns, srv, file");
        let hint = "write {dns: orders.internal, port: 8080}, {srv: _http._tcp.orders.example} or {file: /etc/tollgate/orders.yaml}";
        report.mistake(&raw.location, problem.hint(hint));
        None
    })
}

/// The settings of lookups, with a question that is still to be replaced.
fn dns_settings(raw: &RawDiscover) -> Option<DnsSpec> {
    let max_ttl = duration(&raw.max_ttl)?.unwrap_or(MAX_TTL);
    Some(DnsSpec {
        question: DnsQuestion::Services { name: "".into() },
        scheme: scheme(raw),
        min_ttl: duration(&raw.min_ttl)?.unwrap_or(MIN_TTL.min(max_ttl)),
        max_ttl,
        keep_on_empty: duration(&raw.keep_on_empty)?.unwrap_or_default(),
        keep_on_failure: duration(&raw.keep_on_failure)?,
        resolvers: raw.resolvers.items().iter().map(|at| at.value.0).collect(),
    })
}

fn duration<const MIN_MS: u64>(
    setting: &Setting<Located<BoundedDuration<DAY, MIN_MS>>>,
) -> Option<Option<Duration>> {
    setting.build(|at| Some(at.value.0))
}

/// The location of the first key that belongs to DNS.
fn first_dns_key(raw: &RawDiscover) -> Option<&Location> {
    raw.scheme
        .location()
        .or(raw.min_ttl.location())
        .or(raw.max_ttl.location())
        .or(raw.keep_on_empty.location())
        .or(raw.keep_on_failure.location())
        .or(raw.resolvers.items().first().map(|at| &at.location))
}

//! How an upstream's endpoints are found, and the protocol that they speak.

use std::time::Duration;

use crate::config::file::discover::RawDiscover;
use crate::config::file::upstream::RawUpstream;
use crate::config::report::{Location, Report, ValueProblem};
use crate::config::yaml::decode::{Setting, only_one};
use crate::upstream::discovery::{DiscoverySpec, DnsQuestion, DnsSpec};
use crate::upstream::url::EndpointScheme;

const MIN_TTL: Duration = Duration::from_secs(1);

/// A minute: TTLs of a day would leave endpoints in use that have long been gone.
const MAX_TTL: Duration = Duration::from_secs(60);

/// How endpoints are found. `None`: a mistake was reported.
pub fn build(raw: &RawDiscover, report: &mut Report) -> Option<DiscoverySpec> {
    let source = source(raw, report);
    let dns = dns_settings(raw);
    if let Some(at) = raw.port.valid().filter(|_| !raw.dns.is_present()) {
        let problem = ValueProblem::new("\"port\" is for endpoints that \"dns\" finds");
        report.mistake(
            &at.location,
            problem.hint("remove it: services and files say the ports themselves"),
        );
        return None;
    }
    if let Some(at) = dns_keys(raw)
        .into_iter()
        .flatten()
        .next()
        .filter(|_| raw.file.is_present())
    {
        let problem = ValueProblem::new("a file of endpoints is not looked up in DNS");
        report.mistake(at, problem.hint("keep \"file\" alone"));
        return None;
    }
    let (question, file) = source?;
    let Some(question) = question else {
        return file;
    };
    let spec = DnsSpec { question, ..dns? };
    if let Some(at) = raw.min_ttl.valid().filter(|_| spec.min_ttl > spec.max_ttl) {
        let problem = ValueProblem::new("\"min_ttl\" is longer than \"max_ttl\"");
        report.mistake(
            &at.location,
            problem.hint("give \"max_ttl\" too, or a shorter one"),
        );
        return None;
    }
    Some(DiscoverySpec::Dns(spec))
}

/// The protocol of endpoints that are found by DNS, and where that is said.
pub fn scheme(raw: &RawUpstream) -> Option<(EndpointScheme, &Location)> {
    let discover = raw
        .discover
        .valid()
        .filter(|discover| !discover.file.is_present())?;
    let at = discover.scheme.valid();
    Some((
        scheme_of(discover),
        at.map_or(&discover.location, |at| &at.location),
    ))
}

/// The protocols of its endpoints, as far as this file says, and where it does.
pub fn schemes(raw: &RawUpstream) -> impl Iterator<Item = (EndpointScheme, &Location)> {
    let endpoints = raw
        .endpoints
        .valid()
        .map_or(&[][..], |endpoints| &endpoints.0);
    endpoints
        .iter()
        .map(|at| (at.url.value.scheme, &at.url.location))
        .chain(scheme(raw))
}

/// The name of all endpoints that are found by DNS: that of the host, or the domain of the service.
/// The name of a service's server is said by DNS alone, which anybody on the way can change (RFC
/// 6125 §1.7.2).
pub fn name(raw: &RawUpstream) -> Option<&str> {
    let discover = raw.discover.valid()?;
    let dns = discover.dns.valid().map(|at| &*at.value.0);
    let of_service = || {
        discover
            .srv
            .valid()
            .and_then(|at| at.value.0.splitn(3, '.').nth(2))
    };
    dns.or_else(of_service)
        .map(|name| name.trim_end_matches('.'))
}

/// Whether endpoints are in a file, with any protocol.
pub fn is_file(raw: &RawUpstream) -> bool {
    raw.discover
        .valid()
        .is_some_and(|discover| discover.file.is_present())
}

fn scheme_of(raw: &RawDiscover) -> EndpointScheme {
    raw.scheme.value().unwrap_or(EndpointScheme::Http)
}

type Source = (Option<DnsQuestion>, Option<DiscoverySpec>);

/// The question to DNS, or the file.
fn source(raw: &RawDiscover, report: &mut Report) -> Option<Source> {
    let port = raw
        .port
        .valid()
        .and_then(|at| u16::try_from(at.value.0).ok());
    let port = port.unwrap_or(scheme_of(raw).default_port());
    let options = [
        raw.dns.build(|at| {
            Some((
                Some(DnsQuestion::Addresses {
                    name: at.value.0.clone(),
                    port,
                }),
                None,
            ))
        }),
        raw.srv.build(|at| {
            Some((
                Some(DnsQuestion::Services {
                    name: at.value.0.clone(),
                }),
                None,
            ))
        }),
        raw.file
            .build(|at| Some((None, Some(DiscoverySpec::File(at.value.0.clone()))))),
    ];
    only_one(options).unwrap_or_else(|_| {
        let problem = ValueProblem::new("endpoints are found by exactly one of dns, srv, file");
        let hint = "write {dns: orders.internal, port: 8080}, {srv: _http._tcp.orders.example} or {file: /etc/tollgate/orders.yaml}";
        report.mistake(&raw.location, problem.hint(hint));
        None
    })
}

/// All but the question.
fn dns_settings(raw: &RawDiscover) -> Option<DnsSpec> {
    let max_ttl = raw.max_ttl.build(|at| Some(at.value.0))?.unwrap_or(MAX_TTL);
    Some(DnsSpec {
        question: DnsQuestion::Services { name: "".into() },
        scheme: scheme_of(raw),
        min_ttl: raw
            .min_ttl
            .build(|at| Some(at.value.0))?
            .unwrap_or(MIN_TTL.min(max_ttl)),
        max_ttl,
        keep_on_empty: raw
            .keep_on_empty
            .build(|at| Some(at.value.0))?
            .unwrap_or_default(),
        keep_on_failure: raw.keep_on_failure.build(|at| Some(at.value.0))?,
        resolvers: raw
            .resolvers
            .build(|list| Some(list.0.iter().map(|at| at.value.0).collect()))?
            .unwrap_or_default(),
    })
}

/// The places of the keys that belong to DNS.
fn dns_keys(raw: &RawDiscover) -> [Option<&Location>; 6] {
    [
        raw.scheme.valid().map(|at| &at.location),
        raw.min_ttl.valid().map(|at| &at.location),
        raw.max_ttl.valid().map(|at| &at.location),
        raw.keep_on_empty.valid().map(|at| &at.location),
        raw.keep_on_failure.valid().map(|at| &at.location),
        raw.resolvers
            .valid()
            .and_then(|list| list.0.first())
            .map(|at| &at.location),
    ]
}

/// An upstream has endpoints or finds them. `None`: a mistake was reported.
pub fn check_source(raw: &RawUpstream, report: &mut Report) -> Option<()> {
    match (&raw.endpoints, &raw.discover) {
        (Setting::Absent, Setting::Absent) => {
            let problem = ValueProblem::new("\"endpoints\" is missing");
            let hint =
                "give \"endpoints\", or \"discover\" for those that are found by DNS or in a file";
            report.mistake(&raw.location, problem.hint(hint));
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

//! `discover` of an upstream: endpoints that are found by DNS or in a file.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::scalar::number::{BoundedDuration, DAY, WholeNumber};
use super::scalar::path::FilePath;
use crate::config::report::{ValueProblem, quote};
use crate::config::yaml::collection::NonEmptyList;
use crate::config::yaml::decode::{Located, Scalar};
use crate::config::yaml::record::record;
use crate::config::yaml::words::words;
use crate::upstream::url::EndpointScheme;

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
        let problem = |hint| {
            Err(ValueProblem::new(format!("{} is not a name in DNS", quote(text))).hint(hint))
        };
        if text.parse::<std::net::IpAddr>().is_ok() {
            return problem("write an address under \"endpoints\"");
        }
        if !is_dns_name(text) {
            return problem(
                "write a host such as orders.prod.svc.cluster.local, without scheme and port",
            );
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
        let is_service = |label: Option<&str>| {
            label.is_some_and(|label| label.len() > 1 && label.starts_with('_'))
        };
        if !(is_dns_name(text)
            && is_service(labels.next())
            && is_service(labels.next())
            && labels.next().is_some())
        {
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

impl Scalar for ResolverAddress {
    const WHAT: &'static str = "the address of a DNS server";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let address = text
            .parse()
            .ok()
            .map(|ip| SocketAddr::new(ip, 53))
            .or_else(|| text.parse().ok());
        address
            .filter(|address| address.port() > 0)
            .map(Self)
            .ok_or_else(|| {
                ValueProblem::new(format!(
                    "{} is not the address of a DNS server",
                    quote(text)
                ))
                .hint("write 10.96.0.10, or 10.96.0.10:5353")
            })
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

/// RFC 1035 §2.3.4, with the underscores of services, and perhaps with the dot of the root.
pub fn is_dns_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(fine);
    name.len() <= 253 && name.split('.').all(label)
}

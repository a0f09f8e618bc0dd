//! Endpoints by the records of DNS (RFC 1035, RFC 2782).
//!
//! Guarantees that each address is an endpoint once, in an order that does not depend on that of
//! the records: servers turn them round with each answer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::HeaderValue;

use super::own_ports;
use crate::upstream::spec::discovery::MOST_ENDPOINTS;
use crate::upstream::spec::endpoint::EndpointSpec;
use crate::upstream::url::{EndpointLocation, EndpointScheme, EndpointUrl, authority};

/// The weight of a server in units of its record's: a record of weight 0 has a small chance beside
/// others (RFC 2782).
const WEIGHT_UNIT: u64 = 100;

/// A server of a service, as its SRV record says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceRecord {
    pub priority: u16,
    pub weight: u16,
    /// In lower case, without a dot at its end.
    pub target: Arc<str>,
    pub port: u16,
}

/// A kind of IP addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpFamily {
    V4,
    V6,
}

impl IpFamily {
    /// Whether the endpoint has an address of this kind.
    pub fn has(self, endpoint: &EndpointSpec) -> bool {
        let EndpointLocation::Host(authority) = &endpoint.url.location else {
            return false;
        };
        authority.host().starts_with('[') == (self == Self::V6)
    }
}

/// An endpoint for each address.
pub fn for_addresses(
    addresses: &BTreeSet<IpAddr>,
    name: &str,
    port: u16,
    scheme: EndpointScheme,
) -> Vec<EndpointSpec> {
    let host = host_field(name, port, scheme);
    addresses
        .iter()
        .filter_map(|ip| endpoint(*ip, port, scheme, host.clone()))
        .take(MOST_ENDPOINTS + 1)
        .collect()
}

/// The records that are of use: of each target and port the one with the lowest priority, and no
/// more than there may be endpoints. A target that is the root says that there is no service.
pub fn usable(records: impl IntoIterator<Item = ServiceRecord>) -> Vec<ServiceRecord> {
    let mut records: Vec<_> = records
        .into_iter()
        .filter(|of| !of.target.is_empty() && of.port > 0)
        .collect();
    records.sort_unstable();
    let mut seen = BTreeSet::new();
    records.retain(|of| seen.insert((of.target.clone(), of.port)));
    records.truncate(MOST_ENDPOINTS + 1);
    records
}

/// An endpoint for each address of each server. Those of the lowest priority are used first.
pub fn for_services(
    records: &[ServiceRecord],
    addresses: &BTreeMap<Arc<str>, BTreeSet<IpAddr>>,
    scheme: EndpointScheme,
) -> Vec<EndpointSpec> {
    let mut servers = Vec::new();
    let mut priorities = BTreeSet::new();
    for record in records {
        if let Some(addresses) = addresses.get(&record.target)
            && !addresses.is_empty()
        {
            priorities.insert(record.priority);
            servers.push((record, addresses));
        }
    }
    let mut endpoints: Vec<EndpointSpec> = Vec::new();
    let mut seen = BTreeSet::new();
    for (record, addresses) in servers {
        let rank = priorities.range(..record.priority).count();
        let host = host_field(&record.target, record.port, scheme);
        // A server with several addresses has its weight once.
        let share = WEIGHT_UNIT * u64::from(record.weight) / (addresses.len() as u64).max(1);
        for ip in addresses {
            if !seen.insert((*ip, record.port)) {
                continue;
            }
            if let Some(mut endpoint) = endpoint(*ip, record.port, scheme, host.clone()) {
                endpoint.weight = share.max(1);
                endpoint.priority = u16::try_from(rank).unwrap_or(u16::MAX);
                endpoints.push(endpoint);
            }
        }
    }
    endpoints.truncate(MOST_ENDPOINTS + 1);
    endpoints
}

/// `None`: no server can have this address, or it is that of the admin server.
fn endpoint(
    ip: IpAddr,
    port: u16,
    scheme: EndpointScheme,
    host: Option<HeaderValue>,
) -> Option<EndpointSpec> {
    let address = own_ports::server_address(SocketAddr::new(ip, port))?;
    let location = EndpointLocation::Host(authority(&address.to_string())?);
    Some(EndpointSpec {
        url: EndpointUrl { scheme, location },
        weight: 1,
        priority: 0,
        host,
    })
}

/// The `Host` of requests to a server by this name.
fn host_field(name: &str, port: u16, scheme: EndpointScheme) -> Option<HeaderValue> {
    let name = name.trim_end_matches('.');
    let text = if port == scheme.default_port() {
        name.to_owned()
    } else {
        format!("{name}:{port}")
    };
    HeaderValue::try_from(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(priority: u16, weight: u16, target: &str) -> ServiceRecord {
        ServiceRecord {
            priority,
            weight,
            target: target.into(),
            port: 80,
        }
    }

    fn addresses(of: &[(&str, &[&str])]) -> BTreeMap<Arc<str>, BTreeSet<IpAddr>> {
        of.iter()
            .map(|(name, ips)| {
                (
                    (*name).into(),
                    ips.iter().map(|ip| ip.parse().unwrap()).collect(),
                )
            })
            .collect()
    }

    /// URL, weight and rank.
    fn shown(endpoints: &[EndpointSpec]) -> Vec<(String, u64, u16)> {
        endpoints
            .iter()
            .map(|of| (of.url.to_string(), of.weight, of.priority))
            .collect()
    }

    #[test]
    fn each_address_is_an_endpoint_once_and_in_order() {
        let ips = [
            "10.0.0.2",
            "::1",
            "10.0.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "::ffff:0.0.0.0",
            "::ffff:224.0.0.1",
            "::ffff:255.255.255.255",
        ];
        let ips = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        let found = for_addresses(&ips, "orders.", 8443, EndpointScheme::Https);
        let urls: Vec<_> = found.iter().map(|of| of.url.to_string()).collect();
        assert_eq!(
            urls,
            [
                "https://10.0.0.1:8443",
                "https://10.0.0.2:8443",
                "https://[::1]:8443"
            ]
        );
        assert!(
            found
                .iter()
                .all(|of| of.host.as_ref().unwrap() == "orders:8443")
        );
    }

    #[test]
    fn servers_are_ranked_by_their_numbers_and_weights_are_shares() {
        let records = usable([
            record(20, 7, "c"),
            record(10, 0, "b"),
            record(10, 4, "a"),
            record(5, 1, "gone"),
            record(70, 1, "d"),
        ]);
        let found = addresses(&[
            ("a", &["10.0.0.1", "10.0.0.2"]),
            ("b", &["10.0.0.3"]),
            ("c", &["10.0.0.4", "10.0.0.1"]),
            ("d", &["10.0.0.5"]),
        ]);
        let expected = [
            ("http://10.0.0.3:80".to_owned(), 1, 0),
            ("http://10.0.0.1:80".to_owned(), 200, 0),
            ("http://10.0.0.2:80".to_owned(), 200, 0),
            ("http://10.0.0.4:80".to_owned(), 350, 1),
            ("http://10.0.0.5:80".to_owned(), 100, 2),
        ];
        assert_eq!(
            shown(&for_services(&records, &found, EndpointScheme::Http)),
            expected
        );
    }

    #[test]
    fn a_target_counts_once_and_the_root_is_none() {
        let records = usable([
            record(2, 1, "a"),
            record(1, 1, "a"),
            record(0, 0, ""),
            record(1, 2, "b"),
        ]);
        assert_eq!(records, [record(1, 1, "a"), record(1, 2, "b")]);
        let no_port = ServiceRecord {
            port: 0,
            ..record(1, 1, "a")
        };
        assert!(usable([no_port]).is_empty());
    }

    #[test]
    fn there_are_no_more_than_may_be_used_and_one_that_tells() {
        let many: BTreeSet<IpAddr> = (0..5000_u32)
            .map(|n| IpAddr::from((0x0a00_0000 + n).to_be_bytes()))
            .collect();
        assert_eq!(
            for_addresses(&many, "a", 80, EndpointScheme::Http).len(),
            MOST_ENDPOINTS + 1
        );
        let records = usable((0..5000).map(|n| record(1, 1, &format!("t{n}"))));
        assert_eq!(records.len(), MOST_ENDPOINTS + 1);
    }
}

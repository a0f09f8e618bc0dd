//! The address of a client, as far as trusted proxies say it.
//!
//! Guarantees that a client cannot choose the address it is counted by: `X-Forwarded-For` is read
//! only as far as it was written by trusted proxies, and no other field is read for this.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName};
use ipnet::{IpNet, Ipv4Net};

/// The field in which each proxy appends the address that it saw.
pub const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The proxies whose `X-Forwarded-For` is believed.
///
/// ```
/// use tollgate_limiter::TrustedProxies;
///
/// let trusted: TrustedProxies = vec!["10.0.0.0/8".parse()?].into();
/// assert!(trusted.contains("10.1.2.3".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<IpNet>);

impl From<Vec<IpNet>> for TrustedProxies {
    fn from(nets: Vec<IpNet>) -> Self {
        Self(nets.into_iter().map(canonical_network).collect())
    }
}

impl TrustedProxies {
    /// IPv4-mapped IPv6 addresses count as the IPv4 address they stand for.
    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|net| net.contains(&address))
    }

    /// The address that limits count by: the peer's own, or, behind trusted proxies, the nearest
    /// one that is not theirs. Reads no field unless the peer is trusted.
    pub fn client_address(&self, headers: &HeaderMap, peer: IpAddr) -> IpAddr {
        let peer = peer.to_canonical();
        if self.contains(peer) {
            self.client_behind(headers, peer)
        } else {
            peer
        }
    }

    /// Like [`TrustedProxies::client_address`], for a peer at `proxy` that is trusted whatever its
    /// address, such as one on a Unix socket.
    pub fn client_behind(&self, headers: &HeaderMap, proxy: IpAddr) -> IpAddr {
        client_behind(headers, proxy, self)
    }
}

/// All lines are one list (RFC 9110 §5.2), read from right to left: each proxy appends the address
/// that it saw, so an address is as trustworthy as the one to its right. An element that is not an
/// address ends the reading, since no trusted proxy wrote what stands before it.
fn client_behind(headers: &HeaderMap, peer: IpAddr, trusted: &TrustedProxies) -> IpAddr {
    let mut client = peer;
    for line in headers.get_all(X_FORWARDED_FOR).iter().rev() {
        for element in line.as_bytes().rsplit(|&byte| byte == b',') {
            let Some(address) = parse_address(element) else {
                return client;
            };
            client = address;
            if !trusted.contains(address) {
                return client;
            }
        }
    }
    client
}

/// Parses an address, with or without a port, brackets or space around it.
fn parse_address(element: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(element).ok()?.trim_matches([' ', '\t']);
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    let address = bare
        .parse()
        .or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip()))
        .ok()?;
    Some(IpAddr::to_canonical(&address))
}

/// A network of IPv4-mapped addresses as the IPv4 network it stands for.
pub fn canonical_network(net: IpNet) -> IpNet {
    let mapped = match net {
        IpNet::V6(v6) if v6.prefix_len() >= 96 => v6
            .addr()
            .to_ipv4_mapped()
            .map(|v4| (v4, v6.prefix_len() - 96)),
        _ => None,
    };
    mapped
        .and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok())
        .map_or(net, IpNet::V4)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn trusted() -> TrustedProxies {
        vec![
            "10.0.0.0/8".parse().unwrap(),
            "fd00::/8".parse().unwrap(),
            "::ffff:192.168.0.0/112".parse().unwrap(),
        ]
        .into()
    }

    fn client(peer: &str, lines: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(
                X_FORWARDED_FOR,
                HeaderValue::from_bytes(line.as_bytes()).unwrap(),
            );
        }
        trusted()
            .client_address(&headers, peer.parse().unwrap())
            .to_string()
    }

    #[test]
    fn an_untrusted_peer_is_the_client_whatever_it_claims() {
        assert_eq!(client("203.0.113.9", &["1.2.3.4"]), "203.0.113.9");
    }

    #[test]
    fn a_trusted_peer_without_a_list_is_the_client() {
        assert_eq!(client("10.0.0.1", &[]), "10.0.0.1");
    }

    #[test]
    fn the_first_untrusted_address_from_the_right_is_the_client() {
        assert_eq!(
            client("10.0.0.1", &["1.1.1.1, 203.0.113.9, 10.0.0.3,10.0.0.2"]),
            "203.0.113.9"
        );
    }

    #[test]
    fn several_lines_are_one_list() {
        assert_eq!(
            client(
                "10.0.0.1",
                &["1.1.1.1", "203.0.113.9, 10.0.0.3", "10.0.0.2"]
            ),
            "203.0.113.9"
        );
    }

    #[test]
    fn a_list_of_trusted_addresses_leads_to_the_leftmost() {
        assert_eq!(client("10.0.0.1", &["10.0.0.9, 10.0.0.2"]), "10.0.0.9");
    }

    #[test]
    fn an_element_that_is_not_an_address_ends_the_reading() {
        for junk in [
            "unknown",
            "_hidden",
            "",
            "1.2.3",
            "1.2.3.4.5",
            "\"1.2.3.4\"",
            "[1.2.3.4",
            "caf\u{e9}",
            "1.2.3.4:99999",
        ] {
            assert_eq!(
                client("10.0.0.1", &[&format!("203.0.113.9, {junk}, 10.0.0.2")]),
                "10.0.0.2",
                "{junk}"
            );
        }
    }

    #[test]
    fn ports_and_brackets_are_ignored() {
        assert_eq!(client("10.0.0.1", &["203.0.113.9:4711"]), "203.0.113.9");
        assert_eq!(
            client("10.0.0.1", &["[2001:db8::1]:4711, [fd00::1]"]),
            "2001:db8::1"
        );
        assert_eq!(client("10.0.0.1", &["2001:db8::1"]), "2001:db8::1");
    }

    #[test]
    fn mapped_addresses_are_the_ipv4_addresses_they_stand_for() {
        assert_eq!(
            client("::ffff:10.0.0.1", &["::ffff:203.0.113.9, ::ffff:10.0.0.2"]),
            "203.0.113.9"
        );
        assert_eq!(client("::ffff:203.0.113.7", &["1.2.3.4"]), "203.0.113.7");
        assert_eq!(client("192.168.0.1", &["203.0.113.9"]), "203.0.113.9");
    }
}

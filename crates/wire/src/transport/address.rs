//! The rules about IP addresses: which stand for this machine, which for all of its addresses, and
//! which a server can have.
//!
//! Guarantees that each rule judges the canonical address. `::ffff:0.0.0.0` is `0.0.0.0`, on which
//! a socket reaches this machine; the methods of `IpAddr` do not know that.

use std::net::{IpAddr, SocketAddr};

/// An IPv4 address that is written or came as an IPv6 address (RFC 4291 §2.5.5.2), as IPv4.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

/// Whether what is sent to `ip` does not leave this machine.
pub fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Whether a socket that listens on `ip` listens on all addresses of this machine.
pub fn is_wildcard(ip: IpAddr) -> bool {
    ip.to_canonical().is_unspecified()
}

/// Whether one server can have `ip`.
pub fn is_of_a_server(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !ip.is_unspecified() && !ip.is_multicast() && !is_broadcast
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_ipv4_address_has_the_same_rules_in_its_ipv6_form() {
        for text in ["0.0.0.0", "::", "::ffff:0.0.0.0"] {
            assert!(is_wildcard(ip(text)) && !is_of_a_server(ip(text)), "{text}");
        }
        for text in ["127.0.0.7", "::1", "::ffff:127.0.0.7"] {
            assert!(is_loopback(ip(text)) && is_of_a_server(ip(text)), "{text}");
        }
        for text in [
            "224.0.0.1",
            "ff02::1",
            "::ffff:224.0.0.1",
            "255.255.255.255",
            "::ffff:255.255.255.255",
        ] {
            assert!(!is_of_a_server(ip(text)), "{text}");
        }
        let mapped = "[::ffff:10.0.0.1]:80".parse().unwrap();
        assert_eq!(canonical(mapped).to_string(), "10.0.0.1:80");
    }
}

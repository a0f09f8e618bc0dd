//! Whom a request is from.

use std::net::IpAddr;

use http::{HeaderMap, HeaderValue};
use ipnet::IpNet;

use crate::proxy::message::forwarded::ClientOrigin;
use tollgate_limiter::limit::client_address::{TrustedProxies, X_FORWARDED_FOR};

/// The client is its peer unless a trusted proxy names another; and never one whom nobody named.
pub fn a_client_is_its_peer_or_was_named(data: &[u8]) {
    let (peer, stranger): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [192, 0, 2, 1].into());
    let network = IpNet::new(peer, 8).unwrap_or_else(|error| panic!("{error}"));
    let trusted = TrustedProxies::from(vec![network]);
    let mut headers = HeaderMap::new();
    for line in data.split(|byte| *byte == b'\n') {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.append(X_FORWARDED_FOR, value);
        }
    }
    assert_eq!(
        ClientOrigin::resolve(&headers, stranger, &trusted).client_ip,
        stranger
    );
    let found = ClientOrigin::resolve(&headers, peer, &trusted).client_ip;
    assert_eq!(found, found.to_canonical());
    if found == peer {
        return;
    }
    // Text is compared after reading: an address has several spellings.
    let text = String::from_utf8_lossy(data).into_owned();
    let names = text
        .split([',', '\n'])
        .map(|element| element.trim_matches([' ', '\t', '"']));
    let bare = names.clone().map(|name| name.trim_matches(['[', ']']));
    let named = names.chain(bare).any(|name| address(name) == Some(found));
    assert!(named, "{found} stands nowhere in {text:?}");
}

/// The address of an element, without its port.
fn address(element: &str) -> Option<IpAddr> {
    let whole = element.parse::<IpAddr>().ok();
    let with_port = || {
        element
            .parse::<std::net::SocketAddr>()
            .ok()
            .map(|address| address.ip())
    };
    let bracketed = || {
        element
            .split_once("]")
            .and_then(|(inner, _)| inner.trim_start_matches('[').parse().ok())
    };
    let before_port = || {
        element
            .rsplit_once(':')
            .and_then(|(before, _)| before.parse().ok())
    };
    whole
        .or_else(with_port)
        .or_else(bracketed)
        .or_else(before_port)
        .map(|address: IpAddr| address.to_canonical())
}

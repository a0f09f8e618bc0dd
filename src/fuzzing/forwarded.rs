//! The client of a request, as trusted proxies name it.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderValue};
use ipnet::IpNet;

use tollgate_limiter::limit::client_address::{TrustedProxies, X_FORWARDED_FOR};
use tollgate_proxy::message::forwarded::ClientOrigin;

/// The client is the peer, unless a trusted proxy names another address. It is never an address
/// that the fields do not name.
pub fn a_client_is_its_peer_or_was_named(data: &[u8]) {
    let peer = IpAddr::from([10, 0, 0, 1]);
    let stranger = IpAddr::from([192, 0, 2, 1]);
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
    let mut spellings = vec![element];
    if let Some((inner, _)) = element.split_once(']') {
        spellings.push(inner.trim_start_matches('['));
    }
    if let Some((before, _)) = element.rsplit_once(':') {
        spellings.push(before);
    }
    if let Ok(address) = element.parse::<SocketAddr>() {
        return Some(address.ip().to_canonical());
    }
    for spelling in spellings {
        if let Ok(address) = spelling.parse::<IpAddr>() {
            return Some(address.to_canonical());
        }
    }
    None
}

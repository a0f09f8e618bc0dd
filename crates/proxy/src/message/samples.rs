//! Headers and origins for the tests of this folder.

use http::{HeaderMap, HeaderName};

use super::forwarded::ClientOrigin;
use tollgate_wire::http::RequestScheme;

pub fn map(fields: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(HeaderName::from_static(name), value.parse().unwrap());
    }
    headers
}

pub fn origin(peer: &str, peer_trusted: bool) -> ClientOrigin {
    let peer = peer.parse().unwrap();
    ClientOrigin {
        client_ip: peer,
        peer,
        peer_trusted,
        scheme: RequestScheme::Http,
        client: None,
    }
}

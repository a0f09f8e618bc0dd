//! A request to an upstream and its response back.
//!
//! `forward` is the way through, `outbound` what is sent; `headers`, `additions`, `forwarded` and `target` say what changes on the way, `retry` when something is sent
//! again, `upload`, `response` and `upgrade` what goes past, `client`, `pool` and `connection` over which connections.
//! Nothing here writes a status code: failures stay typed.

pub mod additions;
mod client;
mod connection;
mod forward;
pub mod forwarded;
pub mod headers;
mod outbound;
mod pool;
mod response;
mod retry;
pub mod target;
mod upgrade;
mod upload;

pub use forward::Proxy;

/// What the tests of header fields start from.
#[cfg(test)]
mod samples {
    use http::{HeaderMap, HeaderName};

    use super::forwarded::Origin;

    pub fn map(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        headers
    }

    pub fn origin(peer: &str, peer_trusted: bool) -> Origin {
        let peer = peer.parse().unwrap();
        Origin { client_ip: peer, peer, peer_trusted }
    }
}

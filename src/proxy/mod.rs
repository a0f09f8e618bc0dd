//! A request to an upstream and its response back.
//!
//! `forward` is the way through; `headers`, `additions`, `forwarded` and `target` say what changes on the way, `retry` when something is sent
//! again, `body` and `upgrade` what streams past, `client` and `pool` over which connections, `alarm` for how long. Only `client` names the
//! HTTP client. Nothing here writes a status code: failures stay typed.

pub mod additions;
mod alarm;
mod body;
mod client;
mod forward;
pub mod forwarded;
pub mod headers;
mod pool;
mod retry;
pub mod target;
mod upgrade;

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

//! Where a request comes from, as far as trusted proxies say so.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName};
use tollgate_limiter::limit::client_address::TrustedProxies;

pub const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Where a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOrigin {
    /// The address that limits count by: the nearest one that is not a trusted proxy's.
    pub client_ip: IpAddr,
    /// The address at the other end of the connection.
    pub peer: IpAddr,
    pub peer_trusted: bool,
}

impl ClientOrigin {
    /// Reads no header unless the peer is trusted.
    pub fn resolve(headers: &HeaderMap, peer: IpAddr, trusted: &TrustedProxies) -> Self {
        let peer = peer.to_canonical();
        if !trusted.contains(peer) {
            return Self { client_ip: peer, peer, peer_trusted: false };
        }
        Self { client_ip: trusted.client_address(headers, peer), peer, peer_trusted: true }
    }
}

//! The addresses at the two ends of a client's connection.

use std::net::{IpAddr, SocketAddr};

/// The addresses of a client's connection. An IPv4 address that came through an IPv6 socket is shown as IPv4.
#[derive(Debug)]
pub struct ConnectionInfo {
    /// The client.
    pub peer: SocketAddr,
    pub local: SocketAddr,
}

impl ConnectionInfo {
    pub(super) fn new(peer: SocketAddr, local: SocketAddr) -> Self {
        Self { peer: canonical(peer), local: canonical(local) }
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

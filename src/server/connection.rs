//! Who is at the two ends of a connection.

use std::net::{IpAddr, SocketAddr};

/// One client's connection.
#[derive(Debug)]
pub struct Connection {
    /// The client. An IPv4 address that came through an IPv6 socket is shown as IPv4.
    pub peer: SocketAddr,
    pub local: SocketAddr,
}

impl Connection {
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

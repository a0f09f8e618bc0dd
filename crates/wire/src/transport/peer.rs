//! The other end of a client's connection.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::address::canonical;
use tollgate_limiter::limit::client_address::TrustedProxies;

/// The address of a client or of a proxy in front. An IPv4 address that came through an IPv6 socket
/// is shown as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    Ip(SocketAddr),
    /// A process of this machine, over a Unix socket.
    Unix,
}

/// Both ends of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketPair {
    pub client: SocketAddr,
    /// The address that the client has connected to.
    pub server: SocketAddr,
}

/// The peers whose claims about their clients are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedPeers {
    pub proxies: TrustedProxies,
    /// Processes of this machine, over Unix sockets.
    pub unix: bool,
}

impl TrustedPeers {
    pub fn contains(&self, peer: PeerAddress) -> bool {
        match peer {
            PeerAddress::Ip(address) => self.proxies.contains(address.ip()),
            PeerAddress::Unix => self.unix,
        }
    }
}

impl PeerAddress {
    /// The address that stands for the peer where only an IP address can: that of this machine for
    /// a Unix socket.
    pub fn ip(self) -> IpAddr {
        self.socket_address().ip()
    }

    /// Like [`PeerAddress::ip`], with a port; 0 if there is none.
    pub fn socket_address(self) -> SocketAddr {
        match self {
            Self::Ip(address) => address,
            Self::Unix => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
        }
    }
}

impl From<SocketAddr> for PeerAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(canonical(address))
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix => f.write_str("unix"),
        }
    }
}

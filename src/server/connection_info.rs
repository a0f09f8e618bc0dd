//! The facts about a client's connection, for all requests on it.

use std::net::SocketAddr;

use crate::http::scheme::RequestScheme;
use crate::transport::peer::{PeerAddress, SocketPair};
use crate::transport::tls::server::session::TlsSession;

/// A client's connection.
#[derive(Debug)]
pub struct ConnectionInfo {
    /// The client, or the proxy in front. Where a trusted proxy sent a header of the PROXY
    /// protocol, whom that names.
    pub peer: PeerAddress,
    /// Both ends, for upstreams that are told. `None`: its client has no IP address, or is not
    /// named.
    pub sockets: Option<SocketPair>,
    /// `None`: in the clear.
    pub tls: Option<TlsSession>,
    /// A trusted proxy opened it, and said in its header of the PROXY protocol not for whom: what
    /// requests on it claim may be anybody's.
    pub is_unnamed: bool,
    /// Why every request on it is refused.
    pub refusal: Option<&'static str>,
}

impl ConnectionInfo {
    /// A connection in the clear.
    pub fn in_clear(peer: PeerAddress) -> Self {
        Self {
            peer,
            sockets: None,
            tls: None,
            is_unnamed: false,
            refusal: None,
        }
    }

    /// Sets both ends of it. `local`: the address at this end, if it is no Unix socket.
    pub fn with_local(mut self, local: Option<SocketAddr>) -> Self {
        if let (PeerAddress::Ip(client), false) = (self.peer, self.is_unnamed) {
            // A proxy on a Unix socket named the client.
            let unknown = || {
                if client.is_ipv4() {
                    ([0; 4], 0).into()
                } else {
                    ([0u16; 8], 0).into()
                }
            };
            self.sockets = Some(SocketPair {
                client,
                server: local.unwrap_or_else(unknown),
            });
        }
        self
    }

    pub fn scheme(&self) -> RequestScheme {
        if self.tls.is_some() {
            RequestScheme::Https
        } else {
            RequestScheme::Http
        }
    }
}

//! The facts about a client's connection, for all requests on it.

use std::net::SocketAddr;

use tollgate_wire::http::RequestScheme;
use tollgate_wire::transport::peer::{PeerAddress, SocketPair};
use tollgate_wire::transport::tls::server::session::TlsSession;

/// A client's connection.
#[derive(Debug)]
pub struct ConnectionInfo {
    /// The client, or the proxy in front. Where a trusted proxy sent a header of the PROXY
    /// protocol: the client that the header names.
    pub peer: PeerAddress,
    /// Both ends, for upstreams that get a header of the PROXY protocol. `None`: the client has no
    /// IP address, or no name.
    pub sockets: Option<SocketPair>,
    /// The TLS session. `None`: in the clear.
    pub tls: Option<TlsSession>,
    /// A trusted proxy opened the connection, and its header of the PROXY protocol names no client:
    /// claims of requests on the connection may be anybody's.
    pub is_unnamed: bool,
    /// The reason to refuse every request on the connection.
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

    /// Sets both ends of the connection. `local`: the address at this end. `None`: a Unix socket,
    /// on which a proxy named the client.
    pub fn with_local(mut self, local: Option<SocketAddr>) -> Self {
        if let PeerAddress::Ip(client) = self.peer
            && !self.is_unnamed
        {
            let server = match local {
                Some(local) => local,
                None if client.is_ipv4() => ([0; 4], 0).into(),
                None => ([0u16; 8], 0).into(),
            };
            self.sockets = Some(SocketPair { client, server });
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

//! The facts about a client's connection, for all requests on it.

use crate::http::scheme::RequestScheme;
use crate::transport::peer::PeerAddress;
use crate::transport::tls::server::session::TlsSession;

/// A client's connection.
#[derive(Debug)]
pub struct ConnectionInfo {
    /// The client, or the proxy in front. Where a trusted proxy sent a header of the PROXY protocol, whom that names.
    pub peer: PeerAddress,
    /// `None`: in the clear.
    pub tls: Option<TlsSession>,
    /// A trusted proxy opened it, and said in its header of the PROXY protocol not for whom: what requests on it claim may
    /// be anybody's.
    pub is_unnamed: bool,
    /// Why every request on it is refused.
    pub refusal: Option<&'static str>,
}

impl ConnectionInfo {
    /// A connection in the clear.
    pub fn in_clear(peer: PeerAddress) -> Self {
        Self { peer, tls: None, is_unnamed: false, refusal: None }
    }

    pub fn scheme(&self) -> RequestScheme {
        if self.tls.is_some() { RequestScheme::Https } else { RequestScheme::Http }
    }
}

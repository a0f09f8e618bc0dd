//! Where a request comes from, as far as trusted proxies say so.

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use tollgate_limiter::limit::client_address::TrustedProxies;

use tollgate_wire::http::RequestScheme;
use tollgate_wire::transport::peer::{PeerAddress, TrustedPeers};
use tollgate_wire::transport::tls::server::client_certificate::ClientIdentity;

pub const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// The certificate by which a client has authenticated itself, in the form that Envoy gave it.
pub const X_FORWARDED_CLIENT_CERT: HeaderName = HeaderName::from_static("x-forwarded-client-cert");

/// Where a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOrigin {
    /// The address that limits count by: the nearest one that is not a trusted proxy's.
    pub client_ip: IpAddr,
    /// The address at the other end of the connection.
    pub peer: IpAddr,
    pub peer_trusted: bool,
    /// The scheme of the connection.
    pub scheme: RequestScheme,
    /// The client's certificate. `None`: the client has not authenticated itself.
    pub client: Option<Arc<ClientIdentity>>,
}

impl ClientOrigin {
    /// The origin of a request in the clear. Reads no header unless the peer is trusted.
    pub fn resolve(headers: &HeaderMap, peer: IpAddr, trusted: &TrustedProxies) -> Self {
        let peer = peer.to_canonical();
        Self::behind(headers, peer, trusted.contains(peer).then_some(trusted))
    }

    /// Like [`ClientOrigin::resolve`], for a peer that may be on a Unix socket. `trusted` is `None`
    /// where no peer is trusted.
    pub fn of_peer(headers: &HeaderMap, peer: PeerAddress, trusted: Option<&TrustedPeers>) -> Self {
        let trusted = trusted.filter(|trusted| trusted.contains(peer));
        Self::behind(headers, peer.ip(), trusted.map(|trusted| &trusted.proxies))
    }

    /// `trusted`: the proxies beside the peer, if that is one.
    fn behind(headers: &HeaderMap, peer: IpAddr, trusted: Option<&TrustedProxies>) -> Self {
        let client_ip = trusted.map_or(peer, |trusted| trusted.client_behind(headers, peer));
        Self {
            client_ip,
            peer,
            peer_trusted: trusted.is_some(),
            scheme: RequestScheme::Http,
            client: None,
        }
    }

    /// The scheme by which the client reached the outermost proxy that is trusted, as
    /// `X-Forwarded-Proto` says; else that of the connection.
    pub fn forwarded_scheme<'h>(&self, headers: &'h HeaderMap) -> &'h str {
        if self.peer_trusted
            && let Some(value) = headers.get(X_FORWARDED_PROTO)
            && let Ok(schemes) = value.to_str()
        {
            let first = schemes.split(',').next().unwrap_or_default().trim();
            if is_scheme(first) {
                return first;
            }
        }
        self.scheme.as_str()
    }
}

/// Whether the text is a URI scheme (RFC 3986 §3.1).
fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

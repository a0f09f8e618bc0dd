//! Where a request comes from, as far as trusted proxies say so.

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use tollgate_limiter::limit::client_address::TrustedProxies;

use tollgate_wire::http::{RequestScheme, syntax};
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
    /// The scheme of the connection. The listener of a TLS connection sets it, and `client`,
    /// afterwards.
    pub scheme: RequestScheme,
    /// The certificate that the client showed. `None`: the client has not authenticated itself.
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

    /// `trusted`: the proxies whose addresses in `X-Forwarded-For` are skipped. `None`: the peer is
    /// not trusted, and no header is read.
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

    /// The first scheme of `X-Forwarded-Proto`, if the peer is trusted; else that of the
    /// connection. The outermost proxy must replace what its client sent.
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

/// Whether a value of `Forwarded` is well formed (RFC 7239 §4), so that an element behind it is
/// read as one by every reader. White space around semicolons is let pass, since many proxies write
/// it.
pub fn is_forwarded(list: &[u8]) -> bool {
    let mut rest = list;
    loop {
        rest = rest.trim_ascii_start();
        match rest.split_first() {
            None => return true,
            Some((b',' | b';', after)) => rest = after,
            Some(_) => match after_pair(rest).map(<[u8]>::trim_ascii_start) {
                Some(after @ ([] | [b',' | b';', ..])) => rest = after,
                Some(_) | None => return false,
            },
        }
    }
}

/// The bytes behind the `name=value` at the start. `None`: there is none.
fn after_pair(bytes: &[u8]) -> Option<&[u8]> {
    let equals = memchr::memchr(b'=', bytes)?;
    let value = &bytes[equals + 1..];
    let end = match value.strip_prefix(b"\"") {
        // Both quotation marks.
        Some(quoted) => 2 + end_of_quoted(quoted)?,
        None => {
            let end = value.iter().position(|byte| !syntax::is_token_byte(*byte));
            end.unwrap_or(value.len())
        }
    };
    if end > 0 && syntax::is_token(&bytes[..equals]) {
        Some(&value[end..])
    } else {
        None
    }
}

/// The place of the quotation mark that ends a quoted string (RFC 9110 §5.6.4), in the text behind
/// the first one. `None`: none does.
fn end_of_quoted(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at);
        }
        at += 2;
    }
}

/// Whether the text is a URI scheme (RFC 3986 §3.1).
fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_forwarded_is_one_to_every_reader_or_none() {
        for list in [
            "",
            "for=1.2.3.4",
            "for=1.2.3.4, for=_hidden;proto=http ; by=unknown",
            "for=\"[2001:db8::1]:4711\";host=\"a\\\"b,c\"",
            ",for=a,,;",
        ] {
            assert!(is_forwarded(list.as_bytes()), "{list}");
        }
        for list in [
            "for=\"",
            "for=\"1.2.3.4",
            "for=1.2.3.4;x=\"a\\\"",
            "for=\"a\\",
            "for",
            "for=",
            "=a",
            "for=a b",
            "for =a",
            "for=[::1]",
            "for=a\"b\"",
            "for=\"a\"b",
            "for=a (b",
        ] {
            assert!(!is_forwarded(list.as_bytes()), "{list}");
        }
    }
}

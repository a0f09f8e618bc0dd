//! The host a request is for, in the one form that routes and keys know it by.
//!
//! Guarantees that no spelling of a host is a host of its own.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use http::header::HOST;
use http::{HeaderMap, Uri};

/// The target's authority where there is one, `Host` otherwise (RFC 9110 §7.1): in lower case,
/// without a port and the root's dot. Empty: the request names none.
pub fn find<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Cow<'a, str> {
    let authority = uri.authority().map(http::uri::Authority::as_str);
    normal(
        authority
            .or_else(|| headers.get(HOST)?.to_str().ok())
            .unwrap_or_default(),
    )
}

/// An authority in that form: in lower case, without user, port and the root's dot.
pub fn normal(host: &str) -> Cow<'_, str> {
    // Nearly every request has a name in lower case and perhaps a port: one look at each byte is
    // enough.
    let end = host
        .bytes()
        .position(|byte| !PLAIN[usize::from(byte)])
        .unwrap_or(host.len());
    let (name, rest) = host.split_at(end);
    if rest.is_empty()
        || (rest.starts_with(':') && rest.bytes().skip(1).all(|byte| byte.is_ascii_digit()))
    {
        return without_root(name).into();
    }
    let name = without_root(without_port(host));
    if let Some(address) = ipv6(name) {
        return format!("[{address}]").into();
    }
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        name.to_ascii_lowercase().into()
    } else {
        name.into()
    }
}

/// The host of a request, found only when a limit asks for it.
#[derive(Clone, Copy, Debug)]
pub enum RequestHost<'a> {
    /// In lower case, without a port. Empty: there is none.
    Known(&'a str),
    Of(&'a Uri, &'a HeaderMap),
}

impl<'a> RequestHost<'a> {
    /// In lower case, without a port. Empty: the request names none.
    pub fn find(self) -> Cow<'a, str> {
        match self {
            Self::Known(host) => host.into(),
            Self::Of(uri, headers) => find(uri, headers),
        }
    }
}

/// Whether a byte stands in a name as it is.
static PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        plain[byte] = matches!(byte as u8, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
        byte += 1;
    }
    plain
};

fn without_root(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// The address of a host that is one in brackets, which can be written in many ways.
fn ipv6(name: &str) -> Option<Ipv6Addr> {
    name.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// Without user and port.
fn without_port(host: &str) -> &str {
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let port = host.rfind(':').filter(|&at| !host[at..].contains(']'));
    port.map_or(host, |at| &host[..at])
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn finds_the_host_in_every_form() {
        for (uri, host, found) in [
            ("/", "A.Example:8080", "a.example"),
            ("/", "[2001:DB8::1]:80", "[2001:db8::1]"),
            ("/", "[::1]", "[::1]"),
            ("/", "[2001:0DB8:0:0::0.0.0.1]:80", "[2001:db8::1]"),
            ("/", "[0::1]", "[::1]"),
            ("/", "[v1.x]", "[v1.x]"),
            ("/", "example.", "example"),
            ("http://B.example:1/", "a.example", "b.example"),
            ("http://u:p@B.example:1/", "a.example", "b.example"),
            ("/", "u@a.example", "a.example"),
            ("/", "a:b:1", "a:b"),
            ("/", "a.:80", "a"),
            ("/", "", ""),
        ] {
            let request = Request::builder()
                .uri(uri)
                .header(HOST, host)
                .body(())
                .unwrap();
            assert_eq!(
                find(request.uri(), request.headers()),
                found,
                "{uri} {host}"
            );
        }
    }
}

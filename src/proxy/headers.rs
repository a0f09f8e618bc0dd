//! What changes in a message's header section on its way through.
//!
//! Guarantees that nothing meant for one connection reaches the next (RFC 9110 §7.6.1), that ours is added after the
//! sweep so that no peer can have it removed, and that a body's framing cannot be named away. Knows nothing of bodies.

use std::fmt::Write as _;
use std::net::IpAddr;

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue, Version};
use smallvec::SmallVec;

use super::forwarded::{Origin, Scheme, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO};
use crate::request_id::REQUEST_ID;

/// What the sweep saw and a proxy must know.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The peer closes the connection after this message.
    pub close: bool,
    /// The `Upgrade` that `Connection` announces.
    pub upgrade: Option<HeaderValue>,
    /// The client takes trailers.
    pub te_trailers: bool,
    /// The message had a transfer coding: a length beside it means nothing (RFC 9112 §6.3).
    pub transfer_encoding: bool,
}

/// A set of names to remove; rarely more than a few.
type Doomed = SmallVec<[HeaderName; 8]>;

/// A line of text that becomes a header value with one allocation.
struct Line(SmallVec<[u8; 128]>);

/// Removes what a request says to this connection only, and what an untrusted peer claims about its origin.
pub fn strip_request(headers: &mut HeaderMap, peer_trusted: bool) -> Found {
    strip(headers, |name| match *name {
        PROXY_AUTHORIZATION => true,
        FORWARDED => !peer_trusted,
        _ => !peer_trusted && (name.as_str().starts_with("x-forwarded-") || name == "x-real-ip"),
    })
}

/// Removes what a response says to this connection only.
pub fn strip_response(headers: &mut HeaderMap) -> Found {
    strip(headers, |_| false)
}

fn strip(headers: &mut HeaderMap, also: impl Fn(&HeaderName) -> bool) -> Found {
    let mut found = Found::default();
    let mut doomed = Doomed::new();
    let mut connection = false;
    for name in headers.keys() {
        match *name {
            CONNECTION => connection = true,
            TE => found.te_trailers = takes_trailers(headers),
            TRANSFER_ENCODING => found.transfer_encoding = true,
            UPGRADE | PROXY_AUTHENTICATE => {}
            _ if matches!(name.as_str(), "keep-alive" | "proxy-connection") || also(name) => {}
            _ => continue,
        }
        doomed.push(name.clone());
    }
    if connection {
        read_connection(headers, &mut found, &mut doomed);
    }
    for name in doomed {
        headers.remove(name);
    }
    if found.transfer_encoding {
        headers.remove(CONTENT_LENGTH);
    }
    found
}

/// Every option of every line. `Host` and `Content-Length` are no one's to remove: the one says where a message goes,
/// the other where it ends.
fn read_connection(headers: &HeaderMap, found: &mut Found, doomed: &mut Doomed) {
    for option in headers.get_all(CONNECTION).iter().flat_map(options) {
        if option.eq_ignore_ascii_case(b"close") {
            found.close = true;
        } else if option.eq_ignore_ascii_case(b"upgrade") {
            found.upgrade = headers.get(UPGRADE).cloned();
        } else if !option.eq_ignore_ascii_case(b"keep-alive") {
            doomed.extend(HeaderName::from_bytes(option).ok().filter(|name| *name != HOST && *name != CONTENT_LENGTH));
        }
    }
}

fn takes_trailers(headers: &HeaderMap) -> bool {
    headers.get_all(TE).iter().flat_map(options).any(|option| option.eq_ignore_ascii_case(b"trailers"))
}

fn options(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    value.as_bytes().split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|option| !option.is_empty())
}

/// Whether the client waits for a 100 before it sends its body (RFC 9110 §10.1.1).
pub fn expects_continue(headers: &HeaderMap) -> bool {
    headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// HTTP/2 splits cookies into lines for compression; HTTP/1.1 has one (RFC 9113 §8.2.3).
pub fn join_cookies(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(COOKIE).iter();
    if let (Some(first), Some(second)) = (lines.next(), lines.next()) {
        let mut joined = Line::from(first.as_bytes());
        for line in std::iter::once(second).chain(lines) {
            joined.push(b"; ").push(line.as_bytes());
        }
        joined.insert(headers, COOKIE);
    }
}

/// `TE` must be named in `Connection` wherever it is sent (RFC 9110 §10.1.4).
pub fn keep_te_trailers(headers: &mut HeaderMap) {
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(CONNECTION, HeaderValue::from_static("te"));
}

/// Asks for, or grants, another protocol on this connection (RFC 9110 §7.8).
pub fn keep_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(UPGRADE, protocol);
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
}

/// `Via` with the version a message was received in (RFC 9110 §7.6.3).
pub fn append_via(headers: &mut HeaderMap, received: Version) {
    let via = match received {
        Version::HTTP_2 => "2 tollgate",
        Version::HTTP_10 => "1.0 tollgate",
        _ => "1.1 tollgate",
    };
    headers.append(VIA, HeaderValue::from_static(via));
}

/// Tells the upstream where the request comes from. `host` is what the client asked for.
pub fn add_origin(headers: &mut HeaderMap, origin: &Origin, host: Option<&HeaderValue>, request_id: &HeaderValue) {
    extend_list(headers, X_FORWARDED_FOR, |line| line.push_address(origin.peer));
    extend_list(headers, FORWARDED, |line| line.push_forwarded(origin.peer, host));
    if !headers.contains_key(X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(Scheme::Http.as_str()));
    }
    if let Some(host) = host
        && !headers.contains_key(X_FORWARDED_HOST)
    {
        headers.insert(X_FORWARDED_HOST, host.clone());
    }
    headers.insert(REQUEST_ID, request_id.clone());
}

/// Adds one element to a list and makes it one line: not everyone behind us reads the second.
fn extend_list(headers: &mut HeaderMap, name: HeaderName, element: impl FnOnce(&mut Line)) {
    let mut line = Line(SmallVec::new());
    for value in headers.get_all(&name) {
        line.push(value.as_bytes()).push(b", ");
    }
    element(&mut line);
    line.insert(headers, name);
}

impl From<&[u8]> for Line {
    fn from(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }
}

impl Line {
    fn push(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn push_address(&mut self, address: IpAddr) {
        // Writing to memory cannot fail.
        let _ = write!(self, "{address}");
    }

    /// One element of `Forwarded` (RFC 7239 §4, §6): IPv6 in brackets and quotes, the host quoted for its port.
    fn push_forwarded(&mut self, peer: IpAddr, host: Option<&HeaderValue>) {
        let _ = match peer {
            IpAddr::V4(v4) => write!(self, "for={v4}"),
            IpAddr::V6(v6) => write!(self, "for=\"[{v6}]\""),
        };
        if let Some(host) = host {
            self.push(b";host=\"");
            for &byte in host.as_bytes() {
                if matches!(byte, b'"' | b'\\') {
                    self.push(b"\\");
                }
                self.push(&[byte]);
            }
            self.push(b"\"");
        }
        self.push(b";proto=").push(Scheme::Http.as_str().as_bytes());
    }

    /// Replaces all values of `name`. What came out of header values can go into one.
    fn insert(&self, headers: &mut HeaderMap, name: HeaderName) {
        if let Ok(value) = HeaderValue::from_bytes(&self.0) {
            headers.insert(name, value);
        }
    }
}

impl std::fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        headers
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    fn origin(peer: &str, peer_trusted: bool) -> Origin {
        let peer = peer.parse().unwrap();
        Origin { client_ip: peer, peer, peer_trusted, scheme: Scheme::Http, host: None }
    }

    #[test]
    fn hop_by_hop_fields_stay_on_their_hop() {
        let mut headers = map(&[
            ("connection", "keep-alive"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("te", "gzip"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("proxy-authorization", "Basic x"),
            ("proxy-authenticate", "Basic"),
            ("trailer", "x-sum"),
            ("accept", "*/*"),
        ]);
        strip_request(&mut headers, false);
        assert_eq!(names(&headers), ["accept", "trailer"]);
    }

    #[test]
    fn every_name_in_every_connection_line_is_removed() {
        let mut headers = map(&[
            ("connection", "X-One ,, x-two"),
            ("connection", "x-three,close"),
            ("x-one", "1"),
            ("x-one", "again"),
            ("x-two", "2"),
            ("x-three", "3"),
            ("x-four", "4"),
        ]);
        assert!(strip_request(&mut headers, false).close);
        assert_eq!(names(&headers), ["x-four"]);
    }

    #[test]
    fn host_and_length_cannot_be_named_away() {
        let mut headers = map(&[("connection", "host, Content-Length"), ("host", "a"), ("content-length", "3")]);
        strip_request(&mut headers, false);
        assert_eq!(names(&headers), ["content-length", "host"]);
    }

    #[test]
    fn our_own_fields_are_added_after_the_sweep() {
        let mut headers = map(&[
            ("connection", "x-forwarded-for, x-request-id, forwarded, via, x-forwarded-proto"),
            ("x-forwarded-for", "1.1.1.1"),
            ("x-request-id", "theirs"),
        ]);
        strip_request(&mut headers, true);
        add_origin(&mut headers, &origin("10.0.0.1", true), None, &HeaderValue::from_static("ours"));
        assert_eq!(headers["x-forwarded-for"], "10.0.0.1");
        assert_eq!(headers["x-request-id"], "ours");
    }

    #[test]
    fn an_upgrade_needs_to_be_announced() {
        let mut headers = map(&[("upgrade", "websocket"), ("connection", "keep-alive, Upgrade")]);
        assert_eq!(strip_request(&mut headers, false).upgrade, Some(HeaderValue::from_static("websocket")));
        let mut headers = map(&[("upgrade", "websocket")]);
        assert_eq!(strip_request(&mut headers, false).upgrade, None);
        assert!(headers.is_empty());
    }

    #[test]
    fn a_length_beside_a_transfer_coding_is_removed() {
        let mut headers = map(&[("content-length", "5"), ("transfer-encoding", "chunked")]);
        assert!(strip_response(&mut headers).transfer_encoding);
        assert!(headers.is_empty());
    }

    #[test]
    fn an_untrusted_peer_claims_nothing_about_its_origin() {
        let claims = [
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-port", "443"),
            ("x-real-ip", "1.1.1.1"),
            ("forwarded", "for=1.1.1.1"),
        ];
        let mut headers = map(&claims);
        strip_request(&mut headers, false);
        assert!(headers.is_empty());
        let mut headers = map(&claims);
        strip_request(&mut headers, true);
        assert_eq!(headers.len(), claims.len());
    }

    #[test]
    fn a_trusted_peers_lists_are_extended_in_one_line() {
        let mut headers = map(&[
            ("x-forwarded-for", "203.0.113.9"),
            ("x-forwarded-for", "10.0.0.2"),
            ("forwarded", "for=203.0.113.9"),
            ("x-forwarded-proto", "https"),
        ]);
        let host = HeaderValue::from_static("a.example:8080");
        add_origin(&mut headers, &origin("10.0.0.1", true), Some(&host), &HeaderValue::from_static("id"));
        assert_eq!(headers.get_all("x-forwarded-for").iter().collect::<Vec<_>>(), ["203.0.113.9, 10.0.0.2, 10.0.0.1"]);
        assert_eq!(headers["forwarded"], "for=203.0.113.9, for=10.0.0.1;host=\"a.example:8080\";proto=http");
        assert_eq!(headers["x-forwarded-proto"], "https");
        assert_eq!(headers["x-forwarded-host"], "a.example:8080");
    }

    #[test]
    fn forwarded_quotes_ipv6_and_escapes_the_host() {
        let mut headers = HeaderMap::new();
        let host = HeaderValue::from_static("a\"b\\c");
        add_origin(&mut headers, &origin("2001:db8::1", false), Some(&host), &HeaderValue::from_static("id"));
        assert_eq!(headers["forwarded"], "for=\"[2001:db8::1]\";host=\"a\\\"b\\\\c\";proto=http");
        assert_eq!(headers["x-forwarded-for"], "2001:db8::1");
    }

    #[test]
    fn cookie_crumbs_become_one_line() {
        let mut headers = map(&[("cookie", "a=1"), ("cookie", "b=2"), ("cookie", "c=3")]);
        join_cookies(&mut headers);
        assert_eq!(headers.get_all("cookie").iter().collect::<Vec<_>>(), ["a=1; b=2; c=3"]);
    }

    #[test]
    fn via_names_the_version_received() {
        let mut headers = map(&[("via", "1.0 edge")]);
        append_via(&mut headers, Version::HTTP_2);
        assert_eq!(headers.get_all("via").iter().collect::<Vec<_>>(), ["1.0 edge", "2 tollgate"]);
    }
}

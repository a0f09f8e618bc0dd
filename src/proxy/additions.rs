//! What a message's header section gains on its way through: where it comes from, and which way it took.
//!
//! Guarantees lists in one line and one allocation per field that must be written. To be called after the sweep in `headers`.

use http::header::{CONNECTION, COOKIE, FORWARDED, TE, UPGRADE, VIA};
use http::{HeaderMap, HeaderName, HeaderValue, Version};
use smallvec::SmallVec;

use super::forwarded::{Origin, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO};
use crate::request_id::REQUEST_ID;
use crate::text;

/// Fields that a request gains at most, `Via` and those of an upgrade included.
const ADDED: usize = 8;

/// How clients reach this gateway: it takes no TLS.
const SCHEME: &str = "http";

/// A line of text that becomes a header value with one allocation.
struct Line(SmallVec<[u8; 128]>);

/// An address as text.
type Address = SmallVec<[u8; 48]>;

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
    // Grown once, rather than with the field that does not fit.
    headers.reserve(ADDED);
    let said = origin.peer_trusted;
    let mut peer = Address::new();
    text::push_address(&mut peer, origin.peer);
    extend_list(headers, X_FORWARDED_FOR, said, |line| _ = line.push(&peer));
    extend_list(headers, FORWARDED, said, |line| line.push_forwarded(&peer, origin.peer.is_ipv6(), host));
    if !said || !headers.contains_key(X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(SCHEME));
    }
    if let Some(host) = host
        && (!said || !headers.contains_key(X_FORWARDED_HOST))
    {
        headers.insert(X_FORWARDED_HOST, host.clone());
    }
    headers.insert(REQUEST_ID, request_id.clone());
}

/// Adds one element to a list and makes it one line: not everyone behind us reads the second. What was `said` before is
/// a trusted peer's, or is replaced.
fn extend_list(headers: &mut HeaderMap, name: HeaderName, said: bool, element: impl FnOnce(&mut Line)) {
    let mut line = Line(SmallVec::new());
    if said {
        for value in headers.get_all(&name) {
            line.push(value.as_bytes()).push(b", ");
        }
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

    /// One element of `Forwarded` (RFC 7239 §4, §6): IPv6 in brackets and quotes, the host quoted for its port.
    fn push_forwarded(&mut self, peer: &[u8], is_ipv6: bool, host: Option<&HeaderValue>) {
        let (before, after): (&[u8], &[u8]) = if is_ipv6 { (b"for=\"[", b"]\"") } else { (b"for=", b"") };
        self.push(before).push(peer).push(after);
        if let Some(host) = host {
            self.push(b";host=\"").push_quoted(host.as_bytes());
            self.push(b"\"");
        }
        self.push(b";proto=").push(SCHEME.as_bytes());
    }

    /// The inside of a quoted string (RFC 9110 §5.6.4).
    fn push_quoted(&mut self, mut text: &[u8]) {
        while let Some(special) = memchr::memchr2(b'"', b'\\', text) {
            self.push(&text[..special]).push(&[b'\\', text[special]]);
            text = &text[special + 1..];
        }
        self.push(text);
    }

    /// Replaces all values of `name`. What came out of header values can go into one.
    fn insert(&self, headers: &mut HeaderMap, name: HeaderName) {
        if let Ok(value) = HeaderValue::from_bytes(&self.0) {
            headers.insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::samples::{map, origin};

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

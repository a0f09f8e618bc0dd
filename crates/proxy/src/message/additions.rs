//! Adds fields to a message on its way through: where a request comes from, and which way the
//! message took.
//!
//! The fields of a request are written straight into the bytes that are sent, those of a response
//! into its header map. Guarantees one line for each list. `headers` removes the fields that a peer
//! must not set before.

use bytes::BytesMut;
use http::header::{CONNECTION, COOKIE, FORWARDED, TE, UPGRADE, VIA};
use http::{HeaderMap, HeaderName, HeaderValue, Version};
use smallvec::SmallVec;
use tollgate_limiter::limit::key::address_text as text;

use super::forwarded::{
    ClientOrigin, X_FORWARDED_CLIENT_CERT, X_FORWARDED_HOST, X_FORWARDED_PROTO, is_forwarded,
};
use tollgate_limiter::limit::client_address::X_FORWARDED_FOR;
use tollgate_wire::http::h1::encode::{field, known_field};
use tollgate_wire::http::request_id::REQUEST_ID;
use tollgate_wire::http::syntax;

/// Bytes of the values of `X-Forwarded-For` and `Forwarded` in most requests.
const LIST_BYTES: usize = 128;

/// The fields that a request gains.
pub struct Additions<'a> {
    pub origin: &'a ClientOrigin,
    /// The host that the client asked for.
    pub host: Option<HeaderValue>,
    pub request_id: &'a HeaderValue,
    /// The version in which the request was received.
    pub received: Version,
    pub hop: HopFields,
}

/// The fields for the connection to the upstream.
pub enum HopFields {
    Nothing,
    /// Asks for another protocol (RFC 9110 §7.8).
    Upgrade(HeaderValue),
    /// Accepts trailer fields. `TE` must be named in `Connection` wherever it is sent (RFC 9110
    /// §10.1.4).
    TeTrailers,
}

impl Additions<'_> {
    /// Writes the client's `fields` and the added ones.
    pub fn write(&self, out: &mut BytesMut, fields: &HeaderMap) {
        for (name, value) in fields {
            if !self.replaces(name) {
                field(out, name.as_str(), value.as_bytes());
            }
        }
        self.write_added(out, fields);
        self.write_hop(out);
    }

    /// Appends the client's `fields` and the added ones, for HTTP/2.
    pub fn append(&self, out: &mut HeaderMap, fields: &HeaderMap) {
        for (name, value) in fields.iter().filter(|(name, _)| !self.replaces(name)) {
            out.append(name, value.clone());
        }
        let mut text = BytesMut::with_capacity(LIST_BYTES);
        let peer = self.peer_text();
        let list = self.list(&mut text, fields, &X_FORWARDED_FOR, |out| {
            out.extend_from_slice(&peer)
        });
        append_if_some(out, X_FORWARDED_FOR, list);
        let scheme = self.origin.forwarded_scheme(fields);
        let list = self.list(&mut text, fields, &FORWARDED, |out| {
            self.write_forwarded(out, &peer, scheme)
        });
        append_if_some(out, FORWARDED, list);
        if let Some(proto) = self.forwarded_proto(fields) {
            out.append(X_FORWARDED_PROTO, HeaderValue::from_static(proto));
        }
        if let Some(client) = &self.origin.client {
            let certificate = client.forwarded.as_bytes();
            let list = self.list(&mut text, fields, &X_FORWARDED_CLIENT_CERT, |out| {
                out.extend_from_slice(certificate)
            });
            append_if_some(out, X_FORWARDED_CLIENT_CERT, list);
        }
        if let Some(host) = self.forwarded_host(fields) {
            out.append(X_FORWARDED_HOST, host.clone());
        }
        // A request id is never the same twice: as a sensitive value it takes no place in the table
        // of fields that both sides keep.
        let mut request_id = self.request_id.clone();
        request_id.set_sensitive(true);
        out.append(REQUEST_ID, request_id);
        out.append(VIA, HeaderValue::from_static(via(self.received)));
        // HTTP/2 has no Connection, which would name TE (RFC 9113 §8.2.2).
        if matches!(self.hop, HopFields::TeTrailers) {
            out.insert(TE, HeaderValue::from_static("trailers"));
        }
    }

    fn write_added(&self, out: &mut BytesMut, fields: &HeaderMap) {
        let peer = self.peer_text();
        self.write_list(out, fields, &X_FORWARDED_FOR, |out| {
            out.extend_from_slice(&peer)
        });
        let scheme = self.origin.forwarded_scheme(fields);
        self.write_list(out, fields, &FORWARDED, |out| {
            self.write_forwarded(out, &peer, scheme)
        });
        if let Some(proto) = self.forwarded_proto(fields) {
            known_field(out, b"x-forwarded-proto: ", proto.as_bytes());
        }
        if let Some(client) = &self.origin.client {
            let certificate = client.forwarded.as_bytes();
            self.write_list(out, fields, &X_FORWARDED_CLIENT_CERT, |out| {
                out.extend_from_slice(certificate)
            });
        }
        if let Some(host) = self.forwarded_host(fields) {
            known_field(out, b"x-forwarded-host: ", host.as_bytes());
        }
        known_field(out, b"x-request-id: ", self.request_id.as_bytes());
        known_field(out, b"via: ", via(self.received).as_bytes());
    }

    /// The address at the other end of the connection.
    fn peer_text(&self) -> SmallVec<[u8; 48]> {
        let mut peer = SmallVec::new();
        text::push_address(&mut peer, self.origin.peer);
        peer
    }

    /// The `X-Forwarded-Proto` that is added. `None`: a trusted peer's is kept.
    fn forwarded_proto(&self, fields: &HeaderMap) -> Option<&'static str> {
        if self.origin.peer_trusted && fields.contains_key(X_FORWARDED_PROTO) {
            None
        } else {
            Some(self.origin.scheme.as_str())
        }
    }

    /// The `X-Forwarded-Host` that is added. `None`: a trusted peer's is kept, or the client asked
    /// for none.
    fn forwarded_host(&self, fields: &HeaderMap) -> Option<&HeaderValue> {
        if self.origin.peer_trusted && fields.contains_key(X_FORWARDED_HOST) {
            None
        } else {
            self.host.as_ref()
        }
    }

    /// Whether an added field takes the place of `name`. The fields of an untrusted peer were
    /// removed before.
    fn replaces(&self, name: &HeaderName) -> bool {
        self.origin.peer_trusted
            && (*name == X_FORWARDED_FOR
                || *name == FORWARDED
                || *name == REQUEST_ID
                || (*name == X_FORWARDED_CLIENT_CERT && self.origin.client.is_some()))
    }

    /// Writes a list with one more element, in one line: not every upstream reads a second line. A
    /// trusted peer's elements are kept if they are a list, others are replaced.
    fn write_list(
        &self,
        out: &mut BytesMut,
        fields: &HeaderMap,
        name: &HeaderName,
        element: impl FnOnce(&mut BytesMut),
    ) {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        self.write_elements(out, fields, name, element);
        out.extend_from_slice(b"\r\n");
    }

    /// The value of a list with one more element, for which `text` has room.
    fn list(
        &self,
        text: &mut BytesMut,
        fields: &HeaderMap,
        name: &HeaderName,
        element: impl FnOnce(&mut BytesMut),
    ) -> Option<HeaderValue> {
        self.write_elements(text, fields, name, element);
        HeaderValue::from_maybe_shared(text.split().freeze()).ok()
    }

    #[inline]
    fn write_elements(
        &self,
        out: &mut BytesMut,
        fields: &HeaderMap,
        name: &HeaderName,
        element: impl FnOnce(&mut BytesMut),
    ) {
        if self.origin.peer_trusted && can_be_extended(fields, name) {
            for value in fields.get_all(name) {
                out.extend_from_slice(value.as_bytes());
                out.extend_from_slice(b", ");
            }
        }
        element(out);
    }

    /// Writes an element of `Forwarded` (RFC 7239 §4, §6): IPv6 in brackets and quotes, the host in
    /// quotes for its port.
    fn write_forwarded(&self, out: &mut BytesMut, peer: &[u8], scheme: &str) {
        out.extend_from_slice(b"for=");
        if self.origin.peer.is_ipv6() {
            out.extend_from_slice(b"\"[");
            out.extend_from_slice(peer);
            out.extend_from_slice(b"]\"");
        } else {
            out.extend_from_slice(peer);
        }
        if let Some(host) = &self.host {
            out.extend_from_slice(b";host=\"");
            write_quoted(out, host.as_bytes());
            out.extend_from_slice(b"\"");
        }
        out.extend_from_slice(b";proto=");
        out.extend_from_slice(scheme.as_bytes());
    }

    fn write_hop(&self, out: &mut BytesMut) {
        match &self.hop {
            HopFields::Nothing => {}
            HopFields::Upgrade(protocol) => {
                field(out, UPGRADE.as_str(), protocol.as_bytes());
                field(out, CONNECTION.as_str(), b"upgrade");
            }
            HopFields::TeTrailers => {
                field(out, TE.as_str(), b"trailers");
                field(out, CONNECTION.as_str(), b"te");
            }
        }
    }
}

/// Whether an element behind these lists of a trusted peer is read as one. The peer may pass on
/// what a client has sent: a quotation mark without an end would swallow the element.
fn can_be_extended(fields: &HeaderMap, name: &HeaderName) -> bool {
    let mut lines = fields.get_all(name).iter().map(HeaderValue::as_bytes);
    if *name == FORWARDED {
        lines.all(is_forwarded)
    } else if *name == X_FORWARDED_CLIENT_CERT {
        lines.all(syntax::is_closed)
    } else {
        // Elements of X-Forwarded-For end at a comma, whatever is in them.
        true
    }
}

fn append_if_some(out: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    if let Some(value) = value {
        out.append(name, value);
    }
}

/// Writes the inside of a quoted string (RFC 9110 §5.6.4).
fn write_quoted(out: &mut BytesMut, mut text: &[u8]) {
    // Quoted text is short: a plain loop is done before a vectorised one has begun.
    while let Some(special) = text.iter().position(|byte| matches!(byte, b'"' | b'\\')) {
        out.extend_from_slice(&text[..special]);
        out.extend_from_slice(&[b'\\', text[special]]);
        text = &text[special + 1..];
    }
    out.extend_from_slice(text);
}

/// Joins cookies into one line, as HTTP/1.1 has them. HTTP/2 splits them for compression (RFC 9113
/// §8.2.3).
pub fn join_cookies(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(COOKIE).iter();
    if let (Some(first), Some(second)) = (lines.next(), lines.next()) {
        let mut joined = first.as_bytes().to_vec();
        for line in std::iter::once(second).chain(lines) {
            joined.extend_from_slice(b"; ");
            joined.extend_from_slice(line.as_bytes());
        }
        if let Ok(joined) = HeaderValue::try_from(joined) {
            headers.insert(COOKIE, joined);
        }
    }
}

/// Adds the fields that a response gains. `upgrade`: the protocol that the connection changes to,
/// or has to (RFC 9110 §7.8).
pub fn add_to_response(
    headers: &mut HeaderMap,
    received: Version,
    request_id: &HeaderValue,
    upgrade: Option<HeaderValue>,
) {
    headers.append(VIA, HeaderValue::from_static(via(received)));
    headers.insert(REQUEST_ID, request_id.clone());
    if let Some(protocol) = upgrade {
        headers.insert(UPGRADE, protocol);
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
}

/// The element of `Via` for a message that was received in this version (RFC 9110 §7.6.3).
fn via(received: Version) -> &'static str {
    match received {
        Version::HTTP_2 => "2 tollgate",
        Version::HTTP_10 => "1.0 tollgate",
        _ => "1.1 tollgate",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::message::samples::{map, origin};
    use tollgate_wire::http::RequestScheme;
    use tollgate_wire::transport::tls::server::client_certificate::ClientIdentity;

    /// The lines of a request from `origin` that asked for `host` with `fields`.
    fn written(
        origin: &ClientOrigin,
        host: Option<&'static str>,
        fields: &[(&'static str, &str)],
    ) -> Vec<String> {
        let request_id = HeaderValue::from_static("id");
        let additions = Additions {
            origin,
            host: host.map(HeaderValue::from_static),
            request_id: &request_id,
            received: Version::HTTP_11,
            hop: HopFields::Nothing,
        };
        let mut out = BytesMut::new();
        additions.write(&mut out, &map(fields));
        String::from_utf8(out.to_vec())
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn lists_of_a_trusted_peer_are_extended_in_one_line() {
        let fields = [
            ("x-forwarded-for", "203.0.113.9"),
            ("x-forwarded-for", "10.0.0.2"),
            ("forwarded", "for=203.0.113.9"),
            ("x-forwarded-proto", "https"),
            ("x-request-id", "theirs"),
        ];
        assert_eq!(
            written(&origin("10.0.0.1", true), Some("a.example:8080"), &fields),
            [
                "x-forwarded-proto: https",
                "x-forwarded-for: 203.0.113.9, 10.0.0.2, 10.0.0.1",
                "forwarded: for=203.0.113.9, for=10.0.0.1;host=\"a.example:8080\";proto=https",
                "x-forwarded-host: a.example:8080",
                "x-request-id: id",
                "via: 1.1 tollgate",
            ]
        );
    }

    #[test]
    fn a_list_that_would_swallow_the_element_behind_it_is_dropped() {
        for list in ["for=\"_, for=203.0.113.9", "for=203.0.113.9;by"] {
            let fields = [("forwarded", "for=10.0.0.2"), ("forwarded", list)];
            let lines = written(&origin("10.0.0.1", true), None, &fields);
            assert_eq!(values_of(&lines, "forwarded"), ["for=10.0.0.1;proto=http"]);
        }
        let fields = [("x-forwarded-for", "\", 203.0.113.9")];
        let lines = written(&origin("10.0.0.1", true), None, &fields);
        assert_eq!(
            values_of(&lines, "x-forwarded-for"),
            ["\", 203.0.113.9, 10.0.0.1"]
        );
    }

    #[test]
    fn forwarded_quotes_ipv6_and_escapes_the_host() {
        let lines = written(&origin("2001:db8::1", false), Some("a\"b\\c"), &[]);
        assert_eq!(lines[0], "x-forwarded-for: 2001:db8::1");
        assert_eq!(
            lines[1],
            "forwarded: for=\"[2001:db8::1]\";host=\"a\\\"b\\\\c\";proto=http"
        );
    }

    /// The values of the lines of this field.
    fn values_of(lines: &[String], name: &str) -> Vec<String> {
        let mut values = Vec::new();
        for line in lines {
            let (field, value) = line.split_once(": ").unwrap();
            if field == name {
                values.push(value.to_owned());
            }
        }
        values
    }

    #[test]
    fn the_scheme_is_that_of_the_connection_unless_a_trusted_proxy_says_another() {
        for (claim, field, element) in [
            (None, "https", "proto=https"),
            (Some("http"), "http", "proto=http"),
            (Some("http, https"), "http, https", "proto=http"),
            // A value that is no scheme would add a parameter of its own.
            (Some("http;for=x"), "http;for=x", "proto=https"),
        ] {
            let origin = ClientOrigin {
                scheme: RequestScheme::Https,
                ..origin("10.0.0.1", claim.is_some())
            };
            let fields: Vec<_> = claim
                .map(|value| ("x-forwarded-proto", value))
                .into_iter()
                .collect();
            let lines = written(&origin, None, &fields);
            assert_eq!(values_of(&lines, "x-forwarded-proto"), [field]);
            let forwarded = &values_of(&lines, "forwarded")[0];
            assert_eq!(forwarded.split(';').next_back(), Some(element));
        }
    }

    #[test]
    fn the_certificate_of_a_client_is_added_and_claims_about_it_are_replaced() {
        let identity = ClientIdentity {
            certificate: Default::default(),
            forwarded: "Hash=ab".parse().unwrap(),
        };
        let client = Some(Arc::new(identity));
        let claim = [("x-forwarded-client-cert", "Hash=cd")];
        for (trusted, client, expected) in [
            (false, &client, &["Hash=ab"][..]),
            (true, &client, &["Hash=cd, Hash=ab"]),
            (true, &None, &["Hash=cd"]),
            (false, &None, &[]),
        ] {
            let origin = ClientOrigin {
                client: client.clone(),
                ..origin("10.0.0.1", trusted)
            };
            let fields = if trusted { &claim[..] } else { &[] };
            let lines = written(&origin, None, fields);
            assert_eq!(values_of(&lines, "x-forwarded-client-cert"), expected);
        }
    }

    #[test]
    fn both_versions_get_the_same_fields_and_http_2_does_not_index_the_request_id() {
        let identity = ClientIdentity {
            certificate: Default::default(),
            forwarded: "Hash=ab".parse().unwrap(),
        };
        let client = Some(Arc::new(identity));
        let fields = [
            ("x-forwarded-for", "203.0.113.9"),
            ("x-forwarded-host", "b.example"),
            ("accept", "*/*"),
        ];
        for (peer, trusted, fields) in [
            ("10.0.0.1", true, &fields[..]),
            ("2001:db8::1", false, &fields[2..]),
        ] {
            let origin = ClientOrigin {
                client: client.clone(),
                ..origin(peer, trusted)
            };
            let mut lines = written(&origin, Some("a.example"), fields);
            let request_id = HeaderValue::from_static("id");
            let additions = Additions {
                origin: &origin,
                host: Some(HeaderValue::from_static("a.example")),
                request_id: &request_id,
                received: Version::HTTP_11,
                hop: HopFields::Nothing,
            };
            let mut appended = HeaderMap::new();
            additions.append(&mut appended, &map(fields));
            assert!(appended[REQUEST_ID].is_sensitive());
            let mut others: Vec<_> = appended
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
                .collect();
            lines.sort();
            others.sort();
            assert_eq!(lines, others);
        }
    }

    #[test]
    fn cookie_crumbs_become_one_line() {
        let mut headers = map(&[("cookie", "a=1"), ("cookie", "b=2"), ("cookie", "c=3")]);
        join_cookies(&mut headers);
        assert_eq!(
            headers.get_all("cookie").iter().collect::<Vec<_>>(),
            ["a=1; b=2; c=3"]
        );
    }

    #[test]
    fn via_names_the_version_received() {
        assert_eq!(
            written(&origin("10.0.0.1", false), None, &[("via", "1.0 edge")])[0],
            "via: 1.0 edge"
        );
        let mut headers = map(&[("via", "1.0 edge")]);
        add_to_response(
            &mut headers,
            Version::HTTP_2,
            &HeaderValue::from_static("id"),
            None,
        );
        assert_eq!(
            headers.get_all("via").iter().collect::<Vec<_>>(),
            ["1.0 edge", "2 tollgate"]
        );
    }
}

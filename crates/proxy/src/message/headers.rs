//! Removes fields from a message on its way through.
//!
//! Guarantees that fields for one connection do not reach the next (RFC 9110 §7.6.1), that no
//! client passes for a proxy, and that `Connection` cannot remove a body's framing. The gateway's
//! own fields are added later, so no peer can have them removed.

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use tollgate_wire::fields;
use tollgate_wire::http::{response_rules, syntax, upgrade_rules};

/// Fields of interest that the header section had before fields were removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FieldSummary {
    /// The `Upgrade` that `Connection` announces.
    pub upgrade: Option<HeaderValue>,
    /// The client accepts trailers.
    pub te_trailers: bool,
    /// The message had a transfer coding: a length beside it means nothing (RFC 9112 §6.3).
    pub transfer_encoding: bool,
    /// Fields that are handled later. Most messages have none of them, and then the header map is
    /// not searched again.
    pub content_length: bool,
    pub cookie: bool,
    pub expect: bool,
}

/// Names of fields to remove; rarely more than a few.
type RemovedNames = SmallVec<[HeaderName; 8]>;

/// Removes the fields of a request that are meant for this connection only, and those in which an
/// untrusted peer makes claims about its origin, unless those are gone already ([`strip_claims`]).
pub fn strip_request(
    headers: &mut HeaderMap,
    peer_trusted: bool,
    claims_stripped: bool,
) -> FieldSummary {
    strip(headers, |name, text| match *name {
        PROXY_AUTHORIZATION => true,
        FORWARDED => !peer_trusted,
        _ => !claims_stripped && is_refused_claim(text, peer_trusted),
    })
}

/// Removes the fields in which an untrusted peer makes claims about its origin, save `Forwarded`,
/// which no layer sets before the request is sent.
pub fn strip_claims(headers: &mut HeaderMap, peer_trusted: bool) {
    fields::remove(headers, |name| {
        is_refused_claim(name.as_str(), peer_trusted)
    });
}

#[inline]
fn is_refused_claim(name: &str, peer_trusted: bool) -> bool {
    // Claims begin with `cl`, or with `x` and a separator: other names are not searched.
    if !matches!(name.as_bytes(), [b'c', b'l', ..])
        && !matches!(name.as_bytes(), [b'x', separator, ..] if !separator.is_ascii_alphanumeric())
    {
        return false;
    }
    match syntax::undisguised(name) {
        Some(name) => is_claim(&name),
        None => !peer_trusted && is_claim(name),
    }
}

/// Whether upstreams take this field for a proxy's: for whom it asks, or what it was asked for,
/// which some go by instead of the target. Upstreams that turn field names into variables cannot
/// tell `_` from `-`, or even `.`; no proxy writes them, but a client that wants to pass for a
/// proxy does.
pub fn is_claim(name: &str) -> bool {
    name.starts_with("x-forwarded-")
        || name.starts_with("x-original-")
        || matches!(
            name,
            "x-real-ip" | "x-request-id" | "x-rewrite-url" | "client-cert" | "client-cert-chain"
        )
}

/// Removes the fields of a response that are meant for this connection only.
pub fn strip_response(headers: &mut HeaderMap) -> FieldSummary {
    strip(headers, |_, _| false)
}

/// Removes hop-by-hop fields, and fields for which `also` holds, by name and its text.
fn strip(headers: &mut HeaderMap, also: impl Fn(&HeaderName, &str) -> bool) -> FieldSummary {
    let mut summary = FieldSummary::default();
    let mut removed = RemovedNames::new();
    let mut connection = false;
    let mut via = false;
    for name in headers.keys() {
        match *name {
            CONNECTION => connection = true,
            TE => summary.te_trailers = takes_trailers(headers),
            TRANSFER_ENCODING => summary.transfer_encoding = true,
            CONTENT_LENGTH => summary.content_length = true,
            COOKIE => summary.cookie = true,
            EXPECT => summary.expect = true,
            VIA => via = true,
            _ => {}
        }
        let text = name.as_str();
        if response_rules::is_hop_by_hop(name, text)
            || syntax::is_disguised_framing(text)
            || also(name, text)
        {
            removed.push(name.clone());
        }
    }
    if connection {
        read_connection(headers, &mut summary, &mut removed);
    }
    for name in &removed {
        headers.remove(name);
    }
    if summary.transfer_encoding {
        headers.remove(CONTENT_LENGTH);
    }
    // The way of a message is one list: an end within a comment would hide the gateway.
    if via && !is_way_closed(headers) {
        headers.remove(VIA);
    }
    summary
}

fn is_way_closed(headers: &HeaderMap) -> bool {
    let mut ways = headers.get_all(VIA).iter();
    ways.all(|way| syntax::is_closed(way.as_bytes()))
}

/// Reads every option of every `Connection` line. No option removes `Host` or `Content-Length`:
/// they say where a message goes and where it ends.
fn read_connection(headers: &HeaderMap, summary: &mut FieldSummary, removed: &mut RemovedNames) {
    let mut upgrades = false;
    for option in headers.get_all(CONNECTION).iter().flat_map(options) {
        if option.eq_ignore_ascii_case(b"upgrade") {
            upgrades = true;
        } else if !option.eq_ignore_ascii_case(b"close")
            && !option.eq_ignore_ascii_case(b"keep-alive")
            && let Ok(name) = HeaderName::from_bytes(option)
            && name != HOST
            && name != CONTENT_LENGTH
        {
            removed.push(name);
        }
    }
    if upgrades {
        summary.upgrade = upgrade_rules::protocols(headers);
    }
}

/// Removes the fields that `Connection` names, and their names from it. A field that is set
/// afterwards stays.
pub fn settle_connection(headers: &mut HeaderMap) {
    let mut named = RemovedNames::new();
    let mut kept = SmallVec::<[&[u8]; 8]>::new();
    for option in headers.get_all(CONNECTION).iter().flat_map(options) {
        match named_field(option) {
            Some(name) => named.push(name),
            None => kept.push(option),
        }
    }
    if named.is_empty() {
        return;
    }
    let value = HeaderValue::from_bytes(&kept.join(&b", "[..]));
    drop(kept);
    headers.remove(CONNECTION);
    if let Ok(value) = value {
        headers.insert(CONNECTION, value);
    }
    for name in named {
        headers.remove(name);
    }
}

/// The field that an option of `Connection` names. `None`: the option is none that is removed.
fn named_field(option: &[u8]) -> Option<HeaderName> {
    let name = HeaderName::from_bytes(option).ok()?;
    let is_option = matches!(name.as_str(), "close" | "keep-alive")
        || response_rules::is_hop_by_hop(&name, name.as_str());
    if is_option || name == HOST || name == CONTENT_LENGTH {
        None
    } else {
        Some(name)
    }
}

fn takes_trailers(headers: &HeaderMap) -> bool {
    headers
        .get_all(TE)
        .iter()
        .flat_map(options)
        .any(|option| option.eq_ignore_ascii_case(b"trailers"))
}

fn options(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    value
        .as_bytes()
        .split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|option| !option.is_empty())
}

/// Whether the client waits for a 100 before it sends its body (RFC 9110 §10.1.1).
pub fn expects_continue(headers: &HeaderMap) -> bool {
    headers
        .get(EXPECT)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::samples::map;

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
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
        strip_request(&mut headers, false, false);
        assert_eq!(names(&headers), ["accept", "trailer"]);
    }

    #[test]
    fn fields_that_some_servers_take_for_framing_stay_on_their_hop() {
        let mut headers = map(&[
            ("content_length", "5"),
            ("transfer.encoding", "chunked"),
            ("keep_alive", "1"),
            ("proxy_connection", "close"),
            ("content_type", "a/b"),
        ]);
        strip_request(&mut headers, true, false);
        assert_eq!(names(&headers), ["content_type"]);
        let mut headers = map(&[("content_length", "5")]);
        strip_response(&mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn a_way_that_ends_within_a_comment_is_dropped() {
        for (way, kept) in [("1.1 a (b)", true), ("1.1 a (b", false)] {
            let mut headers = map(&[("via", "1.1 c"), ("via", way)]);
            strip_request(&mut headers, false, false);
            assert_eq!(headers.contains_key("via"), kept, "{way}");
        }
    }

    #[test]
    fn an_upgrade_that_is_announced_often_is_one() {
        let mut headers = map(&[("connection", "upgrade, upgrade"), ("upgrade", "a, b")]);
        let summary = strip_request(&mut headers, false, false);
        assert_eq!(summary.upgrade, Some(HeaderValue::from_static("a, b")));
    }

    #[test]
    fn every_field_named_in_any_connection_line_is_removed() {
        let mut headers = map(&[
            ("connection", "X-One ,, x-two"),
            ("connection", "x-three,close"),
            ("x-one", "1"),
            ("x-one", "again"),
            ("x-two", "2"),
            ("x-three", "3"),
            ("x-four", "4"),
        ]);
        strip_request(&mut headers, false, false);
        assert_eq!(names(&headers), ["x-four"]);
    }

    #[test]
    fn a_settled_connection_names_nothing_that_comes_later() {
        let mut headers = map(&[
            ("connection", "X-One, close,te"),
            ("connection", "upgrade, x-two, host"),
            ("x-one", "1"),
        ]);
        settle_connection(&mut headers);
        assert_eq!(
            headers.get(CONNECTION),
            Some(&HeaderValue::from_static("close, te, upgrade, host"))
        );
        assert_eq!(names(&headers), ["connection"]);
        let mut headers = map(&[("connection", "x-one"), ("x-two", "2")]);
        settle_connection(&mut headers);
        assert_eq!(headers.get(CONNECTION), Some(&HeaderValue::from_static("")));
    }

    #[test]
    fn connection_cannot_remove_host_and_length() {
        let mut headers = map(&[
            ("connection", "host, Content-Length"),
            ("host", "a"),
            ("content-length", "3"),
        ]);
        strip_request(&mut headers, false, false);
        assert_eq!(names(&headers), ["content-length", "host"]);
    }

    #[test]
    fn an_upgrade_needs_to_be_announced() {
        let mut headers = map(&[
            ("upgrade", "websocket"),
            ("connection", "keep-alive, Upgrade"),
        ]);
        assert_eq!(
            strip_request(&mut headers, false, false).upgrade,
            Some(HeaderValue::from_static("websocket"))
        );
        let mut headers = map(&[("upgrade", "websocket")]);
        assert_eq!(strip_request(&mut headers, false, false).upgrade, None);
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
            ("x-forwarded-client-cert", "Hash=ab"),
            ("client-cert", ":ab:"),
            ("x-real-ip", "1.1.1.1"),
            ("x-original-url", "/admin"),
            ("x-rewrite-url", "/admin"),
            ("forwarded", "for=1.1.1.1"),
        ];
        let mut headers = map(&claims);
        strip_request(&mut headers, false, false);
        assert!(headers.is_empty());
        let mut headers = map(&claims);
        strip_request(&mut headers, true, false);
        assert_eq!(headers.len(), claims.len());
    }

    #[test]
    fn a_claim_is_not_disguised_by_underscores() {
        let mut headers = map(&[
            ("x_forwarded_for", "1"),
            ("x-forwarded_proto", "1"),
            ("x_real_ip", "1"),
            ("x_own", "1"),
        ]);
        strip_request(&mut headers, true, false);
        assert_eq!(names(&headers), ["x_own"]);
    }
}

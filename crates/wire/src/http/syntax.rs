//! Which bytes may stand where in a header section (RFC 9110 §5, RFC 9112 §3, RFC 3986), in every
//! version of HTTP.
//!
//! Pure functions that allocate nothing.

use std::net::Ipv6Addr;

use tollgate_limiter::limit::key::is_same_variable;

use crate::error::Failure;

/// Classes of bytes, each a bit in a table of all bytes.
const TOKEN: u8 = 1;
const TARGET: u8 = 2;
const HOST: u8 = 4;
const QUERY: u8 = 8;

static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        let alphanumeric = b.is_ascii_alphanumeric();
        // RFC 9110 §5.6.2
        if alphanumeric || contains(b"!#$%&'*+-.^_`|~", b) {
            table[byte] |= TOKEN;
        }
        // RFC 3986 §3.3 and §3.4, and what browsers and scripts leave unencoded. Nothing that
        // `http::Uri` refuses.
        if alphanumeric || contains(b"-._~!$&'()*+,;=:@/?%[]\\^{|}", b) {
            table[byte] |= TARGET | QUERY;
        }
        // Browsers encode it in a path, and leave it in a query (URL Standard, "percent-encode
        // sets").
        if b == b'`' {
            table[byte] |= QUERY;
        }
        // RFC 3986 §3.2.2: a host that is neither an IPv6 address nor percent-encoded. Without the
        // comma: a list is what is left of two fields (RFC 9110 §5.3), and no host.
        if alphanumeric || contains(b"-._~!$&'()*+;=", b) {
            table[byte] |= HOST;
        }
        byte += 1;
    }
    table
}

const fn contains(set: &[u8], byte: u8) -> bool {
    let mut at = 0;
    while at < set.len() {
        if set[at] == byte {
            return true;
        }
        at += 1;
    }
    false
}

fn all(bytes: &[u8], class: u8) -> bool {
    let mut common = class;
    for byte in bytes {
        common &= CLASSES[usize::from(*byte)];
    }
    common != 0
}

/// `token` (RFC 9110 §5.6.2).
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, TOKEN)
}

/// Whether a name of `http`'s is a `token`. Quotation marks are the one character besides that such
/// a name may hold.
pub fn is_field_name(name: &str) -> bool {
    memchr::memchr(b'"', name.as_bytes()).is_none()
}

/// Whether a `token` may hold `byte` (RFC 9110 §5.6.2).
pub fn is_token_byte(byte: u8) -> bool {
    CLASSES[usize::from(byte)] & TOKEN != 0
}

/// Whether a field value may hold `byte`: no control character but HTAB may stand there (RFC 9110
/// §5.5).
pub fn is_value_byte(byte: u8) -> bool {
    (byte >= 0x20 && byte != 0x7f) || byte == b'\t'
}

/// Whether all of `bytes` may stand in the path and query of a request target, each in its part.
pub fn is_target(bytes: &[u8]) -> bool {
    all(bytes, TARGET) || is_target_with_query(bytes)
}

#[cold]
fn is_target_with_query(bytes: &[u8]) -> bool {
    match memchr::memchr(b'?', bytes) {
        Some(query) => all(&bytes[..query], TARGET) && all(&bytes[query..], QUERY),
        None => false,
    }
}

/// `uri-host [ ":" port ]`, not empty (RFC 9110 §4.2.1, §7.2).
pub fn is_host(bytes: &[u8]) -> bool {
    match bytes.strip_prefix(b"[") {
        Some(rest) => match memchr::memchr(b']', rest) {
            Some(end) => is_ipv6(&rest[..end]) && is_port(&rest[end + 1..]),
            None => false,
        },
        None => {
            // Hosts are short: a plain loop is done before a vectorised one has begun.
            let mut end = bytes.len();
            let mut has_empty_label = false;
            let mut before = b'.';
            for (at, byte) in bytes.iter().enumerate() {
                if *byte == b':' {
                    end = at;
                    break;
                }
                // A dot at the end is the root's: `a.` is `a`.
                has_empty_label |= *byte == b'.' && before == b'.';
                before = *byte;
            }
            let (name, port) = bytes.split_at(end);
            !name.is_empty() && all(name, HOST) && !has_empty_label && is_port(port)
        }
    }
}

fn is_ipv6(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

fn is_port(bytes: &[u8]) -> bool {
    let digits = match bytes {
        [] => return true,
        [b':', digits @ ..] => digits,
        _ => return false,
    };
    // Five digits at most: nothing overflows.
    if digits.len() > 5 {
        return false;
    }
    let mut port = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return false;
        }
        port = port * 10 + u32::from(digit - b'0');
    }
    port <= u16::MAX.into()
}

/// `bytes` without the spaces and tabs around them.
pub fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Whether a comma-separated list holds `element`, in any case of letters (RFC 9110 §5.6.1).
pub fn list_has(list: &[u8], element: &[u8]) -> bool {
    list.split(|b| *b == b',')
        .any(|found| trim(found).eq_ignore_ascii_case(element))
}

/// Whether every quoted string and comment of a list has an end (RFC 9110 §5.6.4, §5.6.5). Without
/// it, the end of the list is within one, and so is an element that is appended.
pub fn is_closed(list: &[u8]) -> bool {
    let mut quoted = false;
    let mut comments = 0_usize;
    let mut bytes = list.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if quoted || comments > 0 => {
                bytes.next();
            }
            b'"' if comments == 0 => quoted = !quoted,
            b'(' if !quoted => comments += 1,
            b')' if !quoted && comments > 0 => comments -= 1,
            _ => {}
        }
    }
    !quoted && comments == 0
}

/// Whether a field has the name of one that frames messages or is for one connection, to servers
/// that turn names into variables, and has another name to all others.
pub fn is_disguised_framing(name: &str) -> bool {
    let framing = match name.len() {
        10 => "keep-alive",
        14 => "content-length",
        16 => "proxy-connection",
        17 => "transfer-encoding",
        18 => "proxy-authenticate",
        19 => "proxy-authorization",
        _ => return false,
    };
    name != framing && is_same_variable(name, framing)
}

/// The name that servers which turn names into variables may take this one for. `None`: the name is
/// written like that already.
pub fn undisguised(name: &str) -> Option<String> {
    if name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    {
        return None;
    }
    Some(name.replace(|c: char| !c.is_ascii_alphanumeric(), "-"))
}

/// Parses a Content-Length: digits only, one number (RFC 9110 §8.6). A list is refused, even of
/// identical numbers: nobody needs it, and intermediaries differ in how they read it.
pub fn content_length(value: &[u8]) -> Result<u64, Failure> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(Failure::BadRequest("Content-Length is not a number"));
    }
    let mut length = 0_u64;
    for digit in value {
        length = length
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'));
    }
    if i64::try_from(length).is_ok() {
        Ok(length)
    } else {
        Err(Failure::BadRequest("Content-Length is too large"))
    }
}

/// Checks a Transfer-Encoding: exactly `chunked` passes (RFC 9112 §6.1 and §7). Another coding
/// before a final `chunked` is unknown to this gateway: 501. Anything else leaves the length
/// unknown: 400.
pub fn transfer_encoding(value: &[u8]) -> Result<(), Failure> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let mut codings = value.rsplit(|b| *b == b',').map(trim);
    let last = codings.next().unwrap_or_default();
    if last.eq_ignore_ascii_case(b"chunked") && codings.all(is_other_coding) {
        return Err(Failure::NotImplemented(
            "the only transfer coding here is chunked",
        ));
    }
    Err(Failure::BadRequest("Transfer-Encoding is not chunked"))
}

/// Whether a coding, perhaps with parameters, is another one than `chunked`.
fn is_other_coding(coding: &[u8]) -> bool {
    let name = trim(coding.split(|b| *b == b';').next().unwrap_or_default());
    is_token(name) && !name.eq_ignore_ascii_case(b"chunked")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_or_bracketed_addresses_with_an_optional_port() {
        for good in [
            "a",
            "a.example:8080",
            "127.0.0.1:1",
            "[::1]",
            "[::1]:80",
            "a:",
            "a.",
            "xn--bcher-kva.example",
        ] {
            assert!(is_host(good.as_bytes()), "{good}");
        }
        for bad in [
            "", ":80", "a b", "a/b", "u@h", "[::1", "::1", "[]", "[g]", "a:b", "a:1:2", "a,b@c",
            "a[1]", "a?b", "a#b", "a:65536", ".a", "a..b", "a..", ".", "..:1",
        ] {
            assert!(!is_host(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn every_byte_a_target_may_hold_is_one_that_uri_parsing_takes() {
        for byte in 0..=u8::MAX {
            for target in [format!("/{}", byte as char), format!("/?{}", byte as char)] {
                assert!(
                    !is_target(target.as_bytes()) || target.parse::<http::Uri>().is_ok(),
                    "{target}"
                );
            }
        }
    }

    /// The path and query percent-encode sets of the URL Standard, for `http` URLs.
    #[test]
    fn a_target_may_hold_whatever_browsers_leave_unencoded() {
        for byte in b'!'..=b'~' {
            let in_query = !matches!(byte, b'"' | b'#' | b'<' | b'>' | b'\'');
            let in_path = in_query && !matches!(byte, b'?' | b'^' | b'`' | b'{' | b'}');
            assert!(!in_path || is_target(&[b'/', byte]), "{}", byte as char);
            assert!(
                !in_query || is_target(&[b'/', b'?', byte]),
                "{}",
                byte as char
            );
        }
        for refused in [
            "/`", "/`?", "/a\"", "/?\"", "/#", "/?#", "/?<", "/? ", "/?\u{e9}",
        ] {
            assert!(!is_target(refused.as_bytes()), "{refused}");
        }
    }

    #[test]
    fn every_host_is_an_authority() {
        for byte in 0..=u8::MAX {
            let host = [b'a', byte, b'b'];
            if is_host(&host) {
                assert!(http::uri::Authority::try_from(&host[..]).is_ok(), "{byte}");
            }
        }
    }

    #[test]
    fn a_list_has_an_element_or_not() {
        for (list, has) in [
            ("close", true),
            ("x,\tClose ,y", true),
            ("closed", false),
            ("x close", false),
            ("", false),
        ] {
            assert_eq!(list_has(list.as_bytes(), b"close"), has, "{list}");
        }
    }

    #[test]
    fn a_list_is_closed_unless_it_ends_within_a_string_or_a_comment() {
        for closed in [
            "",
            "a, \"b\"",
            "\"\\\"\"",
            "1.1 a (b (c) \\( \")",
            "\"(\"",
            ")",
        ] {
            assert!(is_closed(closed.as_bytes()), "{closed}");
        }
        for open in [
            "\"",
            "a=\"b",
            "\"\\\"",
            "(",
            "1.1 a (b (c)",
            "(\\)",
            "\"a\\",
        ] {
            assert!(!is_closed(open.as_bytes()), "{open}");
        }
    }

    #[test]
    fn framing_is_disguised_by_whatever_some_servers_read_as_a_hyphen() {
        for disguised in ["content_length", "transfer.encoding", "keep~alive"] {
            assert!(is_disguised_framing(disguised), "{disguised}");
        }
        for other in [
            "content-length",
            "content_lengths",
            "content_type",
            "keep-alive",
        ] {
            assert!(!is_disguised_framing(other), "{other}");
        }
    }

    #[test]
    fn a_content_length_is_one_number_in_digits() {
        assert_eq!(content_length(b"0"), Ok(0));
        assert_eq!(content_length(b"007"), Ok(7));
        for bad in [
            "",
            "+1",
            "-1",
            "1,1",
            "1 1",
            "0x1",
            "1.0",
            "9223372036854775808",
            "99999999999999999999999",
        ] {
            assert!(content_length(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_chunked_is_a_transfer_coding() {
        assert_eq!(transfer_encoding(b"chunked"), Ok(()));
        assert_eq!(transfer_encoding(b"CHUNKED"), Ok(()));
        for unknown in ["gzip, chunked", "identity,chunked", "x;a=b, chunked"] {
            assert!(
                matches!(
                    transfer_encoding(unknown.as_bytes()),
                    Err(Failure::NotImplemented(_))
                ),
                "{unknown}"
            );
        }
        for bad in [
            "",
            "identity",
            "chunked, chunked",
            "chunked, gzip",
            "chunked;a=b",
            ",chunked",
            "chunked,",
            "\"chunked\"",
        ] {
            assert!(
                matches!(
                    transfer_encoding(bad.as_bytes()),
                    Err(Failure::BadRequest(_))
                ),
                "{bad}"
            );
        }
    }
}

//! The one spelling of a value that a client can spell in several ways, so that no spelling is a
//! bucket of its own, and the header fields that servers may take for one.
//!
//! Guarantees that a value in its canonical spelling is returned as it is, without a copy.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use percent_encoding::percent_decode;

/// The methods of the IANA registry, but for PRI and `*`, which no request has. All others count as
/// one: a client can make up any number of them.
pub const REGISTERED_METHODS: [&str; 39] = [
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "CONNECT",
    "COPY",
    "DELETE",
    "GET",
    "HEAD",
    "LABEL",
    "LINK",
    "LOCK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "OPTIONS",
    "ORDERPATCH",
    "PATCH",
    "POST",
    "PROPFIND",
    "PROPPATCH",
    "PUT",
    "QUERY",
    "REBIND",
    "REPORT",
    "SEARCH",
    "TRACE",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
];

/// Stands for all methods that are not registered. It is none itself: methods are told apart by
/// case.
const OTHER_METHOD: &str = "other";

/// The registered names of authentication schemes, which are written in any case (RFC 9110 §11.1).
const SCHEMES: [&str; 13] = [
    "Basic",
    "Bearer",
    "Concealed",
    "Digest",
    "DPoP",
    "GNAP",
    "HOBA",
    "Mutual",
    "Negotiate",
    "OAuth",
    "PrivateToken",
    "SCRAM-SHA-1",
    "SCRAM-SHA-256",
];

pub(super) fn method(method: &Method) -> &'static str {
    let canonical = match *method {
        Method::GET => Some("GET"),
        Method::POST => Some("POST"),
        _ => REGISTERED_METHODS
            .into_iter()
            .find(|known| *known == method.as_str()),
    };
    canonical.unwrap_or(OTHER_METHOD)
}

/// Whether two names of fields are one to servers that turn names into variables: they cannot tell
/// `_` from `-` there, and some of them (PHP, lighttpd) neither from `.`, `~` or any other
/// character than a letter or a digit.
#[inline]
pub fn is_same_variable(one: &str, other: &str) -> bool {
    one.len() == other.len()
        && one
            .bytes()
            .map(variable_byte)
            .eq(other.bytes().map(variable_byte))
}

/// The byte for which such a server may take `byte`.
fn variable_byte(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() {
        byte
    } else {
        b'-'
    }
}

/// The values of all fields that [are called](is_same_variable) `name`: an upstream may go by each.
///
/// ```
/// use http::{HeaderMap, HeaderName, HeaderValue};
/// use tollgate_limiter::limit::key::field_values;
///
/// let mut headers = HeaderMap::new();
/// headers.insert("x_api_key", HeaderValue::from_static("k"));
/// let name = HeaderName::from_static("x-api-key");
/// assert!(field_values(&headers, &name).eq([&HeaderValue::from_static("k")]));
/// ```
pub fn field_values<'a>(
    headers: &'a HeaderMap,
    name: &'a HeaderName,
) -> impl Iterator<Item = &'a HeaderValue> {
    headers
        .iter()
        .filter(|(other, _)| is_same_variable(other.as_str(), name.as_str()))
        .map(|(_, value)| value)
}

/// The value of a field without the spaces around it, which are none of it (RFC 9110 §5.5). HTTP/2
/// lets them through.
pub(super) fn field(value: &[u8]) -> &[u8] {
    let begin = value
        .iter()
        .position(|byte| !is_space(*byte))
        .unwrap_or(value.len());
    let end = value
        .iter()
        .rposition(|byte| !is_space(*byte))
        .map_or(begin, |last| last + 1);
    &value[begin..end]
}

/// The value of a cookie without spaces and quotes around it (RFC 6265 §4.1.1), percent-decoded
/// like many servers do.
pub(super) fn cookie(value: &[u8]) -> Cow<'_, [u8]> {
    let value = field(value);
    let bare = value
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""));
    decoded(bare.unwrap_or(value))
}

/// A part of a path or a cookie, percent-decoded.
pub(super) fn decoded(value: &[u8]) -> Cow<'_, [u8]> {
    if value.contains(&b'%') {
        percent_decode(value).collect::<Vec<_>>().into()
    } else {
        value.into()
    }
}

/// The credentials of `Authorization`: the scheme as it is registered, or else in lower case, a
/// space, and the rest; of `Basic` in the only base64 that a strict reader takes.
pub(super) fn credentials(value: &[u8]) -> Cow<'_, [u8]> {
    let value = field(value);
    let end = value
        .iter()
        .position(|byte| is_space(*byte))
        .unwrap_or(value.len());
    let (scheme, rest) = value.split_at(end);
    let token = field(rest);
    let registered = SCHEMES
        .iter()
        .find(|known| known.as_bytes().eq_ignore_ascii_case(scheme));
    // Without a space there may be no scheme at all: some clients send a bare token.
    if token.is_empty() && registered.is_none() {
        return value.into();
    }
    let scheme: Cow<'_, [u8]> = match registered {
        Some(registered) => registered.as_bytes().into(),
        None if scheme.iter().any(u8::is_ascii_uppercase) => scheme.to_ascii_lowercase().into(),
        None => scheme.into(),
    };
    let token = if *scheme == *b"Basic" {
        base64(token)
    } else {
        token.into()
    };
    let canonical = value.len() == scheme.len() + 1 + token.len()
        && value.starts_with(&scheme)
        && value[scheme.len()] == b' '
        && value.ends_with(&token);
    if canonical {
        value.into()
    } else {
        [&*scheme, b" ", &*token].concat().into()
    }
}

/// Base64 as RFC 4648 §4 has it: other characters dropped, as lenient readers do, unused bits zero,
/// and padded. A text that is no base64 stays as it is.
fn base64(text: &[u8]) -> Cow<'_, [u8]> {
    let mut bare: Vec<u8> = Vec::new();
    let digits = text.iter().filter_map(|byte| match byte {
        b'-' => Some(b'+'),
        b'_' => Some(b'/'),
        b'+' | b'/' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => Some(*byte),
        _ => None,
    });
    let (count, last) = digits
        .clone()
        .fold((0_usize, 0), |(count, _), digit| (count + 1, digit));
    let padding: &[u8] = match count % 4 {
        0 => b"",
        2 => b"==",
        3 => b"=",
        _ => return text.into(),
    };
    let last = without_unused_bits(last, padding.len());
    if text.len() == count + padding.len()
        && text.ends_with(padding)
        && (count == 0 || text[count - 1] == last)
        && !text.iter().any(|byte| matches!(byte, b'-' | b'_'))
        && !text[..count].contains(&b'=')
    {
        return text.into();
    }
    bare.extend(digits);
    if let Some(end) = bare.last_mut() {
        *end = last;
    }
    bare.extend_from_slice(padding);
    bare.into()
}

/// The last digit before so much padding, each `=` of which leaves two bits unused.
fn without_unused_bits(digit: u8, padding: usize) -> u8 {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mask = [0x3f, 0x3c, 0x30][padding.min(2)];
    DIGITS
        .iter()
        .position(|known| *known == digit)
        .map_or(digit, |value| DIGITS[value & mask])
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_have_one_spelling() {
        for (canonical, others) in [
            (
                "Bearer k",
                &["bearer k", "BEARER  k", " Bearer\tk ", "bEaReR   k"][..],
            ),
            // aladdin:opensesame
            (
                "Basic YWxhZGRpbjpvcGVuc2VzYW1l",
                &[
                    "basic YWxhZGRpbjpvcGVuc2VzYW1l",
                    "Basic YWxhZGRpbjpvcGVu c2VzYW1l",
                    "Basic YWxhZGRpbjpvcGVuc2VzYW1l==",
                ],
            ),
            (
                "Basic YTpi",
                &["Basic YTpi=", "Basic YTp=i", "Basic YTpi===="],
            ),
            (
                "Basic YTpiYw==",
                &[
                    "Basic YTpiYw",
                    "Basic YTpiYw=",
                    "Basic YTpiYx==",
                    "Basic YTpiYx",
                    "Basic YTpi.Yw==",
                ],
            ),
            ("Basic YTp+fn4/", &["Basic YTp-fn4_", "basic YTp+fn4_"]),
            ("Basic x", &["basic  x"]),
            ("apikey K", &["ApiKey K", "APIKEY \t K"]),
            ("bare-Token", &[" bare-Token "]),
        ] {
            assert!(
                matches!(credentials(canonical.as_bytes()), Cow::Borrowed(same) if same == canonical.as_bytes()),
                "{canonical}"
            );
            for other in others {
                let spelt = credentials(other.as_bytes());
                assert_eq!(String::from_utf8_lossy(&spelt), canonical, "{other}");
            }
        }
    }

    #[test]
    fn different_credentials_stay_different() {
        let all = [
            "Bearer k",
            "Bearer K",
            "Basic YTpi",
            "Basic YTpj",
            "Bearer YTpi",
            "Bearer YTpi=",
            "k",
            "K",
            "Digest k",
        ];
        for (at, one) in all.iter().enumerate() {
            for other in &all[at + 1..] {
                assert_ne!(credentials(one.as_bytes()), credentials(other.as_bytes()));
            }
        }
    }

    #[test]
    fn cookies_have_one_spelling() {
        for other in ["a b", " a b", "\"a b\"", " \"a b\"\t", "a%20b", "\"%61 b\""] {
            assert_eq!(*cookie(other.as_bytes()), *b"a b", "{other}");
        }
        for (text, value) in [
            ("\"", "\""),
            ("\"a", "\"a"),
            ("\"\"a\"\"", "\"a\""),
            ("%", "%"),
            ("", ""),
        ] {
            assert_eq!(*cookie(text.as_bytes()), *value.as_bytes());
        }
    }

    #[test]
    fn methods_that_nobody_registered_are_one() {
        for (name, counted) in [
            ("GET", "GET"),
            ("get", "other"),
            ("PROPFIND", "PROPFIND"),
            ("X1", "other"),
            ("PURGE", "other"),
            ("QUERY", "QUERY"),
            ("other", "other"),
        ] {
            assert_eq!(
                method(&Method::from_bytes(name.as_bytes()).unwrap()),
                counted,
                "{name}"
            );
        }
    }
}

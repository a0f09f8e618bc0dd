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
pub(super) fn variable_byte(byte: u8) -> u8 {
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

/// The value of a cookie, as servers read it that undo what others have written: without white
/// space and quotes around it (RFC 6265 §4.1.1), without backslashes within quotes (RFC 2109 §4.1),
/// percent-decoded. `None`: some find another value. Of one that begins with a quote, Express takes
/// the last character for the other, and it reads JSON behind `j:`.
pub(super) fn cookie(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    let value = trimmed(value);
    let bare = unquoted(value);
    let is_quoted = bare.len() < value.len();
    let plain: Cow<'_, [u8]> = if is_quoted && bare.contains(&b'\\') {
        unescaped(bare).into()
    } else {
        bare.into()
    };
    let plain = match plain {
        Cow::Borrowed(plain) => decoded(plain),
        Cow::Owned(plain) => decoded(&plain).into_owned().into(),
    };
    let plain = without_space(plain);
    let is_quoted_once = !is_quoted && value.starts_with(b"\"");
    if is_quoted_once || plain.starts_with(b"j:") {
        None
    } else {
        Some(plain)
    }
}

/// A value without the white space around it, which frameworks drop that tidy what people type.
pub(super) fn without_space(value: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    match value {
        Cow::Borrowed(value) => trimmed(value).into(),
        Cow::Owned(value) => match trimmed(&value) {
            bare if bare.len() == value.len() => value.into(),
            bare => bare.to_vec().into(),
        },
    }
}

/// The text without one pair of quotes around it, as cookies may have (RFC 6265 §4.1.1).
pub fn unquoted(text: &[u8]) -> &[u8] {
    let inner = text
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""));
    inner.unwrap_or(text)
}

/// The inside of a quoted string as Python reads it: a backslash stands before a character that is
/// meant, or before three octal digits.
fn unescaped(mut text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    while let Some((byte, rest)) = text.split_first() {
        text = rest;
        match (byte, rest) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..]) => {
                plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                text = rest;
            }
            (b'\\', [escaped, rest @ ..]) => {
                plain.push(*escaped);
                text = rest;
            }
            _ => plain.push(*byte),
        }
    }
    plain
}

/// The text without what is white space around it to servers that read UTF-8, or Latin-1. PHP drops
/// a NUL, too.
pub(super) fn trimmed(mut text: &[u8]) -> &[u8] {
    while let Some(length) = white_space(|length| text.get(..length)) {
        text = &text[length..];
    }
    while let Some(length) = white_space(|length| text.get(text.len().checked_sub(length)?..)) {
        text = &text[..text.len() - length];
    }
    text
}

/// The bytes of the character at an end of a text, if it is white space. `end` gives so many bytes
/// of that end.
fn white_space<'a>(end: impl Fn(usize) -> Option<&'a [u8]>) -> Option<usize> {
    let Some([byte]) = end(1) else { return None };
    if !byte.is_ascii() {
        // The last byte of a character of UTF-8 may be one of Latin-1.
        for length in 2..=4 {
            let text = str::from_utf8(end(length).unwrap_or_default()).unwrap_or_default();
            let mut chars = text.chars();
            if let (Some(c), None) = (chars.next(), chars.next()) {
                return is_space_character(c).then_some(length);
            }
        }
    }
    (*byte == 0 || char::from(*byte).is_whitespace()).then_some(1)
}

/// Whether readers drop the character around a text.
pub(super) fn is_space_character(c: char) -> bool {
    c.is_whitespace() || c == '\u{feff}'
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
/// space, and the rest; of `Basic` in the only base64 that a strict reader takes. `None`: readers
/// differ about them.
pub(super) fn credentials(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    let value = field(value);
    let end = value
        .iter()
        .position(|byte| is_space(*byte))
        .unwrap_or(value.len());
    let (scheme, rest) = value.split_at(end);
    let token = trimmed(rest);
    let registered = SCHEMES
        .iter()
        .find(|known| known.as_bytes().eq_ignore_ascii_case(scheme));
    // Without a space there may be no scheme at all: some clients send a bare token.
    if token.is_empty() && registered.is_none() {
        return Some(value.into());
    }
    let scheme: Cow<'_, [u8]> = match registered {
        Some(registered) => registered.as_bytes().into(),
        None if scheme.iter().any(u8::is_ascii_uppercase) => scheme.to_ascii_lowercase().into(),
        None => scheme.into(),
    };
    let token = match &*scheme {
        b"Basic" => base64(token)?,
        // A token has neither (RFC 6750 §2.1). Laravel ends it at a comma.
        b"Bearer" if token.iter().any(|byte| *byte == b',' || is_space(*byte)) => return None,
        b"Bearer" => token.into(),
        _ if holds_scheme(token, "Bearer") => return None,
        _ => token.into(),
    };
    let canonical = value.len() == scheme.len() + 1 + token.len()
        && value.starts_with(&scheme)
        && value[scheme.len()] == b' '
        && value.ends_with(&token);
    Some(if canonical {
        value.into()
    } else {
        [&*scheme, b" ", &*token].concat().into()
    })
}

/// Whether credentials of `scheme` begin within: Laravel takes what is behind the last `Bearer`.
pub fn holds_scheme(credentials: &[u8], scheme: &str) -> bool {
    let mut places = credentials.windows(scheme.len() + 1);
    places.any(|place| {
        place.split_last().is_some_and(|(end, name)| {
            is_space(*end) && name.eq_ignore_ascii_case(scheme.as_bytes())
        })
    })
}

/// Base64 as RFC 4648 §4 has it: other characters dropped, as lenient readers do, unused bits zero,
/// and padded. `None`: digits stand behind padding, where Python and Node end, and PHP goes on.
fn base64(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    if is_strict_base64(text) {
        return Some(text.into());
    }
    let mut digits = Vec::with_capacity(text.len());
    let mut is_padded = false;
    for byte in text {
        match byte {
            b'=' => is_padded = true,
            b'+' | b'/' | b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                if is_padded {
                    return None;
                }
                digits.push(match byte {
                    b'-' => b'+',
                    b'_' => b'/',
                    byte => *byte,
                });
            }
            _ => {}
        }
    }
    // Six bits that begin a byte are none.
    if digits.len() % 4 == 1 {
        digits.pop();
    }
    let padding: &[u8] = match digits.len() % 4 {
        2 => b"==",
        3 => b"=",
        _ => b"",
    };
    if let Some(last) = digits.last_mut() {
        *last = without_unused_bits(*last, padding.len());
    }
    digits.extend_from_slice(padding);
    Some(digits.into())
}

/// Whether a text is written as RFC 4648 §4 has it.
fn is_strict_base64(text: &[u8]) -> bool {
    let end = text
        .iter()
        .position(|byte| *byte == b'=')
        .unwrap_or(text.len());
    let (digits, padding) = text.split_at(end);
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    text.len().is_multiple_of(4)
        && matches!(padding, b"" | b"=" | b"==")
        && digits.iter().all(is_digit)
        && digits
            .last()
            .is_none_or(|last| without_unused_bits(*last, padding.len()) == *last)
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
                &[
                    "Basic YTpi=",
                    "Basic YTpi====",
                    "Basic YTpiY",
                    "Basic YTpiZ=",
                ],
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
            ("apikey K", &["ApiKey K", "APIKEY \t K"]),
            ("bare-Token", &[" bare-Token "]),
        ] {
            assert!(
                matches!(credentials(canonical.as_bytes()), Some(Cow::Borrowed(same)) if same == canonical.as_bytes()),
                "{canonical}"
            );
            for other in others {
                let spelt = credentials(other.as_bytes()).unwrap();
                assert_eq!(String::from_utf8_lossy(&spelt), canonical, "{other}");
            }
        }
    }

    #[test]
    fn base64_that_goes_on_behind_its_padding_has_no_spelling() {
        for text in ["Basic YTp=i", "Basic YTpiYw==0007AA"] {
            assert_eq!(credentials(text.as_bytes()), None, "{text}");
        }
        assert!(credentials(b"basic YTpiYw= =").is_some());
    }

    #[test]
    fn a_token_that_some_servers_find_within_has_no_spelling() {
        for text in [
            "Bearer k,1",
            "bearer k 1",
            "x1 Bearer k",
            "Digest a=b, Bearer k",
        ] {
            assert_eq!(credentials(text.as_bytes()), None, "{text}");
        }
        for text in ["Bearer a:b", "Digest a=\"b\", c=d", "Token bearer"] {
            assert!(credentials(text.as_bytes()).is_some(), "{text}");
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
        for other in [
            "a b",
            " a b",
            "\"a b\"",
            " \"a b\"\t",
            "a%20b",
            "\"%61 b\"",
            r#""\141 \142""#,
            r#""\a \b""#,
            "a b\u{a0}\u{3000}\u{feff}",
            "\u{85}a b",
        ] {
            assert_eq!(
                cookie(other.as_bytes()).as_deref(),
                Some(&b"a b"[..]),
                "{other}"
            );
        }
        let latin = cookie(b"\xa0\"a b\"\x85\xa0");
        assert_eq!(latin.as_deref(), Some(&b"a b"[..]));
        for ambiguous in ["\"", "\"a", "\"ab", "j:\"a\"", "j%3A1"] {
            assert_eq!(cookie(ambiguous.as_bytes()), None, "{ambiguous}");
        }
        for (text, value) in [
            ("\"\"a\"\"", "\"a\""),
            ("%", "%"),
            ("", ""),
            (r"\a", r"\a"),
            (r#""a\""#, r"a\"),
            (r#""\400\08""#, "40008"),
            ("à", "à"),
        ] {
            assert_eq!(cookie(text.as_bytes()).as_deref(), Some(value.as_bytes()));
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

//! The cookies of a request by name, as servers find them: no two of them read a name alike.
//!
//! Guarantees that a cookie which only some servers take for the wanted one is told from it.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::COOKIE;

use crate::limit::key::spelling;

/// A cookie, as it compares with a name that is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CookieLikeness<'a> {
    /// The value as it was sent.
    Exact(&'a [u8]),
    /// Some servers take it for the wanted one.
    Alike,
    Other,
}

/// The cookies of all fields: HTTP/2 may send a field for each (RFC 9113 §8.2.3).
pub fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let fields = headers.get_all(COOKIE).iter();
    fields
        .flat_map(|field| field.as_bytes().split(|byte| *byte == b';'))
        .map(<[u8]>::trim_ascii)
        .filter(|cookie| !cookie.is_empty())
}

/// How a cookie compares with the name (RFC 6265 §4.2).
///
/// ```
/// use tollgate_limiter::limit::key::{CookieLikeness, compare_cookie};
///
/// let compare = |cookie| compare_cookie(cookie, "api_key");
/// assert_eq!(compare(b"api_key=\"k\""), CookieLikeness::Exact(b"\"k\""));
/// assert_eq!(compare(b"api.key=k"), CookieLikeness::Alike);
/// assert_eq!(compare(b"api_key[]=k"), CookieLikeness::Alike);
/// assert_eq!(compare(b"api_keys=k"), CookieLikeness::Other);
/// ```
pub fn compare_cookie<'a>(cookie: &'a [u8], name: &str) -> CookieLikeness<'a> {
    let end = cookie.iter().position(|byte| *byte == b'=');
    let found = cookie[..end.unwrap_or(cookie.len())].trim_ascii();
    match end {
        Some(end) if found == name.as_bytes() => {
            CookieLikeness::Exact(cookie[end + 1..].trim_ascii())
        }
        None if found == name.as_bytes() => CookieLikeness::Other,
        _ if is_alike(found, name.as_bytes()) => CookieLikeness::Alike,
        _ => CookieLikeness::Other,
    }
}

/// Whether some server takes `found` for `name`: .NET ignores the case, Python strips white space,
/// Rack decodes percent-encoding, PHP takes any sign for `_` and what is in brackets for a list.
fn is_alike(found: &[u8], name: &[u8]) -> bool {
    let is_plain = found
        .iter()
        .all(|byte| !matches!(byte, b'%' | b'[' | 0x80..));
    if is_plain && found.len() != name.len() {
        return false;
    }
    let found = spelling::decoded(found);
    let found = found.split(|byte| *byte == b'[').next().unwrap_or_default();
    let found = spelling::trimmed(found);
    let fold = |byte: &u8| spelling::variable_byte(byte.to_ascii_lowercase());
    found.iter().map(fold).eq(name.iter().map(fold))
}

/// The values of the cookies called `name`, in the one spelling of each. `None`: a server may find
/// one here that others do not.
pub fn values<'a>(
    headers: &'a HeaderMap,
    name: &'a str,
) -> impl Iterator<Item = Option<Cow<'a, [u8]>>> {
    cookies(headers).filter_map(move |cookie| match compare_cookie(cookie, name) {
        CookieLikeness::Exact(value) => Some(spelling::cookie(value)),
        CookieLikeness::Alike => Some(None),
        CookieLikeness::Other => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_some_servers_read_otherwise_is_alike() {
        for alike in [
            "SID=a",
            "s%69d=a",
            "%A0sid=a",
            "sid[]=a",
            "sid[0]=a",
            "sid [=a",
            "\u{a0}sid=a",
            "sid\u{3000}=a",
            "\u{2005}\u{85}sid=a",
        ] {
            assert_eq!(
                compare_cookie(alike.as_bytes(), "sid"),
                CookieLikeness::Alike,
                "{alike}"
            );
        }
        assert_eq!(
            compare_cookie(b"\xa0sid=a", "sid"),
            CookieLikeness::Alike,
            "Latin-1"
        );
        for other in [
            "sid",
            "sid.sig=a",
            "sids=a",
            "xsid=a",
            "s\u{e4}d=a",
            "=sid",
            "",
        ] {
            assert_eq!(
                compare_cookie(other.as_bytes(), "sid"),
                CookieLikeness::Other,
                "{other}"
            );
        }
    }
}

//! Where a request carries a credential, how it is read from there, and how it is taken out before
//! the request goes on.
//!
//! Guarantees that a credential which is sent twice is never read: which of the two an upstream
//! would take is unknown.

use std::borrow::Cow;
use std::sync::Arc;

use http::header::{AUTHORIZATION, CONNECTION, COOKIE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};
use percent_encoding::percent_decode;

use crate::body::Body;
use crate::http::syntax;

/// The place of a credential in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialPlace {
    Header(HeaderName),
    /// A parameter of the query, decoded as in a form.
    Query(Arc<str>),
    Cookie(Arc<str>),
    /// The credentials of `Authorization` with this scheme (RFC 9110 §11.4).
    Scheme(&'static str),
    /// In no place of the message: the connection has it, or a service that is asked.
    Nowhere,
}

/// A credential as it was found. An empty one is none.
#[derive(Debug, PartialEq, Eq)]
pub enum FoundCredential<'a> {
    Absent,
    One(Cow<'a, [u8]>),
    /// More than one.
    Several,
}

impl CredentialPlace {
    /// Reads the credential.
    pub fn find<'a>(&self, uri: &'a Uri, headers: &'a HeaderMap) -> FoundCredential<'a> {
        match self {
            Self::Header(name) if is_ambiguous(headers, name) => FoundCredential::Several,
            Self::Header(name) => only(
                headers
                    .get_all(name)
                    .iter()
                    .map(|value| value.as_bytes().into()),
            ),
            Self::Scheme(scheme) => {
                let values = headers.get_all(AUTHORIZATION).iter();
                // A second field of another scheme could be the one that an upstream takes.
                let credentials = values.filter_map(|value| of_scheme(value, scheme));
                match only(credentials.map(Cow::Borrowed)) {
                    FoundCredential::One(_)
                        if headers.get_all(AUTHORIZATION).iter().count() > 1
                            || is_named_by_connection(headers, &AUTHORIZATION) =>
                    {
                        FoundCredential::Several
                    }
                    found => found,
                }
            }
            Self::Query(name) => {
                let pairs = uri
                    .query()
                    .unwrap_or_default()
                    .split('&')
                    .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
                only(
                    pairs
                        .filter(|(found, _)| is_named(found, name))
                        .map(|(_, value)| form_decode(value)),
                )
            }
            Self::Cookie(name) => {
                match only(
                    cookies(headers)
                        .filter_map(|pair| cookie_value(pair, name))
                        .map(Cow::Borrowed),
                ) {
                    FoundCredential::One(_) if is_named_by_connection(headers, &COOKIE) => {
                        FoundCredential::Several
                    }
                    found => found,
                }
            }
            Self::Nowhere => FoundCredential::Absent,
        }
    }

    /// Whether this place is the other, or one of the two is a whole field that has both.
    pub fn is_in_place_of(&self, other: &Self) -> bool {
        let is_whole = matches!(self, Self::Header(_)) || matches!(other, Self::Header(_));
        self == other || is_whole && self.field().is_some() && self.field() == other.field()
    }

    /// The field that has the credential, if it is in one.
    pub fn field(&self) -> Option<&HeaderName> {
        match self {
            Self::Header(name) => Some(name),
            Self::Scheme(_) => Some(&AUTHORIZATION),
            Self::Cookie(_) => Some(&COOKIE),
            Self::Query(_) | Self::Nowhere => None,
        }
    }

    /// Takes the credential out of the request, and leaves all else as it was.
    pub fn remove(&self, request: &mut Request<Body>) {
        match self {
            Self::Header(name) => {
                let headers = request.headers_mut();
                headers.remove(name);
                while let Some(other) = disguised(headers, name).cloned() {
                    headers.remove(other);
                }
            }
            Self::Scheme(scheme) => {
                let headers = request.headers_mut();
                if headers
                    .get_all(AUTHORIZATION)
                    .iter()
                    .any(|value| of_scheme(value, scheme).is_some())
                {
                    headers.remove(AUTHORIZATION);
                }
            }
            Self::Query(name) => {
                if let Some(uri) = without_parameter(request.uri(), name) {
                    *request.uri_mut() = uri;
                }
            }
            Self::Cookie(name) => remove_cookie(request.headers_mut(), name),
            Self::Nowhere => {}
        }
    }
}

/// Whether a server may find another credential in the field with this name, or none: in one that
/// is written with `_`, or since `Connection` names it.
fn is_ambiguous(headers: &HeaderMap, name: &HeaderName) -> bool {
    disguised(headers, name).is_some()
        || (headers.contains_key(name) && is_named_by_connection(headers, name))
}

/// Whether the field is for this connection only, so that the next server does not get it.
fn is_named_by_connection(headers: &HeaderMap, name: &HeaderName) -> bool {
    let names_it =
        |options: &HeaderValue| syntax::list_has(options.as_bytes(), name.as_str().as_bytes());
    headers.get_all(CONNECTION).iter().any(names_it)
}

/// The name of a field that is this one to some servers.
fn disguised<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderName> {
    let is_disguise = |other: &&HeaderName| {
        *other != name && syntax::is_same_variable(other.as_str(), name.as_str())
    };
    headers.keys().find(is_disguise)
}

fn only<'a>(mut values: impl Iterator<Item = Cow<'a, [u8]>>) -> FoundCredential<'a> {
    match (values.next(), values.next()) {
        (None, _) => FoundCredential::Absent,
        // A second one counts even if it is empty: a server may take the last.
        (Some(value), None) if value.trim_ascii().is_empty() => FoundCredential::Absent,
        (Some(value), None) => FoundCredential::One(match value {
            Cow::Borrowed(value) => Cow::Borrowed(value.trim_ascii()),
            Cow::Owned(value) => Cow::Owned(value),
        }),
        (Some(_), Some(_)) => FoundCredential::Several,
    }
}

/// The credential behind the scheme, whose name is in any case. Some servers end the scheme at more
/// than a space, or pass over what stands before it: then it is a credential, too, and a wrong one.
fn of_scheme<'a>(value: &'a HeaderValue, scheme: &str) -> Option<&'a [u8]> {
    let value = value.as_bytes().trim_ascii();
    let begin = value.iter().position(|byte| syntax::is_token_byte(*byte))?;
    let (found, rest) = value[begin..].split_at_checked(scheme.len())?;
    let is_scheme = found.eq_ignore_ascii_case(scheme.as_bytes())
        && rest
            .first()
            .is_none_or(|byte| !syntax::is_token_byte(*byte));
    is_scheme.then(|| match rest.first() {
        None if begin == 0 => rest,
        Some(b' ' | b'\t') if begin == 0 => rest.trim_ascii(),
        _ => value,
    })
}

fn is_named(found: &str, name: &str) -> bool {
    found == name || *form_decode(found) == *name.as_bytes()
}

/// Decodes a form: `+` is a space, then percent-encoding.
fn form_decode(text: &str) -> Cow<'_, [u8]> {
    if !text.bytes().any(|byte| byte == b'+' || byte == b'%') {
        return text.as_bytes().into();
    }
    let spaced: Vec<u8> = text
        .bytes()
        .map(|byte| if byte == b'+' { b' ' } else { byte })
        .collect();
    percent_decode(&spaced).collect::<Vec<_>>().into()
}

/// `uri` without the parameters called `name`. `None`: it has none of them.
fn without_parameter(uri: &Uri, name: &str) -> Option<Uri> {
    let query = uri.query()?;
    let is_other =
        |pair: &&str| !is_named(pair.split_once('=').map_or(*pair, |(found, _)| found), name);
    let kept: Vec<&str> = query.split('&').filter(is_other).collect();
    if kept.len() == query.split('&').count() {
        return None;
    }
    let path = uri.path();
    let target = if kept.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{}", kept.join("&"))
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(target).ok()?);
    Uri::from_parts(parts).ok()
}

/// The pairs of all cookie fields: HTTP/2 may send one field for each.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let fields = headers
        .get_all(COOKIE)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b';'));
    fields
        .map(<[u8]>::trim_ascii)
        .filter(|pair| !pair.is_empty())
}

fn cookie_value<'a>(pair: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let at = pair.iter().position(|byte| *byte == b'=')?;
    let value = pair[at + 1..].trim_ascii();
    let unquoted = value
        .strip_prefix(b"\"")
        .and_then(|value| value.strip_suffix(b"\""));
    (pair[..at].trim_ascii() == name.as_bytes()).then(|| unquoted.unwrap_or(value))
}

fn remove_cookie(headers: &mut HeaderMap, name: &str) {
    if !cookies(headers).any(|pair| cookie_value(pair, name).is_some()) {
        return;
    }
    let kept: Vec<&[u8]> = cookies(headers)
        .filter(|pair| cookie_value(pair, name).is_none())
        .collect();
    match HeaderValue::from_bytes(&kept.join(&b"; "[..])) {
        Ok(value) if !value.is_empty() => drop(headers.insert(COOKIE, value)),
        _ => drop(headers.remove(COOKIE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(uri: &str, fields: &[(&str, &str)]) -> Request<Body> {
        let builder = fields
            .iter()
            .fold(Request::get(uri), |builder, (name, value)| {
                builder.header(*name, *value)
            });
        builder.body(Body::empty()).unwrap()
    }

    fn places() -> [(CredentialPlace, Request<Body>); 4] {
        [
            (
                CredentialPlace::Header(HeaderName::from_static("x-api-key")),
                request("/a?b", &[("x-api-key", " k1 "), ("accept", "x")]),
            ),
            (
                CredentialPlace::Query("key".into()),
                request("http://h/a?x=1&%6bey=k%31&y", &[]),
            ),
            (
                CredentialPlace::Cookie("key".into()),
                request("/", &[("cookie", "a=1; key=\"k1\""), ("cookie", "b=2")]),
            ),
            (
                CredentialPlace::Scheme("Bearer"),
                request("/", &[("authorization", "bEARER  k1")]),
            ),
        ]
    }

    #[test]
    fn a_credential_is_read_and_taken_out_and_all_else_stays() {
        for (place, mut request) in places() {
            let found = place.find(request.uri(), request.headers());
            assert_eq!(found, FoundCredential::One(b"k1"[..].into()), "{place:?}");
            place.remove(&mut request);
            assert_eq!(
                place.find(request.uri(), request.headers()),
                FoundCredential::Absent,
                "{place:?}"
            );
            match place {
                CredentialPlace::Query(_) => assert_eq!(request.uri(), "http://h/a?x=1&y"),
                CredentialPlace::Cookie(_) => assert_eq!(request.headers()[COOKIE], "a=1; b=2"),
                CredentialPlace::Header(_) => {
                    assert_eq!(
                        (request.headers().len(), request.uri().query()),
                        (1, Some("b"))
                    )
                }
                _ => assert!(request.headers().is_empty()),
            }
        }
    }

    #[test]
    fn a_credential_that_is_sent_twice_is_not_read() {
        let two = |place: CredentialPlace, uri, fields: &[_]| {
            let request = request(uri, fields);
            assert_eq!(
                place.find(request.uri(), request.headers()),
                FoundCredential::Several,
                "{place:?}"
            );
        };
        let key = || CredentialPlace::Header(HeaderName::from_static("x-api-key"));
        two(key(), "/", &[("x-api-key", "a"), ("x-api-key", "a")]);
        two(key(), "/", &[("x-api-key", "a"), ("x-api-key", "")]);
        two(key(), "/", &[("x-api-key", "a"), ("x_api_key", "b")]);
        two(key(), "/", &[("x-api_key", "a")]);
        two(
            key(),
            "/",
            &[("x-api-key", "a"), ("connection", "close, X-API-Key")],
        );
        let hidden =
            |field, value, place| two(place, "/", &[(field, value), ("connection", field)]);
        hidden("authorization", "Basic a", CredentialPlace::Scheme("Basic"));
        hidden("cookie", "key=a", CredentialPlace::Cookie("key".into()));
        two(CredentialPlace::Query("key".into()), "/?key=a&k%65y=b", &[]);
        two(CredentialPlace::Query("key".into()), "/?key=a&key", &[]);
        two(
            CredentialPlace::Cookie("key".into()),
            "/",
            &[("cookie", "key=a; key=b")],
        );
        two(
            CredentialPlace::Scheme("Basic"),
            "/",
            &[("authorization", "Basic a"), ("authorization", "Bearer b")],
        );
    }

    #[test]
    fn a_scheme_that_ends_in_another_way_is_a_wrong_credential_and_goes_with_it() {
        for (value, found) in [
            (&b"Basic\tYTpi"[..], &b"YTpi"[..]),
            (b"Basic \t YTpi", b"YTpi"),
            (b"Basic\xa0YTpi", b"Basic\xa0YTpi"),
            (b"\xa0Basic YTpi", b"\xa0Basic YTpi"),
            (b"basic:YTpi", b"basic:YTpi"),
            (b"Basic,Bearer x", b"Basic,Bearer x"),
        ] {
            let mut request = request("/", &[]);
            request
                .headers_mut()
                .insert(AUTHORIZATION, HeaderValue::from_bytes(value).unwrap());
            let place = CredentialPlace::Scheme("Basic");
            assert_eq!(
                place.find(request.uri(), request.headers()),
                FoundCredential::One(found.into()),
                "{value:?}"
            );
            place.remove(&mut request);
            assert!(request.headers().is_empty(), "{value:?}");
        }
        let mut request = request("/", &[("authorization", "Basic")]);
        CredentialPlace::Scheme("Basic").remove(&mut request);
        assert!(request.headers().is_empty());
    }

    #[test]
    fn an_empty_credential_and_one_of_another_scheme_are_none() {
        for (place, request) in [
            (
                CredentialPlace::Query("key".into()),
                request("/?key=&keys=1", &[]),
            ),
            (
                CredentialPlace::Cookie("key".into()),
                request("/", &[("cookie", "key=; keys=a")]),
            ),
            (
                CredentialPlace::Scheme("Bearer"),
                request("/", &[("authorization", "Basic a")]),
            ),
            (
                CredentialPlace::Scheme("Bearer"),
                request("/", &[("authorization", "Bearera b")]),
            ),
        ] {
            assert_eq!(
                place.find(request.uri(), request.headers()),
                FoundCredential::Absent,
                "{place:?}"
            );
        }
    }

    #[test]
    fn a_field_that_some_servers_take_for_the_credential_goes_with_it() {
        let mut request = request(
            "/",
            &[
                ("x-api-key", "a"),
                ("x_api_key", "b"),
                ("X_API-Key", "c"),
                ("x-api-keys", "d"),
            ],
        );
        CredentialPlace::Header(HeaderName::from_static("x-api-key")).remove(&mut request);
        assert_eq!(request.headers().keys().collect::<Vec<_>>(), ["x-api-keys"]);
    }

    #[test]
    fn the_credential_of_another_scheme_stays() {
        let mut request = request("/", &[("authorization", "Basic a")]);
        CredentialPlace::Scheme("Bearer").remove(&mut request);
        assert_eq!(request.headers()[AUTHORIZATION], "Basic a");
    }
}

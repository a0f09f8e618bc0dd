//! Where a request carries a credential, how it is read from there, and how it is taken out before
//! the request goes on.
//!
//! Guarantees that a credential which is sent twice is never read: which of the two an upstream
//! would take is unknown.

use std::borrow::Cow;

use http::header::{AUTHORIZATION, CONNECTION, COOKIE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};
use percent_encoding::percent_decode;

pub use super::method::CredentialPlace;
use tollgate_limiter::limit::key::{
    CookieLikeness, compare_cookie, cookies, holds_scheme, is_same_variable, parameters, unquoted,
};
use tollgate_wire::body::Body;
use tollgate_wire::fields;
use tollgate_wire::http::syntax;

/// A credential as it was found. An empty one is none.
#[derive(Debug, PartialEq, Eq)]
pub enum FoundCredential<'a> {
    Absent,
    One(Cow<'a, [u8]>),
    /// More than one.
    Several,
}

/// Reads the credential at `place`.
pub fn find<'a>(
    place: &CredentialPlace,
    uri: &'a Uri,
    headers: &'a HeaderMap,
) -> FoundCredential<'a> {
    match place {
        CredentialPlace::Header(name) => in_field(headers, name),
        CredentialPlace::Scheme(scheme) => behind_scheme(headers, scheme),
        CredentialPlace::Query(name) => in_query(uri, name),
        CredentialPlace::Cookie(name) => in_cookie(headers, name),
        CredentialPlace::Nowhere => FoundCredential::Absent,
    }
}

fn in_field<'a>(headers: &'a HeaderMap, name: &HeaderName) -> FoundCredential<'a> {
    let mut found = None;
    // All names are compared anyway, so none is looked up.
    for (other, value) in headers {
        if other == name {
            if found.replace(value).is_some() {
                return FoundCredential::Several;
            }
        } else if is_same_variable(other.as_str(), name.as_str()) {
            return FoundCredential::Several;
        }
    }
    if found.is_some() && is_named_by_connection(headers, name) {
        return FoundCredential::Several;
    }
    only(found.into_iter().map(|value| value.as_bytes().into()))
}

fn behind_scheme<'a>(headers: &'a HeaderMap, scheme: &str) -> FoundCredential<'a> {
    let values = headers.get_all(AUTHORIZATION).iter();
    let credentials = values.filter_map(|value| after_scheme(value, scheme));
    let found = only(credentials.map(Cow::Borrowed));
    // A second field of another scheme could be the one that an upstream takes.
    let is_uncertain = headers.get_all(AUTHORIZATION).iter().nth(1).is_some()
        || is_named_by_connection(headers, &AUTHORIZATION);
    found.unless(is_uncertain)
}

fn in_query<'a>(uri: &'a Uri, name: &str) -> FoundCredential<'a> {
    let query = uri.query().unwrap_or_default();
    if parameters(query, name).any(|value| value.is_none()) {
        return FoundCredential::Several;
    }
    only(parameters(query, name).flatten())
}

fn in_cookie<'a>(headers: &'a HeaderMap, name: &str) -> FoundCredential<'a> {
    let mut values = Vec::new();
    for cookie in cookies(headers) {
        match compare_cookie(cookie, name) {
            CookieLikeness::Exact(value) => values.push(Cow::Borrowed(unquoted(value))),
            CookieLikeness::Alike => return FoundCredential::Several,
            CookieLikeness::Other => {}
        }
    }
    only(values.into_iter()).unless(is_named_by_connection(headers, &COOKIE))
}

/// Takes the credential at `place` out of the request, and leaves all else as it was.
pub fn remove(place: &CredentialPlace, request: &mut Request<Body>) {
    match place {
        CredentialPlace::Header(name) => {
            let headers = request.headers_mut();
            fields::remove(headers, |other| {
                is_same_variable(other.as_str(), name.as_str())
            });
        }
        CredentialPlace::Scheme(scheme) => {
            let headers = request.headers_mut();
            let mut values = headers.get_all(AUTHORIZATION).iter();
            if values.any(|value| after_scheme(value, scheme).is_some()) {
                headers.remove(AUTHORIZATION);
            }
        }
        CredentialPlace::Query(name) => {
            if let Some(uri) = without_parameter(request.uri(), name) {
                *request.uri_mut() = uri;
            }
        }
        CredentialPlace::Cookie(name) => remove_cookie(request.headers_mut(), name),
        CredentialPlace::Nowhere => {}
    }
}

impl FoundCredential<'_> {
    /// `Several` in place of one credential where `is_uncertain` which a server takes.
    fn unless(self, is_uncertain: bool) -> Self {
        match self {
            Self::One(_) if is_uncertain => Self::Several,
            found => found,
        }
    }
}

/// Whether the field is for this connection only, so that the next server does not get it.
fn is_named_by_connection(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers
        .get_all(CONNECTION)
        .iter()
        .any(|options| syntax::list_has(options.as_bytes(), name.as_str().as_bytes()))
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
fn after_scheme<'a>(value: &'a HeaderValue, scheme: &str) -> Option<&'a [u8]> {
    let value = value.as_bytes().trim_ascii();
    let begin = value.iter().position(|byte| syntax::is_token_byte(*byte))?;
    let (found, rest) = value[begin..].split_at_checked(scheme.len())?;
    let is_scheme = found.eq_ignore_ascii_case(scheme.as_bytes())
        && rest
            .first()
            .is_none_or(|byte| !syntax::is_token_byte(*byte));
    match rest.first() {
        None if is_scheme && begin == 0 => Some(rest),
        Some(b' ' | b'\t') if is_scheme && begin == 0 => Some(rest.trim_ascii()),
        _ if is_scheme || holds_scheme(value, scheme) => Some(value),
        _ => None,
    }
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
    let mut kept = Vec::new();
    let mut count = 0;
    for pair in query.split('&') {
        count += 1;
        let found = pair.split_once('=').map_or(pair, |(found, _)| found);
        if !is_named(found, name) {
            kept.push(pair);
        }
    }
    if kept.len() == count {
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

/// Takes out the cookie called `name`, and those that a server may take for it.
fn remove_cookie(headers: &mut HeaderMap, name: &str) {
    let mut kept = Vec::new();
    let mut is_found = false;
    for cookie in cookies(headers) {
        match compare_cookie(cookie, name) {
            CookieLikeness::Other => kept.push(cookie),
            CookieLikeness::Exact(_) | CookieLikeness::Alike => is_found = true,
        }
    }
    if !is_found {
        return;
    }
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
                builder.header(*name, value.as_bytes())
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
            let found = find(&place, request.uri(), request.headers());
            assert_eq!(found, FoundCredential::One(b"k1"[..].into()), "{place:?}");
            remove(&place, &mut request);
            assert_eq!(
                find(&place, request.uri(), request.headers()),
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
        fn two(place: &CredentialPlace, uri: &str, fields: &[(&str, &str)]) {
            let request = request(uri, fields);
            assert_eq!(
                find(place, request.uri(), request.headers()),
                FoundCredential::Several,
                "{place:?}"
            );
        }
        fn hidden(field: &str, value: &str, place: &CredentialPlace) {
            two(place, "/", &[(field, value), ("connection", field)]);
        }
        fn key() -> CredentialPlace {
            CredentialPlace::Header(HeaderName::from_static("x-api-key"))
        }
        two(&key(), "/", &[("x-api-key", "a"), ("x-api-key", "a")]);
        two(&key(), "/", &[("x-api-key", "a"), ("x-api-key", "")]);
        two(&key(), "/", &[("x-api-key", "a"), ("x_api_key", "b")]);
        two(&key(), "/", &[("x-api_key", "a")]);
        two(
            &key(),
            "/",
            &[("x-api-key", "a"), ("connection", "close, X-API-Key")],
        );
        hidden(
            "authorization",
            "Basic a",
            &CredentialPlace::Scheme("Basic"),
        );
        hidden("cookie", "key=a", &CredentialPlace::Cookie("key".into()));
        two(
            &CredentialPlace::Query("key".into()),
            "/?key=a&k%65y=b",
            &[],
        );
        for query in ["/?key=a&key", "/?key=a&n=1;key=b", "/?key=a;n=1", "/?Key=a"] {
            two(&CredentialPlace::Query("key".into()), query, &[]);
        }
        two(
            &CredentialPlace::Cookie("key".into()),
            "/",
            &[("cookie", "key=a; key=b")],
        );
        let cookie = CredentialPlace::Cookie("api_key".into());
        for pairs in [
            "api.key=a; api_key=b",
            "api_key=b; api key",
            "api-key=a",
            "api_key=a; \u{a0}api_key=b",
            "api_key=a; api_key[]=b",
        ] {
            two(&cookie, "/", &[("cookie", pairs)]);
        }
        two(
            &CredentialPlace::Scheme("Basic"),
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
            (b"x Basic YTpi", b"x Basic YTpi"),
        ] {
            let mut request = request("/", &[]);
            request
                .headers_mut()
                .insert(AUTHORIZATION, HeaderValue::from_bytes(value).unwrap());
            let place = CredentialPlace::Scheme("Basic");
            assert_eq!(
                find(&place, request.uri(), request.headers()),
                FoundCredential::One(found.into()),
                "{value:?}"
            );
            remove(&place, &mut request);
            assert!(request.headers().is_empty(), "{value:?}");
        }
        let mut request = request("/", &[("authorization", "Basic")]);
        remove(&CredentialPlace::Scheme("Basic"), &mut request);
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
                find(&place, request.uri(), request.headers()),
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
        remove(
            &CredentialPlace::Header(HeaderName::from_static("x-api-key")),
            &mut request,
        );
        assert_eq!(request.headers().keys().collect::<Vec<_>>(), ["x-api-keys"]);
        let pairs = "api.key=a; api_keys=b; api_key=c";
        let mut request = self::request("/", &[("cookie", pairs)]);
        remove(&CredentialPlace::Cookie("api_key".into()), &mut request);
        assert_eq!(request.headers()[COOKIE], "api_keys=b");
    }

    #[test]
    fn the_credential_of_another_scheme_stays() {
        let mut request = request("/", &[("authorization", "Basic a")]);
        remove(&CredentialPlace::Scheme("Bearer"), &mut request);
        assert_eq!(request.headers()[AUTHORIZATION], "Basic a");
    }
}

//! The rules for requests (RFC 9110, RFC 9112, RFC 9113), in every version of HTTP: each rule is
//! one function.
//!
//! The codec of HTTP/1 calls the rules while it reads a section, that of HTTP/2 calls [`check`]
//! with a section that its library has read. Guarantees that what one version refuses is refused in
//! the other. Allocates nothing.

#[cfg(test)]
mod tests;

use http::header::{CONTENT_LENGTH, COOKIE, HOST};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Method, Request, Uri};

use super::h1::SectionBounds;
use super::syntax;
use crate::error::Failure;

/// Longest method, in bytes: the longest registered one has 17.
pub const MAX_METHOD: usize = 32;
/// Longest target that fits a `http::Uri`.
const MAX_URI: usize = u16::MAX as usize - 1;

/// Longest request target, in bytes: half the section, so that fields always have room.
pub fn longest_target(bounds: &SectionBounds) -> usize {
    (bounds.bytes / 2).min(MAX_URI)
}

/// Checks a request whose version has no lines, as of HTTP/2. Leaves exactly one `Host` field.
///
/// CONNECT is refused: the codec takes the extended CONNECT (RFC 8441) out before.
///
/// # Errors
/// The refusal, for the first rule that the request breaks.
pub fn check<B>(request: &mut Request<B>, bounds: &SectionBounds) -> Result<(), Failure> {
    method(request.method())?;
    scheme(request.uri())?;
    let target = match request.uri().path_and_query() {
        Some(target) if !is_empty(target) => target.as_str(),
        Some(_) | None => "",
    };
    target_length(target.len(), bounds)?;
    path(request.method(), target.as_bytes())?;
    let fields = request.headers();
    field_count(fields.len(), fields.get_all(COOKIE).iter().count(), bounds)?;
    if !fields.values().all(|value| is_bare(value.as_bytes())) {
        return Err(Failure::BadRequest(
            "a field value begins or ends with white space",
        ));
    }
    if !fields
        .keys()
        .all(|name| syntax::is_field_name(name.as_str()))
    {
        return Err(Failure::BadRequest("a field name is not a token"));
    }
    let mut length = None;
    for value in fields.get_all(CONTENT_LENGTH) {
        content_length(&mut length, value.as_bytes())?;
    }
    check_host(request)
}

/// A method is no longer than any that this gateway knows and has no small letters: each that is
/// registered has none (RFC 9110 §16.1), and some servers take `post` for POST, which a route may
/// ask more for. CONNECT is for tunnels (RFC 9110 §9.3.6).
pub fn method(method: &Method) -> Result<(), Failure> {
    if method.as_str().len() > MAX_METHOD {
        return Err(Failure::NotImplemented(
            "the method is longer than any this gateway knows",
        ));
    }
    if method
        .as_str()
        .bytes()
        .any(|byte| byte.is_ascii_lowercase())
    {
        return Err(Failure::BadRequest("the method has small letters"));
    }
    if *method == Method::CONNECT {
        return Err(Failure::NotImplemented(
            "this gateway is no tunnel: CONNECT has no meaning here",
        ));
    }
    Ok(())
}

/// A scheme is http or https. Either passes over any connection: a proxy in front may have ended
/// TLS (RFC 9113 §8.3.1). A scheme without an authority is not known here.
fn scheme(uri: &Uri) -> Result<(), Failure> {
    match uri.scheme() {
        Some(scheme) if *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS => {
            Err(Failure::BadRequest("the scheme is neither http nor https"))
        }
        _ => Ok(()),
    }
}

/// Whether there is no path: `http` shows an empty one as `/`. A request without `:path` has none
/// (RFC 9113 §8.3.1), and so has one whose path is a fragment.
fn is_empty(target: &PathAndQuery) -> bool {
    target.as_str() == "/" && *target != PathAndQuery::from_static("/")
}

/// A target of `length` bytes leaves room for fields (RFC 9110 §15.5.15).
pub fn target_length(length: usize, bounds: &SectionBounds) -> Result<(), Failure> {
    if length > longest_target(bounds) {
        Err(Failure::UriTooLong)
    } else {
        Ok(())
    }
}

/// The path and query of a target: origin-form, or `*` for OPTIONS (RFC 9112 §3.2.1, §3.2.4; RFC
/// 9113 §8.3.1).
pub fn path(method: &Method, target: &[u8]) -> Result<(), Failure> {
    match target {
        [b'/', ..] => path_characters(target),
        b"*" if *method == Method::OPTIONS => Ok(()),
        b"*" => Err(Failure::BadRequest("the target * is for OPTIONS only")),
        _ => Err(Failure::BadRequest(
            "the target is neither a path nor an http URI",
        )),
    }
}

/// The characters of a path and query: those of RFC 3986 §3.3 and §3.4, and others that browsers
/// leave unencoded.
pub fn path_characters(target: &[u8]) -> Result<(), Failure> {
    if syntax::is_target(target) {
        Ok(())
    } else {
        Err(Failure::BadRequest(
            "the target has a character that must be encoded",
        ))
    }
}

/// An authority is a host and perhaps a port, without user information (RFC 9110 §4.2.4, RFC 9113
/// §8.3.1).
pub fn authority(authority: &[u8]) -> Result<(), Failure> {
    if memchr::memchr(b'@', authority).is_some() {
        return Err(Failure::BadRequest("the authority has user information"));
    }
    if syntax::is_host(authority) {
        Ok(())
    } else {
        Err(Failure::BadRequest("the target's authority is not a host"))
    }
}

/// A `Host` field: one, with a host (RFC 9112 §3.2). `seen`: there was one before.
pub fn host(seen: &mut bool, value: &[u8]) -> Result<(), Failure> {
    if std::mem::replace(seen, true) {
        return Err(Failure::BadRequest("more than one Host"));
    }
    if syntax::is_host(value) {
        Ok(())
    } else {
        Err(Failure::BadRequest("Host is not a host"))
    }
}

/// A `Content-Length` field: one, with one number (RFC 9110 §8.6). `seen`: what was read before.
pub fn content_length(seen: &mut Option<u64>, value: &[u8]) -> Result<(), Failure> {
    if seen.replace(syntax::content_length(value)?).is_some() {
        return Err(Failure::BadRequest("more than one Content-Length"));
    }
    Ok(())
}

/// A section has as many `fields` as the bounds allow. All cookies among them count as one field:
/// clients of HTTP/2 split one `Cookie` into crumbs (RFC 9113 §8.2.3).
pub fn field_count(fields: usize, cookies: usize, bounds: &SectionBounds) -> Result<(), Failure> {
    if fields - cookies.saturating_sub(1) > bounds.fields {
        Err(Failure::HeadersTooLarge)
    } else {
        Ok(())
    }
}

/// Whether no white space is around a value. HTTP/1 has white space there as separator; in HTTP/2 a
/// message with it is malformed (RFC 9113 §8.2.1).
fn is_bare(value: &[u8]) -> bool {
    !matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t'])
}

/// A request names its host: in `:authority`, in one `Host`, or in both alike (RFC 9113 §8.3.1).
fn check_host<B>(request: &mut Request<B>) -> Result<(), Failure> {
    let named = request.uri().authority();
    if let Some(named) = named {
        authority(named.as_str().as_bytes())?;
    }
    let mut seen = false;
    for value in request.headers().get_all(HOST) {
        if !seen
            && let Some(named) = named
            && !value
                .as_bytes()
                .eq_ignore_ascii_case(named.as_str().as_bytes())
        {
            return Err(Failure::BadRequest(":authority and Host differ"));
        }
        host(&mut seen, value.as_bytes())?;
    }
    if seen {
        return Ok(());
    }
    match named.and_then(host_of) {
        Some(value) => {
            request.headers_mut().insert(HOST, value);
            Ok(())
        }
        None => Err(Failure::BadRequest("neither :authority nor Host")),
    }
}

/// The value of `Host` for an authority in the target, which takes precedence over the field (RFC
/// 9112 §3.2.2).
fn host_of(authority: &Authority) -> Option<HeaderValue> {
    HeaderValue::from_str(authority.as_str()).ok()
}

//! The target and the version of a request line (RFC 9112 §2.3, §3.2). Pure functions that allocate
//! little.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Uri};

use tollgate_wire::error::Failure;
use tollgate_wire::http::request_rules;

/// The refusal of a version other than HTTP/1.0 and HTTP/1.1 (RFC 9112 §2.3).
pub fn other_version(version: &[u8]) -> Failure {
    match version {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Failure::VersionNotSupported
        }
        _ => Failure::BadRequest("the request line names no HTTP version"),
    }
}

/// Checks a target: origin-form, absolute-form, or `*` for OPTIONS (RFC 9112 §3.2).
pub fn check_target(method: &Method, target: &[u8]) -> Result<(), Failure> {
    match split_absolute(target) {
        Some((authority, rest)) => {
            request_rules::authority(&target[authority..rest])?;
            request_rules::path_characters(&target[rest..])
        }
        None => request_rules::path(method, target),
    }
}

/// The URI of a target that was checked, in origin-form, and the host that an absolute-form names:
/// such a host takes the place of the field (RFC 9112 §3.2.2).
pub fn uri(method: &Method, target: Bytes) -> Result<(Uri, Option<HeaderValue>), Failure> {
    const NO_URI: Failure = Failure::BadRequest("the target is not a URI");
    let Some((authority, rest)) = split_absolute(&target) else {
        return Uri::from_maybe_shared(target)
            .map(|uri| (uri, None))
            .map_err(|_| NO_URI);
    };
    let host = HeaderValue::from_maybe_shared(target.slice(authority..rest)).map_err(|_| NO_URI)?;
    let origin = match (&target[rest..], method) {
        (b"", &Method::OPTIONS) => Bytes::from_static(b"*"),
        ([b'/', ..], _) => target.slice(rest..),
        (query, _) => {
            let mut origin = BytesMut::with_capacity(query.len() + 1);
            origin.put_u8(b'/');
            origin.put_slice(query);
            origin.freeze()
        }
    };
    let uri = PathAndQuery::from_maybe_shared(origin).map_err(|_| NO_URI)?;
    Ok((uri.into(), Some(host)))
}

/// The beginning and the end of the authority in an absolute-form. `None`: the target has another
/// form.
fn split_absolute(target: &[u8]) -> Option<(usize, usize)> {
    if target.starts_with(b"/") {
        return None;
    }
    let scheme = memchr::memchr(b':', target)?;
    let is_known = target[..scheme].eq_ignore_ascii_case(b"http")
        || target[..scheme].eq_ignore_ascii_case(b"https");
    let authority = scheme + b"://".len();
    if !is_known || target.get(scheme..authority) != Some(b"://") {
        return None;
    }
    let length = target[authority..]
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?' | b'#'));
    match length {
        Some(length) => Some((authority, authority + length)),
        None => Some((authority, target.len())),
    }
}

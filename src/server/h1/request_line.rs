//! Checks the target and the version of a request line (RFC 9112 §2.3, §3.2). Pure functions that allocate nothing.

use http::Method;

use crate::error::Failure;
use crate::http::syntax;

/// The refusal of a version other than HTTP/1.0 and HTTP/1.1 (RFC 9112 §2.3).
pub fn other_version(version: &[u8]) -> Failure {
    match version {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit() => {
            Failure::VersionNotSupported
        }
        _ => Failure::BadRequest("the request line names no HTTP version"),
    }
}

/// Checks a target: origin-form, absolute-form, or `*` for OPTIONS (RFC 9112 §3.2).
pub fn check_target(method: &Method, target: &[u8]) -> Result<(), Failure> {
    if target == b"*" {
        return if method == Method::OPTIONS {
            Ok(())
        } else {
            Err(Failure::BadRequest("the target * is for OPTIONS only"))
        };
    }
    if !syntax::is_target(target) {
        return Err(Failure::BadRequest("the target has a character that must be encoded"));
    }
    if target.starts_with(b"/") {
        return Ok(());
    }
    let Some(rest) = strip_scheme(target) else {
        return Err(Failure::BadRequest("the target is neither a path nor an http URI"));
    };
    let authority = rest.iter().position(|b| matches!(b, b'/' | b'?')).map_or(rest, |end| &rest[..end]);
    if syntax::is_host(authority) { Ok(()) } else { Err(Failure::BadRequest("the target's authority is not a host")) }
}

fn strip_scheme(target: &[u8]) -> Option<&[u8]> {
    let scheme = target.iter().position(|b| *b == b':')?;
    let known = [&b"http"[..], b"https"].iter().any(|known| target[..scheme].eq_ignore_ascii_case(known));
    known.then(|| target[scheme..].strip_prefix(b"://"))?
}

//! What a request line may ask for: the forms of a target, the versions of HTTP (RFC 9112 §2.3, §3.2). Pure, without
//! allocation.

use http::Method;

use crate::error::Failure;
use crate::http::syntax;

/// `HTTP/` DIGIT `.` DIGIT of another version, or no version at all (RFC 9112 §2.3).
pub fn other_version(version: &[u8]) -> Failure {
    match version {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit() => {
            Failure::VersionNotSupported
        }
        _ => Failure::BadRequest("the request line names no HTTP version"),
    }
}

/// Origin-form, absolute-form, or `*` for OPTIONS (RFC 9112 §3.2).
pub fn check(method: &Method, target: &[u8]) -> Result<(), Failure> {
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

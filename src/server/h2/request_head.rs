//! Checks the head of an HTTP/2 request.
//!
//! Guarantees exactly one Host, and that host and target hold only what they may in HTTP/1, which upstreams are sent.

use http::header::HOST;
use http::{Method, Request};

use crate::error::Failure;
use crate::http::authority::host_of;
use crate::http::syntax;
use crate::server::spec::ListenerSpec;

/// Refuses a request that names no host, or two (RFC 9113 §8.3.1), and leaves exactly one Host field in others.
pub fn check<B>(request: &mut Request<B>, spec: &ListenerSpec) -> Result<(), Failure> {
    if request.method() == Method::CONNECT {
        return Err(Failure::NotImplemented("this gateway is no tunnel: CONNECT has no meaning here"));
    }
    if request.headers().len() > spec.max_headers {
        return Err(Failure::HeadersTooLarge);
    }
    if request.uri().path_and_query().is_some_and(|target| !syntax::is_target(target.as_str().as_bytes())) {
        return Err(Failure::BadRequest("the target has a character that must be encoded"));
    }
    let authority = match request.uri().authority() {
        Some(authority) if authority.as_str().contains('@') => {
            return Err(Failure::BadRequest("the authority has user information"));
        }
        Some(authority) => host_of(authority),
        None => None,
    };
    let mut hosts = request.headers().get_all(HOST).iter();
    match (authority, hosts.next(), hosts.next()) {
        (_, _, Some(_)) => Err(Failure::BadRequest("more than one Host")),
        (None, None, _) => Err(Failure::BadRequest("neither :authority nor Host")),
        (Some(authority), Some(host), _) if !host.as_bytes().eq_ignore_ascii_case(authority.as_bytes()) => {
            Err(Failure::BadRequest(":authority and Host differ"))
        }
        (Some(authority), None, _) => {
            request.headers_mut().insert(HOST, authority);
            Ok(())
        }
        _ => Ok(()),
    }?;
    match request.headers().get(HOST) {
        Some(host) if !syntax::is_host(host.as_bytes()) => Err(Failure::BadRequest("Host is not a host")),
        _ => Ok(()),
    }
}

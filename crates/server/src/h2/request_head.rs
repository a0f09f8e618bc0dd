//! Checks the head of an HTTP/2 request, by the rules for every version.

use http::Request;

use tollgate_spec::listener::ListenerSpec;
use tollgate_wire::error::Failure;
use tollgate_wire::http::h1::SectionBounds;
use tollgate_wire::http::request_rules;

/// Refuses a request that breaks a rule, and leaves exactly one `Host` field in others.
pub fn check<B>(request: &mut Request<B>, spec: &ListenerSpec) -> Result<(), Failure> {
    request_rules::check(
        request,
        &SectionBounds {
            bytes: spec.max_header_bytes,
            fields: spec.max_headers,
        },
    )
}

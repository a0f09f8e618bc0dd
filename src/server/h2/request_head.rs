//! Checks the head of an HTTP/2 request, by the rules for every version.

use http::Request;

use crate::error::Failure;
use crate::http::h1::SectionBounds;
use crate::http::request_rules;
use crate::server::spec::ListenerSpec;

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

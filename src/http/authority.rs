//! The host that a request is for (RFC 9110 §7.2).

use http::HeaderValue;
use http::uri::Authority;

/// The value of Host for an authority in the target, which takes precedence over the field (RFC 9112 §3.2.2).
pub fn host_of(authority: &Authority) -> Option<HeaderValue> {
    HeaderValue::from_str(authority.as_str()).ok()
}

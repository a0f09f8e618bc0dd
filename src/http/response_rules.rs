//! Which responses have content, and what a Content-Length without content means (RFC 9110 §6.4.1, §8.6).

use http::StatusCode;

/// Whether a response with this status has content, to any request but HEAD (RFC 9110 §6.4.1).
pub fn has_content(status: StatusCode) -> bool {
    !(status.is_informational() || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED)
}

/// Whether the Content-Length of a response with this status is that of another response, the one to an unconditional
/// GET (RFC 9110 §8.6).
pub fn has_length_of_another(status: StatusCode) -> bool {
    status == StatusCode::NOT_MODIFIED
}

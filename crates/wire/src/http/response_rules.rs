//! The rules for responses (RFC 9110 §6.4.1, §8.6; RFC 9113 §8.2.2), whatever versions they came in
//! and go out in: which responses have content, what their Content-Length may say, which fields are
//! for one connection only.
//!
//! The codec of HTTP/1 calls the rules while it writes, that of HTTP/2 calls [`prepare`] before.
//! Guarantees that a response has one length, or none.

#[cfg(test)]
mod tests;

use http::header::{
    CONNECTION, CONTENT_LENGTH, PROXY_AUTHENTICATE, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderName, Response, StatusCode};
use http_body::Body as _;

use crate::body::Body;
use crate::fields;

/// Digests of the content (RFC 9530, RFC 3230, RFC 1864): wrong once the content has changed.
pub const DIGESTS: [HeaderName; 4] = [
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("content-md5"),
];

/// Whether a response with this status has content, to any request but HEAD (RFC 9110 §6.4.1).
pub fn has_content(status: StatusCode) -> bool {
    !(status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED)
}

/// Whether the content is a part of another (RFC 9110 §15.3.7), by bytes as they were before.
pub fn is_part(status: StatusCode) -> bool {
    status == StatusCode::PARTIAL_CONTENT
}

/// Whether the Content-Length of a response with this status is that of another response, the one
/// to an unconditional GET (RFC 9110 §8.6).
pub fn has_length_of_another(status: StatusCode) -> bool {
    status == StatusCode::NOT_MODIFIED
}

/// Whether the handler's Content-Length is kept in a response whose content is not sent: the length
/// is that of another response (RFC 9110 §8.6). A 204 and a 1xx have none.
pub fn keeps_length(to_head: bool, status: StatusCode) -> bool {
    has_length_of_another(status) || (to_head && has_content(status))
}

/// Whether a field is for one connection only, whatever `Connection` says (RFC 9110 §7.6.1, RFC
/// 9113 §8.2.2). `text`: its name.
#[inline]
pub fn is_hop_by_hop(name: &HeaderName, text: &str) -> bool {
    matches!(
        *name,
        CONNECTION | TE | TRANSFER_ENCODING | UPGRADE | PROXY_AUTHENTICATE
    ) || matches!(text, "keep-alive" | "proxy-connection")
}

/// Prepares a response for a version that frames messages by itself: HTTP/2. Removes content that
/// must not be sent and every field for one connection, and leaves the one Content-Length that is
/// true.
pub fn prepare(response: &mut Response<Body>, to_head: bool) {
    let status = response.status();
    let length = response.body().size_hint().exact();
    let sends_content = !to_head && has_content(status);
    if !sends_content {
        *response.body_mut() = Body::empty();
    }
    let headers = response.headers_mut();
    fields::remove(headers, |name| is_hop_by_hop(name, name.as_str()));
    if sends_content {
        match length {
            Some(length) => headers.insert(CONTENT_LENGTH, length.into()),
            None => headers.remove(CONTENT_LENGTH),
        };
    } else if !keeps_length(to_head, status) {
        headers.remove(CONTENT_LENGTH);
    } else if let Some(length @ 1..) = length
        && to_head
        && !headers.contains_key(CONTENT_LENGTH)
    {
        // The length that the response to a GET would have, if it is known.
        headers.insert(CONTENT_LENGTH, length.into());
    }
}

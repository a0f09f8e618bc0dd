//! The id of a request: the field that carries it, and which ids are accepted from others.

use http::{HeaderName, HeaderValue};

/// The field that carries a request's id, both ways.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that is accepted, in bytes.
const LONGEST: usize = 128;

/// The id that somebody sent, if it may stand in a log and an answer.
pub fn accept(sent: &HeaderValue) -> Option<HeaderValue> {
    let fit = !sent.is_empty() && sent.len() <= LONGEST && sent.as_bytes().iter().all(u8::is_ascii_graphic);
    fit.then(|| sent.clone())
}

//! The id of a request: the field that carries it, and which ids are accepted from others.

use http::{HeaderName, HeaderValue};

/// The field that carries a request's id, both ways.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that is accepted, in bytes.
const LONGEST: usize = 128;

/// Characters of ids besides letters and digits: those of UUIDs, ULIDs, Base64, dates and
/// addresses. None of them means anything in HTML, JSON or a shell.
const MARKS: &[u8] = b"._:/+=@-";

/// The id that somebody sent, if it may stand in a log, a field and a page.
pub fn accept(sent: &HeaderValue) -> Option<HeaderValue> {
    let fit = !sent.is_empty() && sent.len() <= LONGEST && sent.as_bytes().iter().all(is_of_id);
    fit.then(|| sent.clone())
}

fn is_of_id(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || MARKS.contains(byte)
}

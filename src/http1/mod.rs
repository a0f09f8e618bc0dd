//! HTTP/1.1 messages as bytes (RFC 9112), for both sides of the gateway: what may stand where, where bodies end, and how
//! messages are written.
//!
//! Guarantees that a body is read in the one way its framing allows, or not at all, and that an idle connection holds no
//! buffer. Knows neither connections nor what a message means.

pub mod body;
pub mod buffers;
pub mod chunks;
pub mod encode;
pub mod output;
pub mod syntax;
pub mod tables;
pub mod timer;
pub mod upgrade;

use http::{HeaderValue, StatusCode};

/// How much a header or trailer section may hold.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes, line ends included.
    pub bytes: usize,
    /// Field lines.
    pub fields: usize,
}

/// How a body is framed (RFC 9112 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// This many bytes, perhaps none.
    Length(u64),
    Chunked,
    /// Everything until the connection's end; responses only.
    Close,
}

/// Whether a response with this status has content, to anything but a HEAD (RFC 9110 §6.4.1).
pub fn has_content(status: StatusCode) -> bool {
    !(status.is_informational() || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED)
}

/// Whether a response with this status says how long another one would be (RFC 9110 §8.6).
pub fn describes_another(status: StatusCode) -> bool {
    status == StatusCode::NOT_MODIFIED
}

/// The reason phrase of a response, where it is another than its status usually has: an extension of the response. It means
/// nothing, and some people read it (RFC 9112 §4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason(pub HeaderValue);

//! The HTTP/1.1 codec (RFC 9112), used towards clients and towards upstreams: how bodies are
//! decoded, how messages are encoded, and the buffers and upgrades of a connection.
//!
//! Guarantees that a body is read in the one way its framing allows, or not at all, and that an
//! idle connection holds no buffer.

pub mod body_decoder;
pub mod buffers;
pub mod chunks;
pub mod encode;
pub mod upgrade;
pub mod write_buffer;

use http::HeaderValue;

/// The largest header or trailer section that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionBounds {
    /// Bytes, line ends included.
    pub bytes: usize,
    /// Field lines.
    pub fields: usize,
}

/// How a body is framed (RFC 9112 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// This many bytes, perhaps none.
    Length(u64),
    Chunked,
    /// Everything until the connection's end; responses only.
    Close,
}

/// The reason phrase of a response, where it differs from the canonical one of the status: an
/// extension of the response. A reason phrase has no meaning, but some people read it (RFC 9112
/// §4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasonPhrase(pub HeaderValue);

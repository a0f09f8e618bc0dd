//! Writes the parts of a message other than its content.
//!
//! Guarantees that what is written can be read in one way: names and values come from `http`'s types, which hold nothing
//! else.

use bytes::BytesMut;
use http::header::TRAILER;
use http::{HeaderMap, HeaderName};

/// Field lines, without the empty line after them.
pub fn fields(out: &mut BytesMut, fields: &HeaderMap) {
    for (name, value) in fields {
        field(out, name.as_str(), value.as_bytes());
    }
}

/// One field line.
pub fn field(out: &mut BytesMut, name: &str, value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The line before `length` bytes of content in a chunk (RFC 9112 §7.1). Behind them belongs a [`CHUNK_END`].
pub fn chunk_size(out: &mut BytesMut, length: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut line = [b'\r'; 18];
    line[17] = b'\n';
    let (mut at, mut left) = (16, length);
    while at > 0 {
        at -= 1;
        line[at] = DIGITS[left % 16];
        left /= 16;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&line[at..]);
}

pub const CHUNK_END: &[u8] = b"\r\n";

/// The last chunk, of a body without trailer fields.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Which trailer fields a message may have: those that it announced (RFC 9110 §6.6.2), since nobody else looks out for
/// them, and those that mean nothing in a header section (§6.5.1), so that a peer that merges both is not misled.
#[derive(Debug, Default)]
pub struct Announced(Vec<HeaderName>);

impl Announced {
    /// What the header section announces. Without allocation where there is nothing.
    pub fn by(headers: &HeaderMap) -> Self {
        let lines = headers.get_all(TRAILER).iter();
        let names = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
        Self(
            names
                .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
                .filter(|name| !belongs_before_content(name.as_str()))
                .collect(),
        )
    }

    /// The last chunk with what `trailers` has of what was announced.
    pub fn encode(&self, out: &mut BytesMut, trailers: &HeaderMap) {
        out.extend_from_slice(b"0\r\n");
        let mut kept = HeaderMap::new();
        for (name, value) in trailers.iter().filter(|(name, _)| self.0.contains(name)) {
            kept.append(name.clone(), value.clone());
        }
        fields(out, &kept);
        out.extend_from_slice(b"\r\n");
    }
}

/// Framing, routing, request modifiers, authentication, and what says how to read the content (RFC 9110 §6.5.1); and what
/// gateways say of where a request comes from.
fn belongs_before_content(name: &str) -> bool {
    const PREFIXES: [&str; 5] = ["content-", "if-", "proxy-", "x-forwarded-", "x-real-"];
    const NAMES: [&str; 20] = [
        "age",
        "authorization",
        "cache-control",
        "connection",
        "cookie",
        "date",
        "expect",
        "expires",
        "forwarded",
        "host",
        "keep-alive",
        "max-forwards",
        "range",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "www-authenticate",
        "x-request-id",
    ];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_sizes_are_hexadecimal() {
        for length in [0, 1, 9, 10, 15, 16, 255, 256, 0x1f00, 65_536, usize::MAX] {
            let mut out = BytesMut::new();
            chunk_size(&mut out, length);
            assert_eq!(out, format!("{length:x}\r\n"));
        }
    }

    #[test]
    fn only_announced_and_harmless_trailers_are_written() {
        let mut headers = HeaderMap::new();
        headers.append(TRAILER, "X-Sum, content-length".parse().unwrap());
        headers.append(TRAILER, "x-forwarded-for,,host".parse().unwrap());
        let mut trailers = HeaderMap::new();
        for name in ["x-sum", "content-length", "x-forwarded-for", "host", "x-other"] {
            trailers.append(name, "1".parse().unwrap());
        }
        trailers.append("x-sum", "2".parse().unwrap());
        let mut out = BytesMut::new();
        Announced::by(&headers).encode(&mut out, &trailers);
        assert_eq!(out, "0\r\nx-sum: 1\r\nx-sum: 2\r\n\r\n");
    }
}

//! Encodes field lines and the framing of chunks.
//!
//! Guarantees that what is written can be read in one way: names and values come from `http`'s
//! types, which hold nothing else.

use bytes::BytesMut;
use http::HeaderMap;

use crate::http::trailers::AnnouncedTrailers;

/// Writes a field line.
pub fn field(out: &mut BytesMut, name: &str, value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Writes a field line whose `start` is known beforehand: the name, the colon and the space.
/// Cheaper than [`field`].
#[inline]
pub fn known_field(out: &mut BytesMut, start: &'static [u8], value: &[u8]) {
    out.reserve(start.len() + value.len() + 2);
    out.extend_from_slice(start);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Writes the line before `length` bytes of content in a chunk (RFC 9112 §7.1). A [`CHUNK_END`]
/// belongs after the content.
pub fn chunk_size(out: &mut BytesMut, length: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut line = [b'\r'; 18];
    line[17] = b'\n';
    let mut at = 16;
    let mut left = length;
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

/// Ends the content of a chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// The last chunk, of a body without trailer fields.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Writes the last chunk, with the `trailers` that were announced.
pub fn last_chunk(out: &mut BytesMut, announced: &AnnouncedTrailers, trailers: &HeaderMap) {
    out.extend_from_slice(b"0\r\n");
    for (name, value) in announced.filter(trailers) {
        field(out, name.as_str(), value.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use http::header::TRAILER;

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
    fn the_last_chunk_has_the_announced_trailers() {
        let headers = HeaderMap::from_iter([(TRAILER, "x-sum".parse().unwrap())]);
        let mut trailers = HeaderMap::new();
        for (name, value) in [("x-sum", "1"), ("x-other", "2"), ("x-sum", "3")] {
            trailers.append(name, value.parse().unwrap());
        }
        let mut out = BytesMut::new();
        last_chunk(
            &mut out,
            &AnnouncedTrailers::from_headers(&headers),
            &trailers,
        );
        assert_eq!(out, "0\r\nx-sum: 1\r\nx-sum: 3\r\n\r\n");
    }
}

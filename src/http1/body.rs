//! Takes a body out of what a connection has read, piece by piece, without copying it.
//!
//! Guarantees never to take a byte that belongs to the next message. Knows no sockets.

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};

use super::chunks::{Chunks, Malformed};
use super::{Bounds, Framing, buffers};

/// A body that is being read.
#[derive(Debug)]
pub struct Decoder(State);

#[derive(Debug)]
enum State {
    Length(u64),
    Chunked(Box<Chunks>, Bounds),
    Close,
    Over,
}

impl Decoder {
    /// `bounds` are for the trailer section.
    pub fn new(framing: Framing, bounds: Bounds) -> Self {
        Self(match framing {
            Framing::Length(0) => State::Over,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Chunked(Box::default(), bounds),
            Framing::Close => State::Close,
        })
    }

    /// The next piece of content, or the trailer fields; `None`: more has to be read, unless the body [is over].
    ///
    /// [is over]: Self::is_over
    pub fn decode(&mut self, read: &mut BytesMut) -> Result<Option<Frame<Bytes>>, Malformed> {
        match &mut self.0 {
            State::Over => Ok(None),
            State::Close if read.is_empty() => Ok(None),
            State::Close => Ok(Some(Frame::data(read.split().freeze()))),
            State::Length(_) if read.is_empty() => Ok(None),
            State::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(read.len());
                *left -= taken as u64;
                if *left == 0 {
                    self.0 = State::Over;
                }
                Ok(Some(Frame::data(read.split_to(taken).freeze())))
            }
            State::Chunked(chunks, bounds) => {
                let framing = chunks.follow(read, bounds)?;
                bytes::Buf::advance(read, framing);
                if chunks.is_over() {
                    let trailers = chunks.trailers();
                    self.0 = State::Over;
                    return Ok(trailers.map(Frame::trailers));
                }
                let content = chunks.skip(read.len());
                Ok((content > 0).then(|| Frame::data(read.split_to(content).freeze())))
            }
        }
    }

    /// The connection has ended. Whether the body had, too, or ends with it.
    pub fn close(&mut self) -> bool {
        if matches!(self.0, State::Close) {
            self.0 = State::Over;
        }
        self.is_over()
    }

    /// Nothing is missing.
    pub fn is_over(&self) -> bool {
        matches!(self.0, State::Over)
    }

    /// How much is left, as far as the framing tells.
    pub fn size_hint(&self) -> SizeHint {
        match self.0 {
            State::Over => SizeHint::with_exact(0),
            State::Length(left) => SizeHint::with_exact(left),
            State::Chunked(..) | State::Close => SizeHint::default(),
        }
    }

    /// How much to read at once: no more than there is, or `otherwise` where nobody knows how much that is.
    pub fn wanted(&self, otherwise: usize) -> usize {
        match self.0 {
            State::Length(left) => usize::try_from(left).unwrap_or(usize::MAX).min(buffers::LARGE),
            _ => otherwise,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { bytes: 64, fields: 2 };

    /// All content, the trailer fields, and what is left; `None`: malformed.
    fn decode(framing: Framing, pieces: &[&[u8]]) -> Option<(Vec<u8>, usize, Vec<u8>, bool)> {
        let (mut decoder, mut read) = (Decoder::new(framing, BOUNDS), BytesMut::new());
        let (mut content, mut trailers) = (Vec::new(), 0);
        for piece in pieces {
            read.extend_from_slice(piece);
            while let Some(frame) = decoder.decode(&mut read).ok()? {
                match frame.into_data() {
                    Ok(data) => content.extend_from_slice(&data),
                    Err(frame) => trailers += frame.trailers_ref().map_or(0, |fields| fields.len()),
                }
            }
        }
        Some((content, trailers, read.to_vec(), decoder.is_over()))
    }

    #[test]
    fn a_length_takes_its_bytes_and_no_more() {
        let (content, _, rest, over) = decode(Framing::Length(5), &[b"he", b"llo", b"GET"]).unwrap();
        assert_eq!((&*content, &*rest, over), (&b"hello"[..], &b"GET"[..], true));
        assert!(!decode(Framing::Length(5), &[b"hell"]).unwrap().3);
    }

    #[test]
    fn chunks_are_taken_however_they_arrive() {
        let whole = b"5;x=\"y\"\r\nhello\r\n1\r\n!\r\n0\r\na: 1\r\nb:\t2 \r\n\r\nGET";
        for size in 1..whole.len() {
            let pieces: Vec<&[u8]> = whole.chunks(size).collect();
            let (content, trailers, rest, over) = decode(Framing::Chunked, &pieces).unwrap();
            assert_eq!((&*content, trailers, &*rest, over), (&b"hello!"[..], 2, &b"GET"[..], true), "{size}");
        }
    }

    #[test]
    fn what_breaks_the_grammar_is_malformed() {
        for bad in ["x\r\n", "1\nx", "1\r\nxy", "0\r\na b: 1\r\n", "0\r\na: 1\r\nb: 2\r\nc: 3\r\n", "0\r\na: \0"] {
            assert!(decode(Framing::Chunked, &[bad.as_bytes()]).is_none(), "{bad:?}");
        }
        let long = format!("0\r\na: {}\r\n", "x".repeat(BOUNDS.bytes));
        assert!(decode(Framing::Chunked, &[long.as_bytes()]).is_none());
    }

    #[test]
    fn only_a_body_that_ends_so_ends_with_its_connection() {
        for (framing, complete) in [(Framing::Close, true), (Framing::Length(1), false), (Framing::Chunked, false)] {
            assert_eq!(Decoder::new(framing, BOUNDS).close(), complete, "{framing:?}");
        }
    }
}

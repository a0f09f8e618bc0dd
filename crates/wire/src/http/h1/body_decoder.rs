//! Decodes a body out of the bytes that a connection has read, piece by piece, without copying
//! them.
//!
//! Guarantees never to take a byte that belongs to the next message.

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};

use super::chunks::{Chunks, Malformed};
use super::{BodyFraming, SectionBounds, buffers};
use crate::http::trailers;

/// A body that is being read.
#[derive(Debug)]
pub struct BodyDecoder(DecoderState);

#[derive(Debug)]
enum DecoderState {
    Length(u64),
    Chunked(Box<Chunks>, SectionBounds),
    Close,
    Over,
}

impl BodyDecoder {
    /// A decoder for a body with this framing. `bounds` are for the trailer section.
    pub fn new(framing: BodyFraming, bounds: SectionBounds) -> Self {
        Self(match framing {
            BodyFraming::Length(0) => DecoderState::Over,
            BodyFraming::Length(length) => DecoderState::Length(length),
            BodyFraming::Chunked => DecoderState::Chunked(Box::default(), bounds),
            BodyFraming::Close => DecoderState::Close,
        })
    }

    /// The next piece of content, or the trailer fields. `None`: more has to be read, unless the
    /// body [is over].
    ///
    /// [is over]: Self::is_over
    pub fn decode(&mut self, read: &mut BytesMut) -> Result<Option<Frame<Bytes>>, Malformed> {
        match &mut self.0 {
            DecoderState::Over => Ok(None),
            DecoderState::Close if read.is_empty() => Ok(None),
            DecoderState::Close => Ok(Some(Frame::data(read.split().freeze()))),
            DecoderState::Length(_) if read.is_empty() => Ok(None),
            DecoderState::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(read.len());
                *left -= taken as u64;
                if *left == 0 {
                    self.0 = DecoderState::Over;
                }
                Ok(Some(Frame::data(read.split_to(taken).freeze())))
            }
            DecoderState::Chunked(chunks, bounds) => {
                let framing = chunks.follow(read, bounds)?;
                bytes::Buf::advance(read, framing);
                if chunks.is_over() {
                    let fields = chunks.trailers();
                    let most = bounds.fields;
                    self.0 = DecoderState::Over;
                    let Some(mut fields) = fields else {
                        return Ok(None);
                    };
                    trailers::admit(&mut fields, most).map_err(|_| Malformed)?;
                    return Ok(Some(Frame::trailers(fields)));
                }
                let content = chunks.skip(read.len());
                if content == 0 {
                    return Ok(None);
                }
                Ok(Some(Frame::data(read.split_to(content).freeze())))
            }
        }
    }

    /// Tells the decoder that the connection has ended. Returns whether the body is complete.
    pub fn close(&mut self) -> bool {
        if matches!(self.0, DecoderState::Close) {
            self.0 = DecoderState::Over;
        }
        self.is_over()
    }

    /// Whether the body is complete.
    pub fn is_over(&self) -> bool {
        matches!(self.0, DecoderState::Over)
    }

    /// Bytes that are left, as far as the framing says.
    pub fn size_hint(&self) -> SizeHint {
        match self.0 {
            DecoderState::Over => SizeHint::with_exact(0),
            DecoderState::Length(left) => SizeHint::with_exact(left),
            DecoderState::Chunked(..) | DecoderState::Close => SizeHint::default(),
        }
    }

    /// Bytes to read at once: no more than are left, or `otherwise` where the framing does not say.
    pub fn wanted(&self, otherwise: usize) -> usize {
        match self.0 {
            DecoderState::Length(left) => match usize::try_from(left) {
                Ok(left) if left <= buffers::WHOLE => left,
                Ok(_) | Err(_) => buffers::LARGE,
            },
            DecoderState::Chunked(..) | DecoderState::Close | DecoderState::Over => otherwise,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: SectionBounds = SectionBounds {
        bytes: 64,
        fields: 2,
    };

    /// The content, the number of trailer fields, the bytes left and whether the body is over.
    /// `None`: malformed.
    fn decode(framing: BodyFraming, pieces: &[&[u8]]) -> Option<(Vec<u8>, usize, Vec<u8>, bool)> {
        let mut decoder = BodyDecoder::new(framing, BOUNDS);
        let mut read = BytesMut::new();
        let mut content = Vec::new();
        let mut trailers = 0;
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
        let (content, _, rest, over) =
            decode(BodyFraming::Length(5), &[b"he", b"llo", b"GET"]).unwrap();
        assert_eq!(
            (&*content, &*rest, over),
            (&b"hello"[..], &b"GET"[..], true)
        );
        assert!(!decode(BodyFraming::Length(5), &[b"hell"]).unwrap().3);
    }

    #[test]
    fn chunks_are_taken_however_they_arrive() {
        let whole = b"5;x=\"y\"\r\nhello\r\n1\r\n!\r\n0\r\na: 1\r\nb:\t2 \r\n\r\nGET";
        for size in 1..whole.len() {
            let pieces: Vec<&[u8]> = whole.chunks(size).collect();
            let (content, trailers, rest, over) = decode(BodyFraming::Chunked, &pieces).unwrap();
            assert_eq!(
                (&*content, trailers, &*rest, over),
                (&b"hello!"[..], 2, &b"GET"[..], true),
                "{size}"
            );
        }
    }

    #[test]
    fn a_chunked_body_that_breaks_the_grammar_is_malformed() {
        for bad in [
            "x\r\n",
            "1\nx",
            "1\r\nxy",
            "0\r\na b: 1\r\n",
            "0\r\na: 1\r\nb: 2\r\nc: 3\r\n",
            "0\r\na: \0",
        ] {
            assert!(
                decode(BodyFraming::Chunked, &[bad.as_bytes()]).is_none(),
                "{bad:?}"
            );
        }
        let long = format!("0\r\na: {}\r\n", "x".repeat(BOUNDS.bytes));
        assert!(decode(BodyFraming::Chunked, &[long.as_bytes()]).is_none());
    }

    #[test]
    fn only_a_body_framed_by_the_close_ends_with_its_connection() {
        for (framing, complete) in [
            (BodyFraming::Close, true),
            (BodyFraming::Length(1), false),
            (BodyFraming::Chunked, false),
        ] {
            assert_eq!(
                BodyDecoder::new(framing, BOUNDS).close(),
                complete,
                "{framing:?}"
            );
        }
    }
}

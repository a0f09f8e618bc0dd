//! Framed content: the same however it arrives.

use bytes::BytesMut;
use http::HeaderMap;

use super::pieces::split;
use tollgate_wire::http::h1::body_decoder::BodyDecoder;
use tollgate_wire::http::h1::chunks::Malformed;
use tollgate_wire::http::h1::{BodyFraming, SectionBounds};

const BOUNDS: SectionBounds = SectionBounds {
    bytes: 4096,
    fields: 16,
};

/// A decoder's reading of bytes: content, trailers, whether the body is complete, and the number of
/// bytes that are left.
type Decoded = Result<(Vec<u8>, Option<HeaderMap>, bool, usize), Malformed>;

/// A chunked body that arrives in two pieces, or byte by byte, is the body that arrives whole.
pub fn pieces_make_no_difference(data: &[u8]) {
    let (bytes, place) = split(data);
    let whole = decode([bytes]);
    let (before, after) = bytes.split_at(place);
    for pieces in [decode([before, after]), decode(bytes.chunks(1))] {
        match (&whole, &pieces) {
            // Content before the fault may have been passed on.
            (Err(_), Err(_)) => {}
            _ => assert_eq!(whole, pieces),
        }
    }
}

fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    let mut decoder = BodyDecoder::new(BodyFraming::Chunked, BOUNDS);
    let mut read = BytesMut::new();
    let mut content = Vec::new();
    let mut trailers = None;
    for piece in pieces {
        read.extend_from_slice(piece);
        while let Some(frame) = decoder.decode(&mut read)? {
            match frame.into_data() {
                Ok(data) => content.extend_from_slice(&data),
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
    }
    Ok((content, trailers, decoder.is_over(), read.len()))
}

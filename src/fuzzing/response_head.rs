//! The head of an upstream's response: read alike, framing included, whole or in pieces.

use bytes::BytesMut;

use super::pieces::split;
use tollgate_proxy::connection::response::HeadReader;
use tollgate_proxy::upstream::bounds::RESPONSE_HEAD as BOUNDS;

/// A head that arrives in two pieces is read like one that arrives whole.
pub fn pieces_make_no_difference(data: &[u8]) {
    let (bytes, place) = split(data);
    // A response to HEAD has no body.
    for to_head in [false, true] {
        let mut read = BytesMut::from(bytes);
        let whole = HeadReader::default().take(&mut read, to_head, &BOUNDS);
        let mut piecewise = BytesMut::from(&bytes[..place]);
        let mut reader = HeadReader::default();
        let pieces = match reader.take(&mut piecewise, to_head, &BOUNDS) {
            Ok(None) => {
                piecewise.extend_from_slice(&bytes[place..]);
                reader.take(&mut piecewise, to_head, &BOUNDS)
            }
            Ok(Some(head)) => {
                piecewise.extend_from_slice(&bytes[place..]);
                Ok(Some(head))
            }
            Err(refused) => Err(refused),
        };
        if bytes.len() > BOUNDS.bytes {
            // The head is too long, and may be malformed as well: which of both is told depends on
            // the cut.
            return;
        }
        match (whole, pieces) {
            (Ok(None), Ok(None)) | (Err(_), Err(_)) => {}
            // After a piece that was not whole, the reader parses again only at an empty line, or
            // when there is much more: it has not seen the fault yet.
            (Err(_), Ok(None)) => {
                piecewise.extend_from_slice(b"\r\n\r\n");
                assert!(reader.take(&mut piecewise, to_head, &BOUNDS).is_err());
            }
            (Ok(Some(one)), Ok(Some(other))) => {
                assert_eq!(one.status, other.status);
                assert_eq!(one.version, other.version);
                assert_eq!(one.framing, other.framing);
                assert_eq!(one.last, other.last);
                assert_eq!(one.headers, other.headers);
                assert_eq!(read, piecewise);
            }
            (whole, pieces) => panic!("whole: {whole:?}, in pieces: {pieces:?}"),
        }
    }
}

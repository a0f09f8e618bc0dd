//! Reads the header section of an upstream's response and how its body is framed.
//!
//! Guarantees that a response which could be read in two ways is refused (RFC 9112 §6.3).

use std::mem::MaybeUninit;

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};
use httparse::Status;
use smallvec::SmallVec;

use tollgate_wire::header_map_pool;
use tollgate_wire::http::h1::{BodyFraming, ReasonPhrase, SectionBounds};
use tollgate_wire::http::{response_rules, syntax};

/// Number of fields that are read without an allocation.
const FREE_FIELDS: usize = 128;

/// The fault of an upstream that sends interim responses without end.
pub const ENDLESS: &str = "there are too many interim responses";

/// Number of fields of most responses.
const TYPICAL_FIELDS: usize = 16;

/// A response without its body.
#[derive(Debug)]
pub struct ResponseHead {
    pub status: StatusCode,
    /// `None`: the canonical reason phrase of the status.
    pub reason: Option<ReasonPhrase>,
    pub version: Version,
    pub headers: HeaderMap,
    pub framing: BodyFraming,
    /// No other response follows on the connection.
    pub last: bool,
}

/// The response is not HTTP, or could be read in two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidResponse(&'static str);

/// The fault of a header section over its bounds.
pub const TOO_LARGE: InvalidResponse = InvalidResponse("the header section is too large");

impl InvalidResponse {
    pub fn new(why: &'static str) -> Self {
        Self(why)
    }
}

/// The fields that say how a response is framed and what becomes of its connection, noted while
/// they are read: nearly all responses lack most of them, and the header map need not be searched.
#[derive(Debug, Default)]
struct ResponseControls {
    connection: bool,
    transfer_encoding: bool,
    content_length: bool,
    /// `None`: there is not one plain number.
    length: Option<u64>,
}

/// For each field, where its name starts and ends and where its value does.
type FieldRanges = SmallVec<[[usize; 4]; TYPICAL_FIELDS]>;

/// The room for fields that are being parsed.
type FieldRoom<'b> = [MaybeUninit<httparse::Header<'b>>];

/// Reads the header sections of the responses on a connection.
#[derive(Debug, Default)]
pub struct HeadReader {
    /// The bytes of an incomplete section when they were last parsed.
    parsed: usize,
    /// The bytes of an incomplete section that have no end of the section.
    searched: usize,
    /// Bytes of empty lines before the section.
    blank: usize,
}

/// The first line of a section, and the places of all that follows.
#[derive(Default)]
struct ParsedSection {
    length: usize,
    status: Option<StatusCode>,
    is_old: bool,
    reason: Option<ReasonPhrase>,
    fields: FieldRanges,
}

impl HeadReader {
    /// Takes the header section out of `read`, once it is complete. `to_head`: it answers a HEAD
    /// request.
    ///
    /// # Errors
    /// The section is not one of HTTP/1, can be read in two ways, or is over the `bounds`.
    pub fn take(
        &mut self,
        read: &mut BytesMut,
        to_head: bool,
        bounds: &SectionBounds,
    ) -> Result<Option<ResponseHead>, InvalidResponse> {
        let blank = blank_lines(read);
        if blank > 0 {
            read.advance(blank);
            *self = Self {
                blank: self.blank.saturating_add(blank),
                ..Self::default()
            };
            if self.blank > bounds.bytes {
                return Err(TOO_LARGE);
            }
        }
        if !self.may_be_complete(read) {
            return if read.len() > bounds.bytes {
                Err(TOO_LARGE)
            } else {
                Ok(None)
            };
        }
        let mut section = ParsedSection::default();
        let mut room = [const { MaybeUninit::uninit() }; FREE_FIELDS];
        let mut parsed = section.parse(read, &mut room[..FREE_FIELDS.min(bounds.fields)]);
        if parsed == Err(httparse::Error::TooManyHeaders) && bounds.fields > FREE_FIELDS {
            parsed = section.parse(read, &mut vec![MaybeUninit::uninit(); bounds.fields]);
        }
        match parsed {
            Ok(Status::Complete(())) if section.length <= bounds.bytes => {
                *self = Self::default();
                section.take(read, to_head).map(Some)
            }
            Ok(Status::Partial) if read.len() <= bounds.bytes => {
                self.parsed = read.len();
                Ok(None)
            }
            Ok(_) | Err(httparse::Error::TooManyHeaders) => Err(TOO_LARGE),
            Err(_) => Err(InvalidResponse("what came is not HTTP/1")),
        }
    }

    /// Whether the section is parsed: at first, at its end, and when it has become twice as long
    /// meanwhile. A section that comes byte by byte is not parsed for each of them.
    fn may_be_complete(&mut self, read: &[u8]) -> bool {
        if self.parsed == 0 {
            return true;
        }
        let from = self.searched.saturating_sub(2);
        self.searched = read.len();
        read.len() / 2 >= self.parsed || has_blank_line(&read[from..])
    }
}

/// Bytes of the empty lines before a section.
fn blank_lines(mut bytes: &[u8]) -> usize {
    let length = bytes.len();
    while let [b'\n', rest @ ..] | [b'\r', b'\n', rest @ ..] = bytes {
        bytes = rest;
    }
    length - bytes.len()
}

fn has_blank_line(bytes: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', bytes)
        .any(|at| matches!(bytes[at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]))
}

impl ParsedSection {
    fn parse<'b>(
        &mut self,
        read: &'b [u8],
        room: &mut FieldRoom<'b>,
    ) -> Result<Status<()>, httparse::Error> {
        let mut response = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
            &mut response,
            read,
            room,
        )?;
        let Status::Complete(length) = parsed else {
            return Ok(Status::Partial);
        };
        self.length = length;
        self.status = response
            .code
            .and_then(|code| StatusCode::from_u16(code).ok());
        self.is_old = response.version == Some(0);
        if let Some(status) = self.status {
            self.reason = own_reason(status, response.reason);
        }
        let places = response.headers.iter().map(|field| range(read, field));
        self.fields.extend(places);
        Ok(Status::Complete(()))
    }

    fn take(
        &mut self,
        read: &mut BytesMut,
        to_head: bool,
    ) -> Result<ResponseHead, InvalidResponse> {
        let status = self.status.ok_or(InvalidResponse("no status"))?;
        let version = if self.is_old {
            Version::HTTP_10
        } else {
            Version::HTTP_11
        };
        let (mut headers, controls) =
            fields_at(&read.split_to(self.length).freeze(), &self.fields)?;
        let length = controls.length(&mut headers)?;
        let (framing, is_certain) = if to_head || !response_rules::has_content(status) {
            (
                BodyFraming::Length(0),
                to_head || is_silent(status, &controls, length),
            )
        } else if controls.transfer_encoding {
            chunked(version, &headers, length)?
        } else {
            (length.map_or(BodyFraming::Close, BodyFraming::Length), true)
        };
        let last =
            !is_certain || framing == BodyFraming::Close || !stays(version, &headers, &controls);
        Ok(ResponseHead {
            status,
            reason: self.reason.take(),
            version,
            headers,
            framing,
            last,
        })
    }
}

/// The reason phrase, if it is not the canonical one of the status.
fn own_reason(status: StatusCode, reason: Option<&str>) -> Option<ReasonPhrase> {
    let reason = reason?;
    if reason.is_empty() || status.canonical_reason() == Some(reason) {
        return None;
    }
    HeaderValue::from_str(reason).ok().map(ReasonPhrase)
}

fn range(read: &[u8], field: &httparse::Header<'_>) -> [usize; 4] {
    let origin = read.as_ptr() as usize;
    let name = field.name.as_ptr() as usize - origin;
    let value = field.value.as_ptr() as usize - origin;
    [
        name,
        name + field.name.len(),
        value,
        value + field.value.len(),
    ]
}

fn fields_at(
    section: &Bytes,
    ranges: &FieldRanges,
) -> Result<(HeaderMap, ResponseControls), InvalidResponse> {
    let mut headers = header_map_pool::take();
    let mut controls = ResponseControls::default();
    for [name, name_end, value, value_end] in ranges {
        let name = HeaderName::from_bytes(&section[*name..*name_end])
            .map_err(|_| InvalidResponse("a field name is not a token"))?;
        let value = section.slice(*value..*value_end);
        controls.read(&name, &value);
        let value = HeaderValue::from_maybe_shared(value)
            .map_err(|_| InvalidResponse("a field value has a control character"))?;
        headers.append(name, value);
    }
    Ok((headers, controls))
}

impl ResponseControls {
    #[inline]
    fn read(&mut self, name: &HeaderName, value: &[u8]) {
        match *name {
            CONNECTION => self.connection = true,
            TRANSFER_ENCODING => self.transfer_encoding = true,
            CONTENT_LENGTH => {
                self.length = if self.content_length {
                    None
                } else {
                    plain_length(value)
                };
                self.content_length = true;
            }
            _ => {}
        }
    }

    /// The length that the response announces.
    fn length(&self, headers: &mut HeaderMap) -> Result<Option<u64>, InvalidResponse> {
        if self.content_length && self.length.is_none() {
            content_length(headers)
        } else {
            Ok(self.length)
        }
    }
}

/// Whether another response may follow on the connection, as far as `Connection` and the version
/// say.
fn stays(version: Version, headers: &HeaderMap, controls: &ResponseControls) -> bool {
    let is_old = version == Version::HTTP_10;
    if !controls.connection {
        return !is_old;
    }
    let option: &[u8] = if is_old { b"keep-alive" } else { b"close" };
    let mut lines = headers.get_all(CONNECTION).iter();
    lines.any(|line| syntax::list_has(line.as_bytes(), option)) == is_old
}

/// Whether a response that must not have content also announces none. If it does announce some, it
/// may send it nevertheless.
fn is_silent(status: StatusCode, controls: &ResponseControls, length: Option<u64>) -> bool {
    response_rules::has_length_of_another(status)
        || (length.unwrap_or(0) == 0 && !controls.transfer_encoding)
}

/// How the body of a response with a transfer coding is framed (RFC 9112 §6.3), and whether every
/// reader would see its end in the same place.
fn chunked(
    version: Version,
    headers: &HeaderMap,
    length: Option<u64>,
) -> Result<(BodyFraming, bool), InvalidResponse> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        // A length beside a transfer coding means nothing, and a server that sent both may have
        // meant two messages. HTTP/1.0 has no chunks (RFC 9112 §6.1).
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok((
            BodyFraming::Chunked,
            length.is_none() && version == Version::HTTP_11,
        )),
        _ => Err(InvalidResponse("the transfer coding is not chunked")),
    }
}

/// The number, if it is written as nearly all are: in digits alone, without needless zeros, and not
/// too large.
fn plain_length(value: &[u8]) -> Option<u64> {
    let plain = value.len() == 1 || value.first().is_some_and(|digit| *digit != b'0');
    if plain {
        syntax::content_length(value).ok()
    } else {
        None
    }
}

/// "5, 5" and two lines of "5" are 5 (RFC 9110 §8.6) and become one line, since not every client
/// reads them so. "5, 6" is invalid.
pub fn content_length(headers: &mut HeaderMap) -> Result<Option<u64>, InvalidResponse> {
    let mut lines = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = lines.next() else {
        return Ok(None);
    };
    if let (Some(length), None) = (plain_length(first.as_bytes()), lines.next()) {
        return Ok(Some(length));
    }
    let mut length = None;
    for value in headers
        .get_all(CONTENT_LENGTH)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
    {
        let Ok(this) = syntax::content_length(syntax::trim(value)) else {
            return Err(InvalidResponse("Content-Length is not a number"));
        };
        if length.replace(this).is_some_and(|before| before != this) {
            return Err(InvalidResponse("two lengths that differ"));
        }
    }
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::bounds::RESPONSE_HEAD as BOUNDS;

    fn read(text: &str) -> Result<Option<ResponseHead>, InvalidResponse> {
        HeadReader::default().take(&mut BytesMut::from(text), false, &BOUNDS)
    }

    fn framed(fields: &str) -> Option<(BodyFraming, bool)> {
        let head = read(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n")).ok()??;
        Some((head.framing, head.last))
    }

    #[test]
    fn empty_lines_without_end_are_no_beginning_of_a_section() {
        let mut buffer = BytesMut::new();
        let mut reader = HeadReader::default();
        for _ in 0..BOUNDS.bytes / 4 {
            buffer.extend_from_slice(b"\r\n\r\n");
            assert!(reader.take(&mut buffer, false, &BOUNDS).unwrap().is_none());
        }
        buffer.extend_from_slice(b"\r\n");
        assert!(reader.take(&mut buffer, false, &BOUNDS).is_err());
    }

    #[test]
    fn a_section_is_taken_once_it_is_complete() {
        let text = "HTTP/1.1 200 OK\r\nA: 1\r\na:  2 \r\nContent-Length: 2\r\n\r\nok";
        let mut buffer = BytesMut::new();
        let mut reader = HeadReader::default();
        for byte in text.as_bytes() {
            buffer.extend_from_slice(&[*byte]);
            if let Some(head) = reader.take(&mut buffer, false, &BOUNDS).unwrap() {
                assert_eq!(
                    (head.status, head.version),
                    (StatusCode::OK, Version::HTTP_11)
                );
                assert_eq!(
                    head.headers.get_all("a").iter().collect::<Vec<_>>(),
                    ["1", "2"]
                );
                assert_eq!((head.framing, head.last), (BodyFraming::Length(2), false));
                return assert!(buffer.is_empty());
            }
        }
        panic!("never whole");
    }

    #[test]
    fn a_body_is_framed_as_rfc_9112_says() {
        for (fields, framing) in [
            ("", Some((BodyFraming::Close, true))),
            (
                "content-length: 5\r\n",
                Some((BodyFraming::Length(5), false)),
            ),
            (
                "content-length: 5, 5\r\ncontent-length: 5\r\n",
                Some((BodyFraming::Length(5), false)),
            ),
            (
                "content-length: 5\r\nconnection: x, Close\r\n",
                Some((BodyFraming::Length(5), true)),
            ),
            (
                "transfer-encoding: Chunked\r\n",
                Some((BodyFraming::Chunked, false)),
            ),
            (
                "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
                Some((BodyFraming::Chunked, true)),
            ),
            ("content-length: 5, 6\r\n", None),
            ("content-length: 5\r\ncontent-length: 6\r\n", None),
            ("content-length: -5\r\n", None),
            ("content-length: \r\n", None),
            ("transfer-encoding: gzip, chunked\r\n", None),
            (
                "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
                None,
            ),
            ("transfer-encoding: gzip\r\n", None),
        ] {
            assert_eq!(framed(fields), framing, "{fields:?}");
        }
    }

    #[test]
    fn some_statuses_have_no_body_whatever_their_fields_say() {
        for status in [100, 101, 103, 204, 304] {
            let head = read(&format!("HTTP/1.1 {status} x\r\nContent-Length: 5\r\n\r\n"))
                .unwrap()
                .unwrap();
            assert_eq!(head.framing, BodyFraming::Length(0), "{status}");
        }
        let mut to_head = BytesMut::from("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
        let head = HeadReader::default()
            .take(&mut to_head, true, &BOUNDS)
            .unwrap()
            .unwrap();
        assert_eq!((head.framing, head.last), (BodyFraming::Length(0), false));
    }

    #[test]
    fn http_1_0_closes_unless_it_says_otherwise() {
        for (fields, last) in [("", true), ("connection: keep-alive\r\n", false)] {
            let head = read(&format!(
                "HTTP/1.0 200 OK\r\ncontent-length: 0\r\n{fields}\r\n"
            ))
            .unwrap()
            .unwrap();
            assert_eq!((head.version, head.last), (Version::HTTP_10, last));
        }
    }

    #[test]
    fn anything_but_a_response_is_invalid() {
        for bad in [
            "SSH-2.0-x\r\n",
            "HTTP/2 200\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\na b: c\r\n\r\n",
        ] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
        let many = "a: b\r\n".repeat(BOUNDS.fields + 1);
        assert!(read(&format!("HTTP/1.1 200 OK\r\n{many}\r\n")).is_err());
        assert!(
            read(&format!(
                "HTTP/1.1 200 OK\r\na: {}",
                "x".repeat(BOUNDS.bytes)
            ))
            .is_err()
        );
    }
}

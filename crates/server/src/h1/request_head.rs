//! Reads a header section line by line and makes a request of it.
//!
//! Guarantees that a request which could be read in two ways is refused (RFC 9112 §2 to §6). Each
//! line is read once, however the section arrives, and nothing is copied: the parts of the section
//! become the request's own.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use http::header::{HOST, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, Version};
use smallvec::SmallVec;

use super::connection_options::ConnectionOptions;
use super::request_line;
use tollgate_wire::error::Failure;
use tollgate_wire::header_map_pool;
use tollgate_wire::http::h1::{BodyFraming, SectionBounds};
use tollgate_wire::http::request_rules::{self, MAX_METHOD};
use tollgate_wire::http::syntax;

/// Empty lines that are skipped before a request line (RFC 9112 §2.2 asks for at least one).
const MAX_BLANK_LINES: u8 = 4;
/// Bytes of the rest of a request line: two spaces, the version, CR and LF.
const REQUEST_LINE_REST: usize = 12;
/// Number of fields that are recorded without an allocation.
const FREE_FIELDS: usize = 16;

/// The start and the end of a part of the section, in half the room of a `Range<usize>`.
#[derive(Clone, Copy, Debug, Default)]
struct ByteRange {
    start: u32,
    end: u32,
}

/// The places of a field's parts in the section.
#[derive(Clone, Copy, Debug)]
struct FieldPlace {
    name: ByteRange,
    value: ByteRange,
}

/// The header section that is being read.
#[derive(Debug, Default)]
pub struct RequestHead {
    /// The start of the line that is being read.
    line: usize,
    /// The end of the bytes in which a line's end was searched for.
    searched: usize,
    blank_lines: u8,
    started: bool,
    method: Method,
    target: ByteRange,
    fields: SmallVec<[FieldPlace; FREE_FIELDS]>,
    controls: ControlFields,
}

/// The fields for the message's framing, its host and the fate of its connection.
#[derive(Debug, Default)]
struct ControlFields {
    http_11: bool,
    has_host: bool,
    cookies: usize,
    length: Option<u64>,
    chunked: bool,
    upgrade: bool,
    close: bool,
    keep_alive: bool,
    awaits_continue: bool,
    takes_trailers: bool,
}

impl RequestHead {
    /// Reads on. `bytes` starts at the section's first byte and holds all of it that has arrived.
    /// Returns the section's length, once it is complete. `bounds.bytes` fits 32 bits.
    pub fn read(&mut self, bytes: &[u8], bounds: &SectionBounds) -> Result<Option<usize>, Failure> {
        while let Some(found) = memchr::memchr(b'\n', &bytes[self.searched..]) {
            let end = self.searched + found;
            if end >= bounds.bytes {
                return Err(self.too_large());
            }
            let [line @ .., b'\r'] = &bytes[self.line..end] else {
                return Err(Failure::BadRequest("a line ends without CR"));
            };
            let start = std::mem::replace(&mut self.line, end + 1);
            self.searched = end + 1;
            if self.line(start, line, bounds)? {
                return Ok(Some(end + 1));
            }
        }
        self.searched = bytes.len();
        if bytes.len() >= bounds.bytes
            || (!self.started && bytes.len() - self.line > longest_request_line(bounds))
        {
            return Err(self.too_large());
        }
        Ok(None)
    }

    /// Whether no byte of a request has arrived. Empty lines before a request do not count.
    pub fn is_blank(&self) -> bool {
        !self.started && self.line == self.searched
    }

    /// Whether this is a HEAD request, whose response has no content.
    pub fn is_head(&self) -> bool {
        self.method == Method::HEAD
    }

    /// Fills `request` from the complete `section`, and resets itself for the next one.
    pub fn finish<B>(
        &mut self,
        section: &Bytes,
        request: &mut Request<B>,
    ) -> Result<ConnectionOptions, Failure> {
        let headers = self.headers(section)?;
        let options = self.controls.options(self.is_head())?;
        let (uri, host) = request_line::uri(&self.method, part(section, self.target))?;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        *request.version_mut() = if self.controls.http_11 {
            Version::HTTP_11
        } else {
            Version::HTTP_10
        };
        *request.method_mut() = std::mem::take(&mut self.method);
        if let Some(host) = host {
            request.headers_mut().insert(HOST, host);
        }
        self.reset();
        Ok(options)
    }

    /// Resets the fields in place: a new `RequestHead` would be large to move.
    fn reset(&mut self) {
        self.line = 0;
        self.searched = 0;
        self.blank_lines = 0;
        self.started = false;
        self.fields.clear();
        self.controls = ControlFields::default();
    }

    fn headers(&self, section: &Bytes) -> Result<HeaderMap, Failure> {
        let mut headers = header_map_pool::take();
        for field in &self.fields {
            let name = HeaderName::from_bytes(&section[field.name.range()])
                .map_err(|_| Failure::BadRequest("a field name is not a token"))?;
            let value = HeaderValue::from_maybe_shared(part(section, field.value))
                .map_err(|_| Failure::BadRequest("a field value has a control character"))?;
            headers
                .try_append(name, value)
                .map_err(|_| Failure::HeadersTooLarge)?;
        }
        Ok(headers)
    }

    fn too_large(&self) -> Failure {
        if self.started {
            Failure::HeadersTooLarge
        } else {
            Failure::UriTooLong
        }
    }

    /// Reads the line that starts at `start`, given without its end. Returns whether the line is
    /// the section's last.
    fn line(&mut self, start: usize, line: &[u8], bounds: &SectionBounds) -> Result<bool, Failure> {
        if !self.started {
            if line.is_empty() && self.blank_lines < MAX_BLANK_LINES {
                self.blank_lines += 1;
            } else {
                self.request_line(start, line, bounds)?;
                self.started = true;
            }
            return Ok(false);
        }
        if line.is_empty() {
            return Ok(true);
        }
        self.field(start, line)?;
        request_rules::field_count(self.fields.len(), self.controls.cookies, bounds)?;
        Ok(false)
    }

    /// `method SP request-target SP HTTP-version` (RFC 9112 §3).
    fn request_line(
        &mut self,
        start: usize,
        line: &[u8],
        bounds: &SectionBounds,
    ) -> Result<(), Failure> {
        let mut parts = line.split(|b| *b == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Failure::BadRequest(
                "the request line is not method, target and version",
            ));
        };
        self.target = ByteRange::new(start + method.len() + 1, target.len());
        self.method = Method::from_bytes(method)
            .map_err(|_| Failure::BadRequest("the method is not a token"))?;
        self.controls.http_11 = version == b"HTTP/1.1";
        if !self.controls.http_11 && version != b"HTTP/1.0" {
            return Err(request_line::other_version(version));
        }
        request_rules::method(&self.method)?;
        request_rules::target_length(target.len(), bounds)?;
        request_line::check_target(&self.method, target)
    }

    /// `field-name ":" OWS field-value OWS` (RFC 9112 §5).
    fn field(&mut self, start: usize, line: &[u8]) -> Result<(), Failure> {
        let Some(colon) = memchr::memchr(b':', line) else {
            return Err(Failure::BadRequest("a field line has no colon"));
        };
        let name = &line[..colon];
        let rest = &line[colon + 1..];
        let value = syntax::trim(rest);
        let before = rest
            .iter()
            .take_while(|b| matches!(b, b' ' | b'\t'))
            .count();
        self.fields.push(FieldPlace {
            name: ByteRange::new(start, name.len()),
            value: ByteRange::new(start + colon + 1 + before, value.len()),
        });
        self.controls.interpret(name, value)
    }
}

impl ControlFields {
    /// Reads a control field. Compares lengths first: most fields are others.
    fn interpret(&mut self, name: &[u8], value: &[u8]) -> Result<(), Failure> {
        match name.len() {
            2 if name.eq_ignore_ascii_case(b"te") => {
                self.takes_trailers |= syntax::list_has(value, b"trailers")
            }
            4 if name.eq_ignore_ascii_case(b"host") => {
                request_rules::host(&mut self.has_host, value)?
            }
            6 if name.eq_ignore_ascii_case(b"cookie") => self.cookies += 1,
            6 if name.eq_ignore_ascii_case(b"expect") => {
                self.awaits_continue |= value.eq_ignore_ascii_case(b"100-continue");
            }
            7 if name.eq_ignore_ascii_case(b"upgrade") => self.upgrade = true,
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.close |= syntax::list_has(value, b"close");
                self.keep_alive |= syntax::list_has(value, b"keep-alive");
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                request_rules::content_length(&mut self.length, value)?;
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.transfer_encoding(value)?
            }
            _ => {}
        }
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Failure> {
        if std::mem::replace(&mut self.chunked, true) {
            return Err(Failure::BadRequest("more than one Transfer-Encoding"));
        }
        syntax::transfer_encoding(value)
    }

    /// Checks that need the whole section (RFC 9112 §3.2, §6.1, §6.3, §9.3).
    fn options(&self, is_head: bool) -> Result<ConnectionOptions, Failure> {
        if self.chunked && self.length.is_some() {
            return Err(Failure::BadRequest(
                "both Content-Length and Transfer-Encoding",
            ));
        }
        if self.chunked && !self.http_11 {
            return Err(Failure::BadRequest("Transfer-Encoding in HTTP/1.0"));
        }
        if self.http_11 && !self.has_host {
            return Err(Failure::BadRequest("no Host"));
        }
        Ok(ConnectionOptions {
            framing: if self.chunked {
                BodyFraming::Chunked
            } else {
                BodyFraming::Length(self.length.unwrap_or(0))
            },
            http_11: self.http_11,
            is_head,
            keeps_alive: !self.close && (self.http_11 || self.keep_alive),
            upgrade: self.upgrade && self.http_11,
            // HTTP/1.0 has no interim responses (RFC 9110 §10.1.1).
            awaits_continue: self.awaits_continue && self.http_11,
            takes_trailers: self.takes_trailers,
        })
    }
}

fn longest_request_line(bounds: &SectionBounds) -> usize {
    request_rules::longest_target(bounds) + MAX_METHOD + REQUEST_LINE_REST
}

impl ByteRange {
    /// The place of a part. The bound on a section fits 32 bits, and so does each place in it.
    fn new(start: usize, length: usize) -> Self {
        Self {
            start: start as u32,
            end: (start + length) as u32,
        }
    }

    fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }
}

fn part(section: &Bytes, place: ByteRange) -> Bytes {
    section.slice(place.range())
}

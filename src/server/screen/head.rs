//! Reads one header section line by line and decides whether it can be read in one way only (RFC 9112 §2 to §6).
//!
//! Sees each line once, however the section arrives, and keeps nothing but what it needs to judge the rest: no allocation.

use crate::error::Failure;
use crate::http1::{Bounds, Framing, syntax};

/// Empty lines before a request line that are passed over (RFC 9112 §2.2 asks for one at least).
const MAX_BLANK_LINES: u8 = 4;
/// Bytes of a method: the longest registered one has 17.
const MAX_METHOD: usize = 32;
/// Bytes of the rest of a request line: two spaces, the version, CR and LF.
const REQUEST_LINE_REST: usize = 12;
/// Longer targets do not fit a `http::Uri`.
const MAX_URI: usize = u16::MAX as usize - 1;

/// Bytes of a request target: half the section, so that fields always have room.
fn longest_target(bounds: &Bounds) -> usize {
    (bounds.bytes / 2).min(MAX_URI)
}

/// What a whole header section announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Bytes of the section.
    pub bytes: usize,
    pub framing: Framing,
    /// HTTP/1.1 with an Upgrade field: what follows depends on the answer.
    pub upgrade: bool,
}

/// The header section that is being read.
#[derive(Debug, Default)]
pub struct Head {
    /// Where the line that is being read starts.
    line: usize,
    /// How far its end was looked for.
    searched: usize,
    blank_lines: u8,
    fields: usize,
    started: bool,
    http_11: bool,
    is_head: bool,
    has_host: bool,
    length: Option<u64>,
    chunked: bool,
    upgrade: bool,
}

impl Head {
    /// Reads on. `bytes` starts at the section's first byte and holds all that has arrived of it.
    pub fn read(&mut self, bytes: &[u8], bounds: &Bounds) -> Result<Option<Announced>, Failure> {
        while let Some(found) = memchr::memchr(b'\n', &bytes[self.searched..]) {
            let end = self.searched + found;
            if end >= bounds.bytes {
                return Err(self.too_large());
            }
            let Some((b'\r', line)) = bytes[self.line..end].split_last().map(|(last, line)| (*last, line)) else {
                return Err(Failure::BadRequest("a line ends without CR"));
            };
            (self.line, self.searched) = (end + 1, end + 1);
            if self.line(line, bounds)? {
                return self.finish(end + 1).map(Some);
            }
        }
        self.searched = bytes.len();
        if bytes.len() >= bounds.bytes || (!self.started && bytes.len() - self.line > self.longest_request_line(bounds))
        {
            return Err(self.too_large());
        }
        Ok(None)
    }

    /// Whether anything of a request has arrived: empty lines before it are not.
    pub fn is_blank(&self) -> bool {
        !self.started && self.line == self.searched
    }

    /// Whether this is a HEAD request, whose answer has no body.
    pub fn is_head(&self) -> bool {
        self.is_head
    }

    fn longest_request_line(&self, bounds: &Bounds) -> usize {
        longest_target(bounds) + MAX_METHOD + REQUEST_LINE_REST
    }

    fn too_large(&self) -> Failure {
        if self.started { Failure::HeadersTooLarge } else { Failure::UriTooLong }
    }

    /// Takes one line, without its end. True: it was the section's last.
    fn line(&mut self, line: &[u8], bounds: &Bounds) -> Result<bool, Failure> {
        if !self.started {
            if line.is_empty() && self.blank_lines < MAX_BLANK_LINES {
                self.blank_lines += 1;
            } else {
                self.request_line(line, bounds)?;
                self.started = true;
            }
            return Ok(false);
        }
        if line.is_empty() {
            return Ok(true);
        }
        self.fields += 1;
        if self.fields > bounds.fields {
            return Err(Failure::HeadersTooLarge);
        }
        self.field(line)?;
        Ok(false)
    }

    /// `method SP request-target SP HTTP-version` (RFC 9112 §3).
    fn request_line(&mut self, line: &[u8], bounds: &Bounds) -> Result<(), Failure> {
        let mut parts = line.split(|b| *b == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Failure::BadRequest("the request line is not method, target and version"));
        };
        if !syntax::is_token(method) {
            return Err(Failure::BadRequest("the method is not a token"));
        }
        self.is_head = method == b"HEAD";
        self.http_11 = version == b"HTTP/1.1";
        if !self.http_11 && version != b"HTTP/1.0" {
            return Err(other_version(version));
        }
        if method.len() > MAX_METHOD {
            return Err(Failure::NotImplemented("the method is longer than any this gateway knows"));
        }
        if method == b"CONNECT" {
            return Err(Failure::NotImplemented("this gateway is no tunnel: CONNECT has no meaning here"));
        }
        if target.len() > longest_target(bounds) {
            return Err(Failure::UriTooLong);
        }
        check_target(method, target)
    }

    /// `field-name ":" OWS field-value OWS` (RFC 9112 §5).
    fn field(&mut self, line: &[u8]) -> Result<(), Failure> {
        let Some(colon) = memchr::memchr(b':', line) else {
            return Err(Failure::BadRequest("a field line has no colon"));
        };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if !syntax::is_token(name) {
            return Err(Failure::BadRequest("a field name is not a token"));
        }
        if !syntax::is_value(value) {
            return Err(Failure::BadRequest("a field value has a control character"));
        }
        self.interpret(name, value)
    }

    /// The fields that say where a message ends and whom it is for. Told apart by length first: most fields are others.
    fn interpret(&mut self, name: &[u8], value: &[u8]) -> Result<(), Failure> {
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.host(syntax::trim(value)),
            7 if name.eq_ignore_ascii_case(b"upgrade") => {
                self.upgrade = true;
                Ok(())
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(syntax::trim(value)),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.transfer_encoding(syntax::trim(value)),
            _ => Ok(()),
        }
    }

    fn host(&mut self, value: &[u8]) -> Result<(), Failure> {
        if std::mem::replace(&mut self.has_host, true) {
            return Err(Failure::BadRequest("more than one Host"));
        }
        if syntax::is_host(value) { Ok(()) } else { Err(Failure::BadRequest("Host is not a host")) }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Failure> {
        if self.length.replace(syntax::content_length(value)?).is_some() {
            return Err(Failure::BadRequest("more than one Content-Length"));
        }
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Failure> {
        if std::mem::replace(&mut self.chunked, true) {
            return Err(Failure::BadRequest("more than one Transfer-Encoding"));
        }
        syntax::transfer_encoding(value)
    }

    /// What only the whole section tells (RFC 9112 §3.2, §6.1, §6.3).
    fn finish(&self, bytes: usize) -> Result<Announced, Failure> {
        if self.chunked && self.length.is_some() {
            return Err(Failure::BadRequest("both Content-Length and Transfer-Encoding"));
        }
        if self.chunked && !self.http_11 {
            return Err(Failure::BadRequest("Transfer-Encoding in HTTP/1.0"));
        }
        if self.http_11 && !self.has_host {
            return Err(Failure::BadRequest("no Host"));
        }
        let framing = if self.chunked { Framing::Chunked } else { Framing::Length(self.length.unwrap_or(0)) };
        Ok(Announced { bytes, framing, upgrade: self.upgrade && self.http_11 })
    }
}

/// `HTTP/` DIGIT `.` DIGIT of another version, or no version at all (RFC 9112 §2.3).
fn other_version(version: &[u8]) -> Failure {
    match version {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit() => {
            Failure::VersionNotSupported
        }
        _ => Failure::BadRequest("the request line names no HTTP version"),
    }
}

/// Origin-form, absolute-form, or `*` for OPTIONS (RFC 9112 §3.2).
fn check_target(method: &[u8], target: &[u8]) -> Result<(), Failure> {
    if target == b"*" {
        return if method == b"OPTIONS" {
            Ok(())
        } else {
            Err(Failure::BadRequest("the target * is for OPTIONS only"))
        };
    }
    if !syntax::is_target(target) {
        return Err(Failure::BadRequest("the target has a character that must be encoded"));
    }
    if target.starts_with(b"/") {
        return Ok(());
    }
    let Some(rest) = strip_scheme(target) else {
        return Err(Failure::BadRequest("the target is neither a path nor an http URI"));
    };
    let authority = rest.iter().position(|b| matches!(b, b'/' | b'?')).map_or(rest, |end| &rest[..end]);
    if syntax::is_host(authority) { Ok(()) } else { Err(Failure::BadRequest("the target's authority is not a host")) }
}

fn strip_scheme(target: &[u8]) -> Option<&[u8]> {
    let scheme = target.iter().position(|b| *b == b':')?;
    let known = [&b"http"[..], b"https"].iter().any(|known| target[..scheme].eq_ignore_ascii_case(known));
    known.then(|| target[scheme..].strip_prefix(b"://"))?
}

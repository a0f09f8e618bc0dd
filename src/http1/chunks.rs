//! Follows a chunked body (RFC 9112 §7.1), to know where it ends and that it can be read in one way.
//!
//! Skips over content in one step; looks at every byte between. Keeps nothing but the trailer fields.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Bounds, syntax};

/// Bytes of chunk extensions in a whole body. Nothing here understands any.
const MAX_EXTENSION_BYTES: usize = 8 * 1024;
/// Hexadecimal digits of a chunk size: 2^60 bytes are enough, and nothing overflows.
const MAX_SIZE_DIGITS: u8 = 15;

/// The body breaks the grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is malformed")]
pub struct Malformed;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Digits seen so far.
    Size(u8),
    /// White space after the size: only an extension may follow.
    SizeSpace,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// At the start of a trailer line, or of the end.
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    End,
}

/// A chunked body that is being followed.
#[derive(Debug)]
pub struct Chunks {
    state: State,
    /// The size that is being read, then what is left of its data.
    left: u64,
    extension_bytes: usize,
    /// Trailer field lines, as they came.
    trailers: Vec<u8>,
    trailer_count: usize,
}

impl Default for Chunks {
    fn default() -> Self {
        Self { state: State::Size(0), left: 0, extension_bytes: 0, trailers: Vec::new(), trailer_count: 0 }
    }
}

impl Chunks {
    /// Whether the body has ended.
    pub fn is_over(&self) -> bool {
        self.state == State::End
    }

    /// Follows what `bytes` begins with of framing, until content comes or the body ends. How many bytes that was.
    pub fn follow(&mut self, bytes: &[u8], bounds: &Bounds) -> Result<usize, Malformed> {
        let mut at = 0;
        while let Some(byte) = bytes.get(at)
            && !matches!(self.state, State::Data | State::End)
        {
            self.step(*byte, bounds)?;
            at += 1;
        }
        Ok(at)
    }

    /// Passes over content of which `available` bytes are there. How many of them belong to this chunk.
    pub fn skip(&mut self, available: usize) -> usize {
        if self.state != State::Data {
            return 0;
        }
        let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(available);
        self.left -= taken as u64;
        if self.left == 0 {
            self.state = State::DataCr;
        }
        taken
    }

    /// What was in the trailer section of a body that is over (RFC 9112 §7.1.2); `None`: nothing.
    pub fn trailers(&self) -> Option<HeaderMap> {
        if self.trailers.is_empty() {
            return None;
        }
        let mut fields = HeaderMap::new();
        for line in self.trailers.split(|byte| *byte == b'\n') {
            let Some(colon) = memchr::memchr(b':', line) else { continue };
            let name = HeaderName::from_bytes(&line[..colon]);
            let value = HeaderValue::from_bytes(syntax::trim(&line[colon + 1..]));
            if let (Ok(name), Ok(value)) = (name, value) {
                fields.append(name, value);
            }
        }
        Some(fields)
    }

    fn step(&mut self, byte: u8, bounds: &Bounds) -> Result<(), Malformed> {
        self.state = match self.state {
            State::Size(_) | State::SizeSpace | State::Extension | State::SizeLf => self.size_line(byte)?,
            State::DataCr => expect(byte, b'\r', State::DataLf)?,
            State::DataLf => {
                self.left = 0;
                expect(byte, b'\n', State::Size(0))?
            }
            State::Data | State::End => return Err(Malformed),
            _ => self.trailer(byte, bounds)?,
        };
        Ok(())
    }

    fn size_line(&mut self, byte: u8) -> Result<State, Malformed> {
        match (self.state, byte) {
            (State::Size(digits), _) if byte.is_ascii_hexdigit() && digits < MAX_SIZE_DIGITS => {
                let digit = (byte as char).to_digit(16).ok_or(Malformed)?;
                self.left = self.left << 4 | u64::from(digit);
                Ok(State::Size(digits + 1))
            }
            (State::Size(0), _) => Err(Malformed),
            (State::Size(_) | State::Extension, b'\r') => Ok(State::SizeLf),
            (State::Size(_) | State::SizeSpace, b';') => self.extension(State::Extension),
            (State::Size(_) | State::SizeSpace, b' ' | b'\t') => self.extension(State::SizeSpace),
            (State::Extension, _) if syntax::is_value_byte(byte) => self.extension(State::Extension),
            (State::SizeLf, b'\n') => Ok(if self.left == 0 { State::TrailerStart } else { State::Data }),
            _ => Err(Malformed),
        }
    }

    fn extension(&mut self, next: State) -> Result<State, Malformed> {
        self.extension_bytes += 1;
        if self.extension_bytes > MAX_EXTENSION_BYTES { Err(Malformed) } else { Ok(next) }
    }

    fn trailer(&mut self, byte: u8, bounds: &Bounds) -> Result<State, Malformed> {
        let next = match (self.state, byte) {
            (State::TrailerStart, b'\r') => return Ok(State::EndLf),
            (State::EndLf, b'\n') => return Ok(State::End),
            (State::TrailerStart, _) if syntax::is_token_byte(byte) && self.trailer_count < bounds.fields => {
                self.trailer_count += 1;
                State::TrailerName
            }
            (State::TrailerName, b':') => State::TrailerValue,
            (State::TrailerName, _) if syntax::is_token_byte(byte) => State::TrailerName,
            (State::TrailerValue, b'\r') => return Ok(State::TrailerLf),
            (State::TrailerValue, _) if syntax::is_value_byte(byte) => State::TrailerValue,
            (State::TrailerLf, b'\n') => State::TrailerStart,
            _ => return Err(Malformed),
        };
        if self.trailers.len() >= bounds.bytes {
            return Err(Malformed);
        }
        self.trailers.push(byte);
        Ok(next)
    }
}

fn expect(byte: u8, wanted: u8, next: State) -> Result<State, Malformed> {
    if byte == wanted { Ok(next) } else { Err(Malformed) }
}

//! Follows the framing of a chunked body (RFC 9112 §7.1), to know where the body ends.
//!
//! Guarantees that the body can be read in one way only. Checks every byte of framing, skips
//! content in one step, and keeps nothing but the trailer fields.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::SectionBounds;
use crate::http::syntax;

/// Bytes of chunk extensions in a whole body. None of them is understood here.
const MAX_EXTENSION_BYTES: usize = 8 * 1024;
/// Hexadecimal digits of a chunk size: enough for 2^60 bytes, and no number overflows.
const MAX_SIZE_DIGITS: u8 = 15;

/// The body breaks the grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is malformed")]
pub struct Malformed;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
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
    state: ChunkState,
    /// The size that is being read, then the bytes left of the chunk.
    left: u64,
    extension_bytes: usize,
    /// Trailer field lines, as they came.
    trailers: Vec<u8>,
    trailer_count: usize,
}

impl Default for Chunks {
    fn default() -> Self {
        Self {
            state: ChunkState::Size(0),
            left: 0,
            extension_bytes: 0,
            trailers: Vec::new(),
            trailer_count: 0,
        }
    }
}

impl Chunks {
    /// Whether the body has ended.
    pub fn is_over(&self) -> bool {
        self.state == ChunkState::End
    }

    /// Follows the framing at the start of `bytes`, until content comes or the body ends. Returns
    /// the length of the framing in bytes.
    pub fn follow(&mut self, bytes: &[u8], bounds: &SectionBounds) -> Result<usize, Malformed> {
        let mut at = 0;
        while let Some(byte) = bytes.get(at)
            && !matches!(self.state, ChunkState::Data | ChunkState::End)
        {
            self.step(*byte, bounds)?;
            at += 1;
        }
        Ok(at)
    }

    /// Skips content of which `available` bytes are there. Returns the number of bytes that belong
    /// to this chunk.
    pub fn skip(&mut self, available: usize) -> usize {
        if self.state != ChunkState::Data {
            return 0;
        }
        let taken = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(available);
        self.left -= taken as u64;
        if self.left == 0 {
            self.state = ChunkState::DataCr;
        }
        taken
    }

    /// The trailer section of a body that is over (RFC 9112 §7.1.2). `None`: it is empty.
    pub fn trailers(&self) -> Option<HeaderMap> {
        if self.trailers.is_empty() {
            return None;
        }
        let mut fields = HeaderMap::new();
        for line in self.trailers.split(|byte| *byte == b'\n') {
            let Some(colon) = memchr::memchr(b':', line) else {
                continue;
            };
            let name = HeaderName::from_bytes(&line[..colon]);
            let value = HeaderValue::from_bytes(syntax::trim(&line[colon + 1..]));
            if let (Ok(name), Ok(value)) = (name, value) {
                fields.append(name, value);
            }
        }
        Some(fields)
    }

    fn step(&mut self, byte: u8, bounds: &SectionBounds) -> Result<(), Malformed> {
        self.state = match self.state {
            ChunkState::Size(_)
            | ChunkState::SizeSpace
            | ChunkState::Extension
            | ChunkState::SizeLf => self.size_line(byte)?,
            ChunkState::DataCr => expect(byte, b'\r', ChunkState::DataLf)?,
            ChunkState::DataLf => {
                self.left = 0;
                expect(byte, b'\n', ChunkState::Size(0))?
            }
            ChunkState::Data | ChunkState::End => return Err(Malformed),
            ChunkState::TrailerStart
            | ChunkState::TrailerName
            | ChunkState::TrailerValue
            | ChunkState::TrailerLf
            | ChunkState::EndLf => self.trailer(byte, bounds)?,
        };
        Ok(())
    }

    fn size_line(&mut self, byte: u8) -> Result<ChunkState, Malformed> {
        match (self.state, byte) {
            (ChunkState::Size(digits), _)
                if byte.is_ascii_hexdigit() && digits < MAX_SIZE_DIGITS =>
            {
                let digit = (byte as char).to_digit(16).ok_or(Malformed)?;
                self.left = self.left << 4 | u64::from(digit);
                Ok(ChunkState::Size(digits + 1))
            }
            (ChunkState::Size(0), _) => Err(Malformed),
            (ChunkState::Size(_) | ChunkState::Extension, b'\r') => Ok(ChunkState::SizeLf),
            (ChunkState::Size(_) | ChunkState::SizeSpace, b';') => {
                self.extension(ChunkState::Extension)
            }
            (ChunkState::Size(_) | ChunkState::SizeSpace, b' ' | b'\t') => {
                self.extension(ChunkState::SizeSpace)
            }
            (ChunkState::Extension, _) if syntax::is_value_byte(byte) => {
                self.extension(ChunkState::Extension)
            }
            (ChunkState::SizeLf, b'\n') => Ok(if self.left == 0 {
                ChunkState::TrailerStart
            } else {
                ChunkState::Data
            }),
            _ => Err(Malformed),
        }
    }

    fn extension(&mut self, next: ChunkState) -> Result<ChunkState, Malformed> {
        self.extension_bytes += 1;
        if self.extension_bytes > MAX_EXTENSION_BYTES {
            Err(Malformed)
        } else {
            Ok(next)
        }
    }

    fn trailer(&mut self, byte: u8, bounds: &SectionBounds) -> Result<ChunkState, Malformed> {
        let next = match (self.state, byte) {
            (ChunkState::TrailerStart, b'\r') => return Ok(ChunkState::EndLf),
            (ChunkState::EndLf, b'\n') => return Ok(ChunkState::End),
            (ChunkState::TrailerStart, _)
                if syntax::is_token_byte(byte) && self.trailer_count < bounds.fields =>
            {
                self.trailer_count += 1;
                ChunkState::TrailerName
            }
            (ChunkState::TrailerName, b':') => ChunkState::TrailerValue,
            (ChunkState::TrailerName, _) if syntax::is_token_byte(byte) => ChunkState::TrailerName,
            (ChunkState::TrailerValue, b'\r') => return Ok(ChunkState::TrailerLf),
            (ChunkState::TrailerValue, _) if syntax::is_value_byte(byte) => {
                ChunkState::TrailerValue
            }
            (ChunkState::TrailerLf, b'\n') => ChunkState::TrailerStart,
            _ => return Err(Malformed),
        };
        if self.trailers.len() >= bounds.bytes {
            return Err(Malformed);
        }
        self.trailers.push(byte);
        Ok(next)
    }
}

fn expect(byte: u8, wanted: u8, next: ChunkState) -> Result<ChunkState, Malformed> {
    if byte == wanted {
        Ok(next)
    } else {
        Err(Malformed)
    }
}

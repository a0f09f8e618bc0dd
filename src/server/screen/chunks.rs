//! Follows a chunked body (RFC 9112 §7.1) without decoding it, to know where it ends and that it can be read in one way.
//!
//! Skips over data in one step; looks at every byte between.

use super::head::Bounds;
use super::syntax;

/// Bytes of chunk extensions in a whole body. Nothing here understands any.
const MAX_EXTENSION_BYTES: usize = 8 * 1024;
/// Hexadecimal digits of a chunk size: 2^60 bytes are enough, and nothing overflows.
const MAX_SIZE_DIGITS: u8 = 15;

/// The body breaks the grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    trailer_bytes: usize,
    trailers: usize,
}

impl Chunks {
    pub fn new() -> Self {
        Self { state: State::Size(0), left: 0, extension_bytes: 0, trailer_bytes: 0, trailers: 0 }
    }

    /// Whether the body has ended.
    pub fn is_over(&self) -> bool {
        self.state == State::End
    }

    /// Follows `bytes` until the body ends. How many of them belong to it and are good, and whether the next one is not.
    pub fn follow(&mut self, bytes: &[u8], bounds: &Bounds) -> (usize, Result<(), Malformed>) {
        let mut at = 0;
        while at < bytes.len() && !self.is_over() {
            if self.state == State::Data {
                at += self.skip(bytes.len() - at);
            } else if let Err(malformed) = self.step(bytes[at], bounds) {
                return (at, Err(malformed));
            } else {
                at += 1;
            }
        }
        (at, Ok(()))
    }

    /// Passes over data. How much.
    fn skip(&mut self, available: usize) -> usize {
        let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(available);
        self.left -= taken as u64;
        if self.left == 0 {
            self.state = State::DataCr;
        }
        taken
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
        self.trailer_bytes += 1;
        if self.trailer_bytes > bounds.bytes {
            return Err(Malformed);
        }
        match (self.state, byte) {
            (State::TrailerStart, b'\r') => Ok(State::EndLf),
            (State::TrailerStart, _) if syntax::is_token_byte(byte) && self.trailers < bounds.fields => {
                self.trailers += 1;
                Ok(State::TrailerName)
            }
            (State::TrailerName, b':') => Ok(State::TrailerValue),
            (State::TrailerName, _) if syntax::is_token_byte(byte) => Ok(State::TrailerName),
            (State::TrailerValue, b'\r') => Ok(State::TrailerLf),
            (State::TrailerValue, _) if syntax::is_value_byte(byte) => Ok(State::TrailerValue),
            (State::TrailerLf, b'\n') => Ok(State::TrailerStart),
            (State::EndLf, b'\n') => Ok(State::End),
            _ => Err(Malformed),
        }
    }
}

fn expect(byte: u8, wanted: u8, next: State) -> Result<State, Malformed> {
    if byte == wanted { Ok(next) } else { Err(Malformed) }
}

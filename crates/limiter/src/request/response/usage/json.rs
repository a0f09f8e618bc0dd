//! Finds one whole number in a JSON text that streams past, by its field's path.
//!
//! Guarantees a bound on memory, whatever the text and its pieces: a bit for each level of nesting,
//! 128 at most, and the 40 characters of a number. How the text is cut into pieces makes no
//! difference. The last number at the path counts, over several texts one after the other too
//! (newline-delimited JSON); `null` counts as nothing. A text is skipped from the first byte that
//! is not JSON; skipped parts are not validated.
//!
//! No crate does this: of those that are fed in pieces, `actson` keeps each string whole, however
//! long, and `picojson` fails at a string that its buffer does not hold. The text of an answer is
//! one string of any length, which is of no use here. `struson` and `jiter` want a reader or the
//! whole. Less than a parser is needed: the places of keys, and one number.

use memchr::memchr2;

use crate::limit::cost::json_path::JsonPath;

/// Levels of nesting that are followed, which is also where most parsers stop.
const MAX_DEPTH: u32 = 128;

/// A number with more characters counts as none: no count is that long.
const MAX_NUMBER: usize = 40;

/// The result for a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ScanResult {
    /// The field is not there, or `null`.
    #[default]
    Nothing,
    /// The field is something else than a number of 0 or more.
    Invalid,
    /// A fraction is rounded up.
    Number(u64),
}

/// Looks for a field in texts that come in pieces.
#[derive(Debug)]
pub struct Scanner {
    path: JsonPath,
    state: ScanState,
    /// Whether each open level is an object, the innermost lowest.
    levels: u128,
    depth: u32,
    /// The number of levels, from the outermost, that are objects on the way to the field.
    on_path: u32,
    /// The name just read is the next of the path; then, that this number is the field.
    wanted: bool,
    name: Name,
    number: ([u8; MAX_NUMBER], usize),
    scanned: ScanResult,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanState {
    Value,
    /// After `[`, where a value or the end may follow.
    ValueOrEnd,
    /// After `{`, where a name or the end may follow.
    NameOrEnd,
    Name,
    Colon,
    CommaOrEnd,
    /// Within a string: a name, or a value.
    Text {
        name: bool,
    },
    Escape {
        name: bool,
    },
    /// Within `\uXXXX`: digits read, and their value.
    Unicode {
        name: bool,
        digits: u8,
        code: u16,
    },
    Number,
    /// Within `true`, `false` or `null`: the rest of the word.
    Word(&'static [u8]),
    /// Not JSON, or nested too deeply.
    Lost,
}

/// The name that is being read, compared with the one that is wanted.
#[derive(Clone, Copy, Debug, Default)]
struct Name {
    /// Whether the name can match, and has matched so far.
    same: bool,
    at: usize,
    /// The first half of a character of two.
    high: Option<u16>,
}

impl Scanner {
    pub fn new(path: JsonPath) -> Self {
        Self {
            path,
            state: ScanState::Value,
            levels: 0,
            depth: 0,
            on_path: 0,
            wanted: false,
            name: Name::default(),
            number: ([0; MAX_NUMBER], 0),
            scanned: ScanResult::Nothing,
        }
    }

    /// Reads the next piece.
    pub fn feed(&mut self, mut piece: &[u8]) {
        while let Some((first, rest)) = piece.split_first() {
            piece = match self.state {
                ScanState::Lost => return,
                ScanState::Text { name: false } => self.skip_text(piece),
                _ => {
                    // The byte that ends a number is read once more.
                    if self.take(*first) { rest } else { piece }
                }
            };
        }
    }

    /// Begins another text. The result stays.
    pub fn restart(&mut self) {
        (self.state, self.depth, self.on_path, self.wanted) = (ScanState::Value, 0, 0, false);
    }

    /// The last result. A number counts once it has ended: the text may have been cut within.
    pub fn scanned(&self) -> ScanResult {
        self.scanned
    }

    /// Skips to the end of a string: strings are most of a text.
    fn skip_text<'p>(&mut self, piece: &'p [u8]) -> &'p [u8] {
        let Some(at) = memchr2(b'"', b'\\', piece) else {
            return &[];
        };
        self.state = if piece[at] == b'"' {
            ScanState::CommaOrEnd
        } else {
            ScanState::Escape { name: false }
        };
        &piece[at + 1..]
    }

    /// Reads a byte. `false`: it has to be read again.
    fn take(&mut self, byte: u8) -> bool {
        match self.state {
            ScanState::Text { .. } => self.name_goes_on(byte),
            ScanState::Escape { name } => self.escaped(name, byte),
            ScanState::Unicode { name, digits, code } => self.unicode(name, digits, code, byte),
            ScanState::Number if matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E') => {
                self.digit(byte)
            }
            ScanState::Number => {
                self.end_number();
                return false;
            }
            ScanState::Word(rest) => self.word(rest, byte),
            _ if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') => {}
            _ => self.structure(byte),
        }
        true
    }

    fn structure(&mut self, byte: u8) {
        let in_object = self.depth > 0 && self.levels & 1 == 1;
        match (self.state, byte) {
            // A text has ended, and another begins.
            (ScanState::CommaOrEnd, _) if self.depth == 0 => self.value(byte),
            (ScanState::ValueOrEnd | ScanState::CommaOrEnd, b']') if !in_object => self.close(),
            (ScanState::NameOrEnd | ScanState::CommaOrEnd, b'}') if in_object => self.close(),
            (ScanState::Value | ScanState::ValueOrEnd, _) => self.value(byte),
            (ScanState::NameOrEnd | ScanState::Name, b'"') => {
                self.name = Name {
                    same: self.on_path == self.depth,
                    ..Name::default()
                };
                self.state = ScanState::Text { name: true };
            }
            (ScanState::Colon, b':') => self.state = ScanState::Value,
            (ScanState::CommaOrEnd, b',') => {
                self.state = if in_object {
                    ScanState::Name
                } else {
                    ScanState::Value
                }
            }
            _ => self.state = ScanState::Lost,
        }
    }

    fn value(&mut self, byte: u8) {
        let named = std::mem::take(&mut self.wanted);
        let is_field = named && self.depth as usize == self.path.names().len();
        if is_field && !matches!(byte, b'0'..=b'9' | b'-' | b'n') {
            self.scanned = ScanResult::Invalid;
        }
        self.state = match byte {
            b'{' | b'[' => return self.open(byte == b'{', named && !is_field),
            b'"' => ScanState::Text { name: false },
            b't' => ScanState::Word(b"rue"),
            b'f' => ScanState::Word(b"alse"),
            b'n' => ScanState::Word(b"ull"),
            b'-' | b'0'..=b'9' => {
                (self.wanted, self.number.1) = (is_field, 0);
                self.digit(byte);
                ScanState::Number
            }
            _ => ScanState::Lost,
        };
    }

    /// `named`: by the next name of the path.
    fn open(&mut self, object: bool, named: bool) {
        if self.depth == MAX_DEPTH {
            self.state = ScanState::Lost;
            return;
        }
        // The text itself has no name; an array has none to go on by.
        if object && (named || self.depth == 0) {
            self.on_path += 1;
        }
        self.levels = self.levels << 1 | u128::from(object);
        self.depth += 1;
        self.state = if object {
            ScanState::NameOrEnd
        } else {
            ScanState::ValueOrEnd
        };
    }

    fn close(&mut self) {
        self.levels >>= 1;
        self.depth -= 1;
        self.on_path = self.on_path.min(self.depth);
        self.state = ScanState::CommaOrEnd;
    }

    fn digit(&mut self, byte: u8) {
        if self.wanted {
            let (kept, length) = &mut self.number;
            if let Some(place) = kept.get_mut(*length) {
                *place = byte;
            }
            *length = length.saturating_add(1);
        }
    }

    fn end_number(&mut self) {
        if std::mem::take(&mut self.wanted) {
            let (kept, length) = &self.number;
            self.scanned = kept
                .get(..*length)
                .and_then(number)
                .map_or(ScanResult::Invalid, ScanResult::Number);
        }
        self.state = ScanState::CommaOrEnd;
    }

    fn word(&mut self, rest: &'static [u8], byte: u8) {
        self.state = match rest.split_first() {
            Some((expected, [])) if *expected == byte => ScanState::CommaOrEnd,
            Some((expected, rest)) if *expected == byte => ScanState::Word(rest),
            _ => ScanState::Lost,
        };
    }

    fn name_goes_on(&mut self, byte: u8) {
        match byte {
            b'"' => {
                let name = self.wanted_name();
                self.wanted =
                    self.name.same && self.name.high.is_none() && self.name.at == name.len();
                self.state = ScanState::Colon;
            }
            b'\\' => self.state = ScanState::Escape { name: true },
            _ => self.compare(&[byte]),
        }
    }

    fn escaped(&mut self, name: bool, byte: u8) {
        let meant = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                self.state = ScanState::Unicode {
                    name,
                    digits: 0,
                    code: 0,
                };
                return;
            }
            _ => {
                self.state = ScanState::Lost;
                return;
            }
        };
        if name {
            self.compare(&[meant]);
        }
        self.state = ScanState::Text { name };
    }

    fn unicode(&mut self, name: bool, digits: u8, code: u16, byte: u8) {
        let digit = char::from(byte)
            .to_digit(16)
            .and_then(|digit| u16::try_from(digit).ok());
        let Some(digit) = digit else {
            self.state = ScanState::Lost;
            return;
        };
        let code = code << 4 | digit;
        self.state = match digits {
            3 => {
                if name {
                    self.compare_unit(code);
                }
                ScanState::Text { name }
            }
            _ => ScanState::Unicode {
                name,
                digits: digits + 1,
                code,
            },
        };
    }

    /// A character, or half of one that takes two.
    fn compare_unit(&mut self, unit: u16) {
        let high = self.name.high.take();
        if high.is_none() && (0xd800..0xdc00).contains(&unit) {
            self.name.high = Some(unit);
            return;
        }
        let units = high.into_iter().chain([unit]);
        match char::decode_utf16(units).next() {
            Some(Ok(letter)) => self.compare(letter.encode_utf8(&mut [0; 4]).as_bytes()),
            _ => self.name.same = false,
        }
    }

    fn compare(&mut self, letters: &[u8]) {
        let at = self.name.at;
        let end = self.name.at.saturating_add(letters.len());
        let goes_on = self.name.same
            && self.name.high.is_none()
            && self.wanted_name().get(at..end) == Some(letters);
        (self.name.same, self.name.at) = (goes_on, end);
    }

    /// The name that is wanted at this depth.
    fn wanted_name(&self) -> &[u8] {
        let at = (self.depth as usize).saturating_sub(1);
        self.path.names().get(at).map_or(&[], |name| name)
    }
}

/// A number of 0 or more. A fraction is rounded up.
fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(whole) = text.parse() {
        return Some(whole);
    }
    let number: f64 = text.parse().ok()?;
    // Beyond 64 bits it is the most there is.
    (number >= 0.0).then_some(number.ceil() as u64)
}

#[cfg(test)]
mod tests;

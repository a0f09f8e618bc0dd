//! One whole number out of a JSON text that streams past, by its field's path.
//!
//! Why not a crate: of those that are fed in pieces, `actson` keeps each string whole, however long, and `picojson` fails at
//! one that its buffer does not hold; an answer's text is one string, of any length, and nothing here wants it. `struson` and
//! `jiter` want a reader or the whole. What is needed is less than a parser: where keys stand, and one number.
//!
//! Guarantees a bound on memory that neither the text nor its pieces move: a bit for each level of nesting, 128 at most, and
//! the 40 characters of a number. Guarantees that how the text is cut into pieces makes no difference. The last number with
//! the path counts, over several texts one after the other too (newline-delimited JSON); `null` counts as nothing. What is
//! not JSON is left from there on. Refuses to judge whether what it skips is well formed.

use memchr::memchr2;

use crate::limit::cost::json_path::JsonPath;

/// Levels of nesting that are followed, which is also where most parsers stop.
const MAX_DEPTH: u32 = 128;

/// A number of more characters counts as none: no count of anything is that long.
const MAX_NUMBER: usize = 40;

/// What a text said of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Said {
    /// The field is not there, or `null`.
    #[default]
    Nothing,
    /// It is something else than a number of 0 or more.
    Nonsense,
    /// A fraction is rounded up.
    Number(u64),
}

/// Looks for a field in texts that come in pieces.
#[derive(Debug)]
pub struct Scanner {
    path: JsonPath,
    state: State,
    /// Whether each open level is an object, the innermost lowest.
    levels: u128,
    depth: u32,
    /// Of the levels, from the outermost: how many are objects on the way to the field.
    on_path: u32,
    /// The name just read is the next of the path; then, that this number is the field.
    wanted: bool,
    name: Name,
    number: ([u8; MAX_NUMBER], usize),
    said: Said,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
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
    /// Within `true`, `false` or `null`: what is still to come.
    Word(&'static [u8]),
    /// Not JSON, or nested too deeply.
    Lost,
}

/// The name that is being read, held against the one that is looked for.
#[derive(Clone, Copy, Debug, Default)]
struct Name {
    /// Whether it is worth a look, and the same so far.
    same: bool,
    at: usize,
    /// The first half of a character of two.
    high: Option<u16>,
}

impl Scanner {
    pub fn new(path: JsonPath) -> Self {
        Self {
            path,
            state: State::Value,
            levels: 0,
            depth: 0,
            on_path: 0,
            wanted: false,
            name: Name::default(),
            number: ([0; MAX_NUMBER], 0),
            said: Said::Nothing,
        }
    }

    /// Looks at the next piece.
    pub fn feed(&mut self, mut piece: &[u8]) {
        while let Some((first, rest)) = piece.split_first() {
            piece = match self.state {
                State::Lost => return,
                State::Text { name: false } => self.skip_text(piece),
                _ => {
                    // What ends a number is looked at once more.
                    if self.take(*first) { rest } else { piece }
                }
            };
        }
    }

    /// Begins with another text. What was said stays said.
    pub fn restart(&mut self) {
        (self.state, self.depth, self.on_path, self.wanted) = (State::Value, 0, 0, false);
    }

    /// What was said last. A number counts once it has ended: the text may have been cut within.
    pub fn said(&self) -> Said {
        self.said
    }

    /// Strings are most of a text, and nothing in them counts but their end.
    fn skip_text<'p>(&mut self, piece: &'p [u8]) -> &'p [u8] {
        let Some(at) = memchr2(b'"', b'\\', piece) else { return &[] };
        self.state = if piece[at] == b'"' { State::CommaOrEnd } else { State::Escape { name: false } };
        &piece[at + 1..]
    }

    /// Whether the byte is done with.
    fn take(&mut self, byte: u8) -> bool {
        match self.state {
            State::Text { .. } => self.name_goes_on(byte),
            State::Escape { name } => self.escaped(name, byte),
            State::Unicode { name, digits, code } => self.unicode(name, digits, code, byte),
            State::Number if matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E') => self.digit(byte),
            State::Number => {
                self.end_number();
                return false;
            }
            State::Word(rest) => self.word(rest, byte),
            _ if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') => {}
            _ => self.structure(byte),
        }
        true
    }

    fn structure(&mut self, byte: u8) {
        let in_object = self.depth > 0 && self.levels & 1 == 1;
        match (self.state, byte) {
            // One text has ended, and another begins.
            (State::CommaOrEnd, _) if self.depth == 0 => self.value(byte),
            (State::ValueOrEnd | State::CommaOrEnd, b']') if !in_object => self.close(),
            (State::NameOrEnd | State::CommaOrEnd, b'}') if in_object => self.close(),
            (State::Value | State::ValueOrEnd, _) => self.value(byte),
            (State::NameOrEnd | State::Name, b'"') => {
                self.name = Name { same: self.on_path == self.depth, ..Name::default() };
                self.state = State::Text { name: true };
            }
            (State::Colon, b':') => self.state = State::Value,
            (State::CommaOrEnd, b',') => self.state = if in_object { State::Name } else { State::Value },
            _ => self.state = State::Lost,
        }
    }

    fn value(&mut self, byte: u8) {
        let named = std::mem::take(&mut self.wanted);
        let is_field = named && self.depth as usize == self.path.names().len();
        if is_field && !matches!(byte, b'0'..=b'9' | b'-' | b'n') {
            self.said = Said::Nonsense;
        }
        self.state = match byte {
            b'{' | b'[' => return self.open(byte == b'{', named && !is_field),
            b'"' => State::Text { name: false },
            b't' => State::Word(b"rue"),
            b'f' => State::Word(b"alse"),
            b'n' => State::Word(b"ull"),
            b'-' | b'0'..=b'9' => {
                (self.wanted, self.number.1) = (is_field, 0);
                self.digit(byte);
                State::Number
            }
            _ => State::Lost,
        };
    }

    /// `named`: by the next name of the path.
    fn open(&mut self, object: bool, named: bool) {
        if self.depth == MAX_DEPTH {
            self.state = State::Lost;
            return;
        }
        // The text itself has no name; an array has none to go on by.
        if object && (named || self.depth == 0) {
            self.on_path += 1;
        }
        self.levels = self.levels << 1 | u128::from(object);
        self.depth += 1;
        self.state = if object { State::NameOrEnd } else { State::ValueOrEnd };
    }

    fn close(&mut self) {
        self.levels >>= 1;
        self.depth -= 1;
        self.on_path = self.on_path.min(self.depth);
        self.state = State::CommaOrEnd;
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
            self.said = kept.get(..*length).and_then(number).map_or(Said::Nonsense, Said::Number);
        }
        self.state = State::CommaOrEnd;
    }

    fn word(&mut self, rest: &'static [u8], byte: u8) {
        self.state = match rest.split_first() {
            Some((expected, [])) if *expected == byte => State::CommaOrEnd,
            Some((expected, rest)) if *expected == byte => State::Word(rest),
            _ => State::Lost,
        };
    }

    fn name_goes_on(&mut self, byte: u8) {
        match byte {
            b'"' => {
                let name = self.sought();
                self.wanted = self.name.same && self.name.high.is_none() && self.name.at == name.len();
                self.state = State::Colon;
            }
            b'\\' => self.state = State::Escape { name: true },
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
                self.state = State::Unicode { name, digits: 0, code: 0 };
                return;
            }
            _ => {
                self.state = State::Lost;
                return;
            }
        };
        if name {
            self.compare(&[meant]);
        }
        self.state = State::Text { name };
    }

    fn unicode(&mut self, name: bool, digits: u8, code: u16, byte: u8) {
        let digit = char::from(byte).to_digit(16).and_then(|digit| u16::try_from(digit).ok());
        let Some(digit) = digit else {
            self.state = State::Lost;
            return;
        };
        let code = code << 4 | digit;
        self.state = match digits {
            3 => {
                if name {
                    self.compare_unit(code);
                }
                State::Text { name }
            }
            _ => State::Unicode { name, digits: digits + 1, code },
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
        let (at, end) = (self.name.at, self.name.at.saturating_add(letters.len()));
        let goes_on = self.name.same && self.name.high.is_none() && self.sought().get(at..end) == Some(letters);
        (self.name.same, self.name.at) = (goes_on, end);
    }

    /// The name that is looked for at this depth.
    fn sought(&self) -> &[u8] {
        let at = (self.depth as usize).saturating_sub(1);
        self.path.names().get(at).map_or(&[], |name| name)
    }
}

/// A number of 0 or more, a fraction of it rounded up: what is begun counts.
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

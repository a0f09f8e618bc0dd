//! A reader of requests that takes nothing but what RFC 9112 says, written for the tests and
//! sharing nothing with ours.

use std::collections::BTreeMap;

/// A request as its reader understands it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub method: String,
    pub target: String,
    /// By name in small letters.
    pub fields: BTreeMap<String, Vec<Vec<u8>>>,
    pub body: Vec<u8>,
    pub trailers: BTreeMap<String, Vec<Vec<u8>>>,
}

/// The beginning of some bytes.
#[derive(Debug)]
pub enum Read {
    /// A request of so many bytes.
    Whole(Box<Message>, usize),
    Partial,
    /// Nothing that is a request, or will be.
    Broken,
}

/// Goes through bytes; stops where they end, or break the grammar.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// Why it stopped.
enum Stop {
    Partial,
    Broken,
}

type Fields = BTreeMap<String, Vec<Vec<u8>>>;

/// Reads the request that `bytes` begin with.
pub fn read(bytes: &[u8]) -> Read {
    let mut reader = Reader { bytes, at: 0 };
    match reader.message() {
        Ok(message) => Read::Whole(Box::new(message), reader.at),
        Err(Stop::Partial) => Read::Partial,
        Err(Stop::Broken) => Read::Broken,
    }
}

/// All requests at the beginning of `bytes`, without empty lines before them (RFC 9112 §2.2).
pub fn read_all(mut bytes: &[u8]) -> Vec<Message> {
    let mut all = Vec::new();
    loop {
        while let Some(rest) = bytes.strip_prefix(b"\r\n") {
            bytes = rest;
        }
        let Read::Whole(message, length) = read(bytes) else {
            return all;
        };
        all.push(*message);
        bytes = &bytes[length..];
    }
}

impl<'a> Reader<'a> {
    /// Up to CR LF. Neither stands alone.
    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
            return Err(Stop::Partial);
        };
        match &rest[end..] {
            [b'\r', b'\n', ..] => {
                self.at += end + 2;
                Ok(&rest[..end])
            }
            [b'\r'] => Err(Stop::Partial),
            _ => Err(Stop::Broken),
        }
    }

    fn message(&mut self) -> Result<Message, Stop> {
        let line = self.line()?;
        let [method, target, version] = line.split(|byte| *byte == b' ').collect::<Vec<_>>()[..]
        else {
            return Err(Stop::Broken);
        };
        let visible = target.iter().all(|byte| byte.is_ascii_graphic());
        if !is_token(method) || target.is_empty() || !visible || version != b"HTTP/1.1" {
            return Err(Stop::Broken);
        }
        let fields = self.fields()?;
        if fields.get("host").is_none_or(|hosts| hosts.len() != 1) {
            return Err(Stop::Broken);
        }
        let (body, trailers) = self.content(&fields)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Message {
            method: text(method),
            target: text(target),
            fields,
            body,
            trailers,
        })
    }

    fn fields(&mut self) -> Result<Fields, Stop> {
        let mut fields = Fields::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(fields);
            }
            let Some(colon) = line.iter().position(|byte| *byte == b':') else {
                return Err(Stop::Broken);
            };
            let (name, value) = (&line[..colon], &line[colon + 1..]);
            if !is_token(name)
                || value
                    .iter()
                    .any(|byte| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f)
            {
                return Err(Stop::Broken);
            }
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            fields
                .entry(name)
                .or_default()
                .push(value.trim_ascii().to_vec());
        }
    }

    fn content(&mut self, fields: &Fields) -> Result<(Vec<u8>, Fields), Stop> {
        match (
            fields.get("content-length").map(Vec::as_slice),
            fields.get("transfer-encoding").map(Vec::as_slice),
        ) {
            (None, None) => Ok((Vec::new(), Fields::new())),
            (Some([length]), None)
                if !length.is_empty() && length.iter().all(u8::is_ascii_digit) =>
            {
                let length = String::from_utf8_lossy(length)
                    .parse()
                    .map_err(|_| Stop::Broken)?;
                Ok((self.exactly(length)?.to_vec(), Fields::new()))
            }
            (None, Some([coding])) if coding.eq_ignore_ascii_case(b"chunked") => self.chunks(),
            _ => Err(Stop::Broken),
        }
    }

    fn chunks(&mut self) -> Result<(Vec<u8>, Fields), Stop> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            // White space may stand before an extension, and nowhere else.
            let size = match line.iter().position(|byte| *byte == b';') {
                Some(end) => line[..end].trim_ascii_end(),
                None => line,
            };
            if size.is_empty()
                || size.len() > 8
                || !size.iter().all(u8::is_ascii_hexdigit)
                || !is_text(line)
            {
                return Err(Stop::Broken);
            }
            let size = usize::from_str_radix(&String::from_utf8_lossy(size), 16)
                .map_err(|_| Stop::Broken)?;
            if size == 0 {
                return Ok((body, self.fields()?));
            }
            body.extend_from_slice(self.exactly(size)?);
            if !self.line()?.is_empty() {
                return Err(Stop::Broken);
            }
        }
    }

    fn exactly(&mut self, length: usize) -> Result<&'a [u8], Stop> {
        let taken = self.bytes[self.at..].get(..length).ok_or(Stop::Partial)?;
        self.at += length;
        Ok(taken)
    }
}

fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty()
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))
}

fn is_text(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .all(|byte| *byte >= b' ' && *byte != 0x7f || *byte == b'\t')
}

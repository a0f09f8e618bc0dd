//! Splits an event stream (`text/event-stream`) that comes in pieces into the data of its events,
//! in which a response may say what it used.
//!
//! Guarantees to read lines as the HTML standard does (§9.2.6), however the stream is cut, but for
//! a line `data` without a colon, which adds no line feed, and a byte order mark, which hides the
//! first line. Guarantees to keep no byte of the stream.

const DATA: &[u8] = b"data:";

/// Splits a stream into what its events carry.
#[derive(Debug, Default)]
pub(crate) struct EventStream {
    line: LineState,
    /// The last byte was a carriage return: a line feed now belongs to the same line end.
    after_return: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineState {
    /// This many bytes of the line were read, all like those of `data:`.
    Begun(usize),
    /// Behind the colon, where one space is left out.
    Colon,
    Data,
    /// Another field, or a comment.
    Other,
}

/// A part of a stream, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamPart<'p> {
    Data(&'p [u8]),
    /// The end of a line of data. If the event has another one, a line feed stands between them.
    LineEnd,
    /// An empty line. There may have been no data before it.
    EventEnd,
}

impl Default for LineState {
    fn default() -> Self {
        Self::Begun(0)
    }
}

impl EventStream {
    /// Hands the parts of the next piece to `each`.
    pub fn feed<'p>(&mut self, mut piece: &'p [u8], mut each: impl FnMut(StreamPart<'p>)) {
        while let Some((first, rest)) = piece.split_first() {
            if std::mem::take(&mut self.after_return) && *first == b'\n' {
                piece = rest;
                continue;
            }
            if matches!(first, b'\r' | b'\n') {
                self.after_return = *first == b'\r';
                self.end_line(&mut each);
                piece = rest;
                continue;
            }
            piece = match self.line {
                LineState::Begun(count) if DATA[count] == *first => {
                    self.line = if count + 1 == DATA.len() {
                        LineState::Colon
                    } else {
                        LineState::Begun(count + 1)
                    };
                    rest
                }
                LineState::Begun(_) => {
                    self.line = LineState::Other;
                    rest
                }
                LineState::Colon => {
                    self.line = LineState::Data;
                    if *first == b' ' { rest } else { piece }
                }
                LineState::Data | LineState::Other => {
                    let (content, after) = piece.split_at(line_length(piece));
                    if self.line == LineState::Data {
                        each(StreamPart::Data(content));
                    }
                    after
                }
            };
        }
    }

    fn end_line<'p>(&mut self, each: &mut impl FnMut(StreamPart<'p>)) {
        match std::mem::take(&mut self.line) {
            LineState::Begun(0) => each(StreamPart::EventEnd),
            LineState::Colon | LineState::Data => each(StreamPart::LineEnd),
            LineState::Begun(_) | LineState::Other => {}
        }
    }
}

fn line_length(piece: &[u8]) -> usize {
    memchr::memchr2(b'\r', b'\n', piece).unwrap_or(piece.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data of each event that has ended, however the stream is cut.
    fn events(stream: &str) -> Vec<String> {
        let split = |length: usize| {
            let mut reader = EventStream::default();
            let mut all = Vec::new();
            let mut data = Vec::new();
            for piece in stream.as_bytes().chunks(length) {
                reader.feed(piece, |part| match part {
                    StreamPart::Data(bytes) => data.extend_from_slice(bytes),
                    StreamPart::LineEnd => data.push(b'\n'),
                    StreamPart::EventEnd => {
                        all.push(String::from_utf8(std::mem::take(&mut data)).unwrap())
                    }
                });
            }
            all
        };
        let whole = split(stream.len());
        assert!(
            (1..stream.len()).all(|length| split(length) == whole),
            "{stream:?}"
        );
        whole
    }

    #[test]
    fn events_end_at_empty_lines_whatever_ends_a_line() {
        for end in ["\n", "\r\n", "\r"] {
            let stream = "data: {\"a\":1}|event: x|data:{|data: \"b\": 2}|id: 7||: a comment|data|datum: no|data:  two||";
            let events = events(&stream.replace('|', end));
            assert_eq!(events, ["{\"a\":1}\n{\n\"b\": 2}\n", " two\n"], "{end:?}");
        }
    }

    #[test]
    fn an_event_that_has_not_ended_is_none() {
        assert!(events("data: 1\ndata: 2\n").is_empty());
        assert_eq!(events("data:\n\n"), ["\n"]);
    }
}

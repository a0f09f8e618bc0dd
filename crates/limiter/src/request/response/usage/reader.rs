//! Reads the cost of a request from its response while that passes.
//!
//! Guarantees that nothing of the body is kept, changed or waited for. A cost that cannot be read is none: the
//! reservation stands.

use std::sync::Arc;

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use crate::limit::cost::{CostField, ResponseCost, number};
use crate::request::response::usage::event_stream::{EventStream, StreamPart};
use crate::request::response::usage::json::{ScanResult, Scanner};

/// The usage that a response tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    /// The tokens that the request cost, `max` at most.
    Tokens(u64),
    /// The field is not there.
    Nothing,
    /// The field is no whole number, comes twice, or the body is encoded.
    Unreadable,
    /// The body broke off. The cost told before is the least.
    Cut(Option<u64>),
    /// No upstream was reached.
    Unreached,
}

/// Looks for one field in one response.
#[derive(Debug)]
pub(crate) struct UsageReader {
    by: Arc<ResponseCost>,
    body: Option<Box<BodyScanner>>,
    usage: Usage,
}

#[derive(Debug)]
enum BodyScanner {
    Json(Scanner),
    Events(EventStream, Scanner),
}

impl UsageReader {
    pub fn new(by: Arc<ResponseCost>) -> Self {
        Self { by, body: None, usage: Usage::Nothing }
    }

    /// Whether the response must come without a content coding to be readable.
    pub fn wants_plain_text(&self) -> bool {
        matches!(self.by.field, CostField::Json(_))
    }

    /// Reads the head of the response.
    pub fn head(&mut self, fields: &HeaderMap) {
        match &self.by.field {
            CostField::Header(name) => {
                let mut values = fields.get_all(name).iter();
                self.usage = match (values.next(), values.next()) {
                    (None, _) => Usage::Nothing,
                    (Some(value), None) => {
                        number(value.as_bytes()).map_or(Usage::Unreadable, |scanned| self.tokens(scanned))
                    }
                    (Some(_), Some(_)) => Usage::Unreadable,
                };
            }
            CostField::Json(_) if is_encoded(fields) => self.usage = Usage::Unreadable,
            CostField::Json(path) => {
                let scanner = Scanner::new(path.clone());
                let text = if is_event_stream(fields) {
                    BodyScanner::Events(EventStream::default(), scanner)
                } else {
                    BodyScanner::Json(scanner)
                };
                self.body = Some(Box::new(text));
            }
        }
    }

    /// Whether the body may tell more.
    pub fn reads_on(&self) -> bool {
        self.body.is_some()
    }

    /// Reads a piece of the body.
    pub fn feed(&mut self, piece: &[u8]) {
        match self.body.as_deref_mut() {
            None => {}
            Some(BodyScanner::Json(scanner)) => scanner.feed(piece),
            Some(BodyScanner::Events(events, scanner)) => events.feed(piece, |part| match part {
                StreamPart::Data(data) => scanner.feed(data),
                StreamPart::LineEnd => scanner.feed(b"\n"),
                StreamPart::EventEnd => scanner.restart(),
            }),
        }
    }

    /// The usage. A field of the head is known whatever becomes of the body.
    pub fn end(self, complete: bool) -> Usage {
        let scanned = match self.body.as_deref() {
            None => return self.usage,
            Some(BodyScanner::Json(scanner) | BodyScanner::Events(_, scanner)) => scanner.scanned(),
        };
        match scanned {
            ScanResult::Number(number) if complete => self.tokens(number),
            ScanResult::Number(number) => Usage::Cut(Some(number.min(self.by.max.get()))),
            _ if !complete => Usage::Cut(None),
            ScanResult::Invalid => Usage::Unreadable,
            ScanResult::Nothing => Usage::Nothing,
        }
    }

    fn tokens(&self, scanned: u64) -> Usage {
        Usage::Tokens(scanned.min(self.by.max.get()))
    }
}

fn is_encoded(fields: &HeaderMap) -> bool {
    fields.get_all(CONTENT_ENCODING).iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

fn is_event_stream(fields: &HeaderMap) -> bool {
    const TYPE: &[u8] = b"text/event-stream";
    let Some(scanned) = fields.get(CONTENT_TYPE).map(|value| value.as_bytes()) else { return false };
    let (kind, rest) = scanned.split_at(scanned.len().min(TYPE.len()));
    kind.eq_ignore_ascii_case(TYPE) && !rest.first().is_some_and(|byte| !matches!(byte, b';' | b' ' | b'\t'))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use http::{HeaderName, HeaderValue};

    use super::*;
    use crate::limit::cost::json_path::JsonPath;

    fn by(field: CostField) -> UsageReader {
        let nonzero = |number| NonZeroU64::new(number).unwrap();
        UsageReader::new(Arc::new(ResponseCost { field, reserve: nonzero(5), max: nonzero(100) }))
    }

    fn fields(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        map
    }

    fn json(head: &[(&'static str, &'static str)], body: &str, complete: bool) -> Usage {
        let mut reading = by(CostField::Json(JsonPath::parse("usage.total").unwrap()));
        reading.head(&fields(head));
        body.as_bytes().chunks(3).for_each(|piece| reading.feed(piece));
        reading.end(complete)
    }

    #[test]
    fn a_field_of_the_head_is_one_whole_number() {
        let header = |values: &[(&'static str, &'static str)], complete| {
            let mut reading = by(CostField::Header(HeaderName::from_static("x-used")));
            reading.head(&fields(values));
            assert!(!reading.reads_on());
            reading.end(complete)
        };
        assert_eq!(header(&[("x-used", "7")], false), Usage::Tokens(7), "whatever becomes of the body");
        assert_eq!(header(&[("x-used", "0")], true), Usage::Tokens(0));
        assert_eq!(header(&[("x-used", "101")], true), Usage::Tokens(100));
        assert_eq!(header(&[], true), Usage::Nothing);
        for wrong in ["", "-1", "1.5", "7 tokens", "18446744073709551616"] {
            assert_eq!(header(&[("x-used", wrong)], true), Usage::Unreadable, "{wrong:?}");
        }
        assert_eq!(header(&[("x-used", "7"), ("x-used", "7")], true), Usage::Unreadable);
    }

    #[test]
    fn a_body_tells_by_its_end() {
        let body = r#"{"usage":{"total":7.5}}"#;
        assert_eq!(json(&[], body, true), Usage::Tokens(8));
        assert_eq!(json(&[("content-encoding", "Identity")], body, true), Usage::Tokens(8));
        assert_eq!(json(&[], body, false), Usage::Cut(Some(8)));
        assert_eq!(json(&[], &body[..20], false), Usage::Cut(None));
        assert_eq!(json(&[], r#"{"usage":{"total":700}}"#, true), Usage::Tokens(100));
        assert_eq!(json(&[], r#"{"usage":{"total":"7"}}"#, true), Usage::Unreadable);
        assert_eq!(json(&[], "<html>", true), Usage::Nothing);
        assert_eq!(json(&[("content-encoding", "gzip")], body, true), Usage::Unreadable);
    }

    #[test]
    fn the_last_event_that_tells_counts() {
        let events = "data: {\"usage\":null}\n\ndata: {\"usage\":{\"total\":3}}\r\n\r\ndata: {\"usage\":\ndata: {\"total\":9}}\n\n\
                      data: {\"broken\n\n: {\"usage\":{\"total\":1}}\n\ndata: {\"usage\":null}\n\ndata: [DONE]\n\n";
        for kind in ["text/event-stream", "Text/Event-Stream; charset=utf-8"] {
            assert_eq!(json(&[("content-type", kind)], events, true), Usage::Tokens(9));
        }
        assert_eq!(json(&[("content-type", "text/event-streams")], events, true), Usage::Nothing);
    }
}

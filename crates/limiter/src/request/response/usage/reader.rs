//! Reads the cost of a request from its response while that passes.
//!
//! Guarantees that nothing of the body is kept, changed or waited for. A cost that cannot be read
//! is none: the reservation stands.

use std::sync::Arc;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};

use crate::limit::cost::{CostField, JsonTerm, ResponseCost, number};
use crate::request::response::usage::event_stream::{EventStream, StreamPart};
use crate::request::response::usage::terms::{ReportedTerms, TermScanners};

/// The usage that a response tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    /// The tokens that the request cost, `max` at most.
    Tokens(u64),
    /// Not all of the cost was told: what is reserved, and no less than this.
    AtLeast(u64, Unreported),
    /// The whole reservation: the cost was known, and the response counts.
    Whole,
    /// Nothing: responses of this status do not count.
    Uncounted,
    /// No upstream was reached.
    Unreached,
}

/// Why a cost is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreported {
    /// The field is not there.
    Absent,
    /// The field is no whole number, comes twice, or the body is encoded.
    Unreadable,
    /// The body broke off.
    Cut,
}

/// Looks for the cost in one response.
#[derive(Debug)]
pub(crate) struct UsageReader {
    by: Arc<ResponseCost>,
    body: Option<Box<BodyScanner>>,
    /// The least that a response costs that does not tell.
    least: u64,
    usage: Usage,
}

#[derive(Debug)]
enum BodyScanner {
    Json(TermScanners),
    Events(EventStream, TermScanners),
}

impl UsageReader {
    pub fn new(by: Arc<ResponseCost>) -> Self {
        Self {
            by,
            body: None,
            least: 0,
            usage: Usage::AtLeast(0, Unreported::Absent),
        }
    }

    /// Whether the response must come without a content coding to be readable.
    pub fn wants_plain_text(&self) -> bool {
        matches!(self.by.field, CostField::Json(_))
    }

    /// Reads the head of the response. One that reports a failure has no cost to tell. `None`: the
    /// body may tell more.
    pub fn head(&mut self, status: StatusCode, fields: &HeaderMap) -> Option<Usage> {
        if let Some(absent) = self.by.absent.filter(|_| status.is_success()) {
            self.least = absent.get();
        }
        self.usage = Usage::AtLeast(self.least, Unreported::Absent);
        match &self.by.field {
            CostField::Header(name) => {
                let mut values = fields.get_all(name).iter();
                self.usage = match (values.next(), values.next()) {
                    (None, _) => self.usage,
                    (Some(value), None) => number(value.as_bytes())
                        .map_or(self.unreadable(), |scanned| {
                            Usage::Tokens(self.bounded(scanned))
                        }),
                    (Some(_), Some(_)) => self.unreadable(),
                };
            }
            CostField::Json(_) if is_encoded(fields) => self.usage = self.unreadable(),
            CostField::Json(terms) => self.body = Some(Box::new(BodyScanner::new(terms, fields))),
        }
        self.body.is_none().then_some(self.usage)
    }

    /// Reads a piece of the body.
    pub fn feed(&mut self, piece: &[u8]) {
        match self.body.as_deref_mut() {
            None => {}
            Some(BodyScanner::Json(scanners)) => scanners.feed(piece),
            Some(BodyScanner::Events(events, scanners)) => events.feed(piece, |part| match part {
                StreamPart::Data(data) => scanners.feed(data),
                StreamPart::LineEnd => scanners.feed(b"\n"),
                StreamPart::EventEnd => scanners.restart(),
            }),
        }
    }

    /// The usage. A field of the head is known whatever becomes of the body.
    pub fn end(self, complete: bool) -> Usage {
        let (CostField::Json(terms), Some(body)) = (&self.by.field, self.body.as_deref()) else {
            return self.usage;
        };
        let (BodyScanner::Json(scanners) | BodyScanner::Events(_, scanners)) = body;
        let ReportedTerms {
            sum,
            absent,
            invalid,
        } = scanners.reported(terms);
        let told = self.bounded(sum);
        match (absent || invalid, complete) {
            (false, true) => Usage::Tokens(told),
            (false, false) => Usage::AtLeast(told, Unreported::Cut),
            (true, false) => Usage::AtLeast(told.max(self.least), Unreported::Cut),
            (true, true) if invalid => Usage::AtLeast(told.max(self.least), Unreported::Unreadable),
            (true, true) => Usage::AtLeast(told.max(self.least), Unreported::Absent),
        }
    }

    fn unreadable(&self) -> Usage {
        Usage::AtLeast(self.least, Unreported::Unreadable)
    }

    fn bounded(&self, scanned: u64) -> u64 {
        scanned.min(self.by.max.get())
    }
}

impl BodyScanner {
    fn new(terms: &[JsonTerm], fields: &HeaderMap) -> Self {
        let scanners = TermScanners::new(terms);
        if is_event_stream(fields) {
            Self::Events(EventStream::default(), scanners)
        } else {
            Self::Json(scanners)
        }
    }
}

fn is_encoded(fields: &HeaderMap) -> bool {
    fields
        .get_all(CONTENT_ENCODING)
        .iter()
        .any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

fn is_event_stream(fields: &HeaderMap) -> bool {
    const TYPE: &[u8] = b"text/event-stream";
    let Some(scanned) = fields.get(CONTENT_TYPE).map(|value| value.as_bytes()) else {
        return false;
    };
    let (kind, rest) = scanned.split_at(scanned.len().min(TYPE.len()));
    kind.eq_ignore_ascii_case(TYPE)
        && !rest
            .first()
            .is_some_and(|byte| !matches!(byte, b';' | b' ' | b'\t'))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use http::{HeaderName, HeaderValue};

    use super::*;
    use crate::limit::cost::json_path::JsonPath;

    const ABSENT: Usage = Usage::AtLeast(0, Unreported::Absent);
    const UNREADABLE: Usage = Usage::AtLeast(0, Unreported::Unreadable);

    fn nonzero(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).unwrap()
    }

    fn by(field: CostField, absent: Option<u64>) -> UsageReader {
        let absent = absent.map(nonzero);
        UsageReader::new(Arc::new(ResponseCost {
            field,
            reserve: nonzero(5),
            max: nonzero(100),
            absent,
        }))
    }

    fn fields(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        map
    }

    fn json(head: &[(&'static str, &'static str)], body: &str, complete: bool) -> Usage {
        let mut reading = by(JsonPath::parse("usage.total").unwrap().into(), None);
        reading.head(StatusCode::OK, &fields(head));
        body.as_bytes()
            .chunks(3)
            .for_each(|piece| reading.feed(piece));
        reading.end(complete)
    }

    #[test]
    fn a_field_of_the_head_is_one_whole_number() {
        let header = |values: &[(&'static str, &'static str)], complete| {
            let mut reading = by(CostField::Header(HeaderName::from_static("x-used")), None);
            let known = reading.head(StatusCode::OK, &fields(values));
            assert_eq!(known, Some(reading.usage), "it need not wait for the body");
            reading.end(complete)
        };
        assert_eq!(
            header(&[("x-used", "7")], false),
            Usage::Tokens(7),
            "whatever becomes of the body"
        );
        assert_eq!(header(&[("x-used", "0")], true), Usage::Tokens(0));
        assert_eq!(header(&[("x-used", "101")], true), Usage::Tokens(100));
        assert_eq!(header(&[], true), ABSENT);
        for wrong in ["", "-1", "1.5", "7 tokens", "18446744073709551616"] {
            assert_eq!(header(&[("x-used", wrong)], true), UNREADABLE, "{wrong:?}");
        }
        assert_eq!(
            header(&[("x-used", "7"), ("x-used", "7")], true),
            UNREADABLE
        );
    }

    #[test]
    fn a_body_tells_by_its_end() {
        let body = r#"{"usage":{"total":7.5}}"#;
        assert_eq!(json(&[], body, true), Usage::Tokens(8));
        assert_eq!(
            json(&[("content-encoding", "Identity")], body, true),
            Usage::Tokens(8)
        );
        assert_eq!(json(&[], body, false), Usage::AtLeast(8, Unreported::Cut));
        assert_eq!(
            json(&[], &body[..20], false),
            Usage::AtLeast(0, Unreported::Cut)
        );
        assert_eq!(
            json(&[], r#"{"usage":{"total":700}}"#, true),
            Usage::Tokens(100)
        );
        assert_eq!(json(&[], r#"{"usage":{"total":"7"}}"#, true), UNREADABLE);
        assert_eq!(json(&[], "<html>", true), ABSENT);
        assert_eq!(
            json(&[("content-encoding", "gzip")], body, true),
            UNREADABLE
        );
    }

    #[test]
    fn the_last_event_that_tells_counts() {
        let events = "data: {\"usage\":null}\n\ndata: {\"usage\":{\"total\":3}}\r\n\r\ndata: {\"usage\":\ndata: {\"total\":9}}\n\n\
                      data: {\"broken\n\n: {\"usage\":{\"total\":1}}\n\ndata: {\"usage\":null}\n\ndata: [DONE]\n\n";
        for kind in ["text/event-stream", "Text/Event-Stream; charset=utf-8"] {
            assert_eq!(
                json(&[("content-type", kind)], events, true),
                Usage::Tokens(9)
            );
        }
        assert_eq!(
            json(&[("content-type", "text/event-streams")], events, true),
            ABSENT
        );
    }

    #[test]
    fn a_successful_response_without_a_number_costs_what_an_absent_one_does() {
        let reported = |absent, status, body: &str, complete| {
            let mut reading = by(JsonPath::parse("usage.total").unwrap().into(), Some(absent));
            reading.head(status, &fields(&[("content-type", "text/event-stream")]));
            reading.feed(body.as_bytes());
            reading.end(complete)
        };
        let reports_seven = "data: {\"usage\":{\"total\":7}}\n\n";
        assert_eq!(
            reported(60, StatusCode::OK, "data: [DONE]\n\n", true),
            Usage::AtLeast(60, Unreported::Absent)
        );
        assert_eq!(
            reported(60, StatusCode::OK, "data: {\"usage\":3}\n\n", true),
            Usage::AtLeast(60, Unreported::Absent)
        );
        assert_eq!(
            reported(60, StatusCode::OK, "data: {", false),
            Usage::AtLeast(60, Unreported::Cut)
        );
        assert_eq!(
            reported(60, StatusCode::OK, reports_seven, true),
            Usage::Tokens(7),
            "the number is there"
        );
        assert_eq!(
            reported(60, StatusCode::OK, reports_seven, false),
            Usage::AtLeast(7, Unreported::Cut)
        );
        assert_eq!(
            reported(60, StatusCode::SERVICE_UNAVAILABLE, "busy", true),
            ABSENT,
            "a failure has nothing to tell"
        );
        let mut header = by(
            CostField::Header(HeaderName::from_static("x-used")),
            Some(60),
        );
        header.head(StatusCode::OK, &fields(&[("x-used", "some")]));
        assert_eq!(header.end(true), Usage::AtLeast(60, Unreported::Unreadable));
    }

    #[test]
    fn a_sum_is_told_once_all_of_its_terms_are() {
        fn path(text: &str) -> JsonPath {
            JsonPath::parse(text).unwrap()
        }
        let output = JsonTerm {
            first_of: vec![path("usage.out"), path("message.usage.out")],
            weight: nonzero(4),
        };
        let reported = |body: &str| {
            let mut reading = by(
                CostField::Json([path("usage.in").into(), output.clone()].into()),
                Some(60),
            );
            reading.head(StatusCode::OK, &fields(&[]));
            body.as_bytes()
                .chunks(3)
                .for_each(|piece| reading.feed(piece));
            reading.end(true)
        };
        assert_eq!(
            reported(r#"{"usage":{"in":10,"out":5}}"#),
            Usage::Tokens(30)
        );
        assert_eq!(
            reported(r#"{"message":{"usage":{"out":6}},"usage":{"in":10}}"#),
            Usage::Tokens(34)
        );
        assert_eq!(
            reported(r#"{"message":{"usage":{"out":6}},"usage":{"in":10,"out":5}}"#),
            Usage::Tokens(30)
        );
        assert_eq!(
            reported(r#"{"message":{"usage":{"out":6}},"usage":{"in":10,"out":"x"}}"#),
            Usage::Tokens(34)
        );
        assert_eq!(
            reported(r#"{"usage":{"in":90,"out":18446744073709551615}}"#),
            Usage::Tokens(100),
            "max at most"
        );
        assert_eq!(
            reported(r#"{"usage":{"in":10}}"#),
            Usage::AtLeast(60, Unreported::Absent),
            "half of it is not all"
        );
        assert_eq!(
            reported(r#"{"usage":{"in":90}}"#),
            Usage::AtLeast(90, Unreported::Absent),
            "no less than was told"
        );
        assert_eq!(
            reported(r#"{"usage":{"in":90,"out":true}}"#),
            Usage::AtLeast(90, Unreported::Unreadable)
        );
    }
}

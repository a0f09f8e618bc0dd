//! A line as a JSON object. Fields without a value are left out.

use std::time::Duration;

use http::Version;

use super::escape::{LONGEST_PATH, LONGEST_TEXT, push_json};
use super::line::{LoggedLine, LoggedRequest};
use crate::observe::access_log::timestamp::{CalendarTime, push_milliseconds};

/// Writes an object, member after member.
struct ObjectWriter<'a> {
    text: &'a mut Vec<u8>,
}

/// Writes `line`.
pub fn write(line: &LoggedLine<'_>, text: &mut Vec<u8>) {
    let mut object = ObjectWriter::begin(text);
    object.name("time");
    object.text.push(b'"');
    CalendarTime::new(line.time).write_iso(object.text);
    object.text.push(b'"');
    write_request(&mut object, line.request);
    write_answer(&mut object, line);
    write_way(&mut object, line);
    object.string("request_id", line.request.request_id.as_bytes());
    object.optional_string("referer", line.request.referer());
    object.optional_string("user_agent", line.request.user_agent());
    object.end();
}

fn write_request(object: &mut ObjectWriter<'_>, request: &LoggedRequest) {
    object.string("client", &request.client_text());
    if let Some(identity) = &request.identity {
        object.string("identity", identity.id().as_bytes());
        object.string("authenticator", identity.authenticator().as_bytes());
    }
    let method = match &request.head {
        Some(head) => head.method.as_str(),
        None => "OTHER",
    };
    object.string("method", method.as_bytes());
    object.string("host", request.host().as_bytes());
    object.name("path");
    object.text.push(b'"');
    push_json(object.text, request.path().as_bytes(), LONGEST_PATH);
    object.text.push(b'"');
    object.string(
        "protocol",
        request.version().map_or("", protocol).as_bytes(),
    );
}

fn write_answer(object: &mut ObjectWriter<'_>, line: &LoggedLine<'_>) {
    let answer = line.answer;
    object.string("route", answer.route.as_bytes());
    object.number("status", answer.status.into());
    object.number("bytes", answer.bytes);
    object.number("received_bytes", line.received());
    object.name("complete");
    let complete: &[u8] = if answer.complete { b"true" } else { b"false" };
    object.text.extend_from_slice(complete);
    let duration = answer.ended.saturating_duration_since(answer.started);
    object.millis("duration_ms", duration);
    object.optional_string("problem", answer.problem.map(str::as_bytes));
    if let Some(denied) = &line.request.denied {
        object.string("limit", denied.limit.as_bytes());
        object.optional_string("bucket", denied.bucket.as_deref().map(str::as_bytes));
    }
    if let Some(status) = answer.grpc_status {
        object.number("grpc_status", status.into());
    }
}

fn write_way(object: &mut ObjectWriter<'_>, line: &LoggedLine<'_>) {
    let answer = line.answer;
    let report = &line.request.report;
    object.optional_string("upstream", report.upstream.as_deref().map(str::as_bytes));
    if let Some(endpoint) = &report.endpoint {
        object.string("endpoint", endpoint.url().as_bytes());
    }
    let Some(begun) = report.begun else { return };
    object.number("attempts", report.attempts.into());
    if let Some(head) = report.head {
        object.millis("endpoint_head_ms", head.saturating_duration_since(begun));
    }
    object.millis("endpoint_ms", answer.ended.saturating_duration_since(begun));
}

impl<'a> ObjectWriter<'a> {
    fn begin(text: &'a mut Vec<u8>) -> Self {
        text.push(b'{');
        Self { text }
    }

    fn name(&mut self, name: &str) {
        if self.text.last() != Some(&b'{') {
            self.text.push(b',');
        }
        self.text.push(b'"');
        self.text.extend_from_slice(name.as_bytes());
        self.text.extend_from_slice(b"\":");
    }

    fn string(&mut self, name: &str, value: &[u8]) {
        self.name(name);
        self.text.push(b'"');
        push_json(self.text, value, LONGEST_TEXT);
        self.text.push(b'"');
    }

    fn optional_string(&mut self, name: &str, value: Option<&[u8]>) {
        if let Some(value) = value {
            self.string(name, value);
        }
    }

    fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        self.text
            .extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    fn millis(&mut self, name: &str, value: Duration) {
        self.name(name);
        push_milliseconds(self.text, value);
    }

    fn end(self) {
        self.text.push(b'}');
    }
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    }
}

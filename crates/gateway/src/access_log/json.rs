//! A line as a JSON object. Fields without a value are left out.

use std::time::{Duration, SystemTime};

use http::Version;

use super::escape::{LONGEST_PATH, LONGEST_TEXT, push_json};
use super::line::{LoggedLine, LoggedRequest};
use crate::observe::access_log::timestamp::{CalendarTime, push_milliseconds};

/// The comma before a member, and its name as JSON has it.
#[derive(Clone, Copy)]
struct MemberName(&'static str);

/// The name of a member, written once.
macro_rules! member {
    ($name:literal) => {
        MemberName(concat!(",\"", $name, "\":"))
    };
}

/// Writes an object, member after member.
struct ObjectWriter<'a> {
    text: &'a mut Vec<u8>,
}

/// Writes `line`.
pub fn write(line: &LoggedLine<'_>, text: &mut Vec<u8>) {
    let mut object = ObjectWriter::begin(text, line.time);
    write_request(&mut object, line.request);
    write_answer(&mut object, line);
    write_way(&mut object, line);
    object.string(member!("request_id"), line.request.request_id.as_bytes());
    object.optional_string(member!("referer"), line.request.referer());
    object.optional_string(member!("user_agent"), line.request.user_agent());
    object.end();
}

fn write_request(object: &mut ObjectWriter<'_>, request: &LoggedRequest) {
    object.string(member!("client"), &request.client_text());
    if let Some(identity) = &request.identity {
        object.string(member!("identity"), identity.id().as_bytes());
        object.string(
            member!("authenticator"),
            identity.authenticator().as_bytes(),
        );
    }
    let method = match &request.head {
        Some(head) => head.method.as_str(),
        None => "OTHER",
    };
    object.string(member!("method"), method.as_bytes());
    object.string(member!("host"), request.host().as_bytes());
    object.name(member!("path"));
    object.text.push(b'"');
    push_json(object.text, request.path().as_bytes(), LONGEST_PATH);
    object.text.push(b'"');
    object.string(
        member!("protocol"),
        request.version().map_or("", protocol).as_bytes(),
    );
}

fn write_answer(object: &mut ObjectWriter<'_>, line: &LoggedLine<'_>) {
    let answer = line.answer;
    object.string(member!("route"), answer.route.as_bytes());
    object.number(member!("status"), answer.status.into());
    object.number(member!("bytes"), answer.bytes);
    object.number(member!("received_bytes"), line.received());
    object.name(member!("complete"));
    let complete: &[u8] = if answer.complete { b"true" } else { b"false" };
    object.text.extend_from_slice(complete);
    let duration = answer.ended.saturating_duration_since(answer.started);
    object.millis(member!("duration_ms"), duration);
    object.optional_string(member!("problem"), answer.problem.map(str::as_bytes));
    if let Some(denied) = &line.request.denied {
        object.string(member!("limit"), denied.limit.as_bytes());
        object.optional_string(
            member!("bucket"),
            denied.bucket.as_deref().map(str::as_bytes),
        );
    }
    if let Some(status) = answer.grpc_status {
        object.number(member!("grpc_status"), status.into());
    }
}

fn write_way(object: &mut ObjectWriter<'_>, line: &LoggedLine<'_>) {
    let answer = line.answer;
    let report = &line.request.report;
    object.optional_string(
        member!("upstream"),
        report.upstream.as_deref().map(str::as_bytes),
    );
    if let Some(endpoint) = &report.endpoint {
        object.string(member!("endpoint"), endpoint.url().as_bytes());
    }
    let Some(begun) = report.begun else { return };
    object.number(member!("attempts"), report.attempts.into());
    if let Some(head) = report.head {
        object.millis(
            member!("endpoint_head_ms"),
            head.saturating_duration_since(begun),
        );
    }
    object.millis(
        member!("endpoint_ms"),
        answer.ended.saturating_duration_since(begun),
    );
}

impl<'a> ObjectWriter<'a> {
    /// The object, with the time as its first member.
    fn begin(text: &'a mut Vec<u8>, time: SystemTime) -> Self {
        text.extend_from_slice(br#"{"time":""#);
        CalendarTime::new(time).write_iso(text);
        text.push(b'"');
        Self { text }
    }

    fn name(&mut self, name: MemberName) {
        self.text.extend_from_slice(name.0.as_bytes());
    }

    fn string(&mut self, name: MemberName, value: &[u8]) {
        self.name(name);
        self.text.push(b'"');
        push_json(self.text, value, LONGEST_TEXT);
        self.text.push(b'"');
    }

    fn optional_string(&mut self, name: MemberName, value: Option<&[u8]>) {
        if let Some(value) = value {
            self.string(name, value);
        }
    }

    fn number(&mut self, name: MemberName, value: u64) {
        self.name(name);
        self.text
            .extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    fn millis(&mut self, name: MemberName, value: Duration) {
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

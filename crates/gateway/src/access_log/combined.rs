//! A line in Apache's `combined` format: `%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-agent}i"`.
//! The extended format has the other fields behind that, by their names in JSON.

use std::io::Write as _;
use std::time::Duration;

use http::Version;
use tollgate_limiter::limit::key::CallerIdentity;

use super::escape::{LONGEST_PATH, LONGEST_TEXT, push_combined, push_combined_word};
use super::line::LoggedLine;
use crate::observe::access_log::timestamp::{CalendarTime, push_milliseconds};

/// Writes `line`.
pub fn write(line: &LoggedLine<'_>, text: &mut Vec<u8>) {
    let LoggedLine {
        time,
        request,
        answer,
    } = line;
    text.extend_from_slice(&request.client_text());
    text.extend_from_slice(b" - ");
    match request.identity.as_deref().map(CallerIdentity::id) {
        Some(id) => push_combined_word(text, id.as_bytes()),
        None => text.push(b'-'),
    }
    text.extend_from_slice(b" [");
    CalendarTime::new(*time).write_apache(text);
    text.extend_from_slice(b"] \"");
    match &request.head {
        Some(head) => {
            push_combined(text, head.method.as_str().as_bytes(), LONGEST_TEXT);
            text.push(b' ');
            push_combined(text, request.path().as_bytes(), LONGEST_PATH);
            text.push(b' ');
            text.extend_from_slice(protocol(head.version).as_bytes());
        }
        None => text.push(b'-'),
    }
    // Writing to memory cannot fail.
    let _ = write!(text, "\" {} ", answer.status);
    match answer.bytes {
        0 => text.push(b'-'),
        bytes => text.extend_from_slice(itoa::Buffer::new().format(bytes).as_bytes()),
    }
    push_field(text, request.referer());
    push_field(text, request.user_agent());
}

/// Writes `line` with its route, its way, and why it was refused. Each field is there, and `-` if
/// it has no value.
pub fn write_extended(line: &LoggedLine<'_>, text: &mut Vec<u8>) {
    write(line, text);
    let request = line.request;
    let answer = line.answer;
    let report = &request.report;
    let denied = request.denied.as_ref();
    let endpoint = report.endpoint.as_ref();
    let duration = answer.ended.saturating_duration_since(answer.started);
    let endpoint_duration = report
        .begun
        .map(|begun| answer.ended.saturating_duration_since(begun));
    push_named(text, "route", Some(answer.route));
    push_millis(text, "duration_ms", Some(duration));
    push_named(text, "upstream", report.upstream.as_deref());
    push_named(text, "endpoint", endpoint.map(|endpoint| endpoint.url()));
    let _ = write!(text, " attempts={}", report.attempts);
    push_millis(text, "endpoint_ms", endpoint_duration);
    push_named(text, "problem", answer.problem);
    push_named(text, "limit", denied.map(|denied| &*denied.limit));
    push_named(
        text,
        "bucket",
        denied.and_then(|denied| denied.bucket.as_deref()),
    );
    text.extend_from_slice(b" request_id=");
    push_quoted(text, Some(request.request_id.as_bytes()));
}

/// A name, and its value in quotes or `"-"`.
fn push_named(text: &mut Vec<u8>, name: &str, value: Option<&str>) {
    let _ = write!(text, " {name}=");
    push_quoted(text, value.map(str::as_bytes));
}

fn push_millis(text: &mut Vec<u8>, name: &str, value: Option<Duration>) {
    let _ = write!(text, " {name}=");
    match value {
        Some(value) => push_milliseconds(text, value),
        None => text.push(b'-'),
    }
}

/// A field in quotes, or `"-"`.
fn push_field(text: &mut Vec<u8>, value: Option<&[u8]>) {
    text.push(b' ');
    push_quoted(text, value);
}

fn push_quoted(text: &mut Vec<u8>, value: Option<&[u8]>) {
    text.push(b'"');
    match value {
        Some(value) => push_combined(text, value, LONGEST_TEXT),
        None => text.push(b'-'),
    }
    text.push(b'"');
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::UNIX_EPOCH;

    use http::HeaderValue;

    use super::*;
    use crate::access_log::{LoggedAnswer, LoggedRequest};
    use tollgate_limiter::clock;

    #[test]
    fn a_line_has_the_time_and_who_the_client_is() {
        let mut request =
            LoggedRequest::unread([192, 0, 2, 1].into(), &HeaderValue::from_static("id"));
        request.identity = Some(Arc::new(CallerIdentity::new("staff", "Ada L")));
        let now = clock::now();
        let answer = LoggedAnswer {
            route: "none",
            status: 400,
            bytes: 0,
            received: None,
            complete: true,
            started: now,
            ended: now,
            problem: None,
            grpc_status: None,
        };
        let time = UNIX_EPOCH + Duration::from_secs(1_709_251_199);
        let mut text = Vec::new();
        write(
            &LoggedLine {
                time,
                request: &request,
                answer: &answer,
            },
            &mut text,
        );
        let expected = r#"192.0.2.1 - Ada\x20L [29/Feb/2024:23:59:59 +0000] "-" 400 - "-" "-""#;
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}

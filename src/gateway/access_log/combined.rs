//! A line in Apache's `combined` format: `%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-agent}i"`.

use std::io::Write as _;

use http::Version;
use tollgate_limiter::limit::key::CallerIdentity;

use super::escape::{LONGEST_PATH, LONGEST_TEXT, push_combined, push_combined_word};
use super::line::LoggedLine;
use crate::observe::access_log::timestamp::CalendarTime;

/// Writes `line`.
pub fn write(line: &LoggedLine<'_>, text: &mut Vec<u8>) {
    let LoggedLine { time, request, answer } = line;
    // Writing to memory cannot fail.
    let _ = write!(text, "{} - ", request.client);
    match request.identity.as_deref().map(CallerIdentity::id) {
        Some(id) => push_combined_word(text, id.as_bytes()),
        None => text.push(b'-'),
    }
    text.extend_from_slice(b" [");
    CalendarTime::of(*time).write_apache(text);
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
    let _ = write!(text, "\" {} ", answer.status);
    match answer.bytes {
        0 => text.push(b'-'),
        bytes => text.extend_from_slice(itoa::Buffer::new().format(bytes).as_bytes()),
    }
    push_field(text, request.referer());
    push_field(text, request.user_agent());
}

/// A field in quotes, or `"-"`.
fn push_field(text: &mut Vec<u8>, value: Option<&[u8]>) {
    text.extend_from_slice(b" \"");
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

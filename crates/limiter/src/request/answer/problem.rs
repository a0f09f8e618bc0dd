//! ProblemBody documents (RFC 9457), put together and not serialised: denied requests come in
//! floods.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;

/// The problem type of a denied request (draft-ietf-httpapi-ratelimit-headers-11 §6).
pub const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// Before the name of a problem that has no registered type.
const OWN_TYPE: &str = "urn:tollgate:problem:";

/// Bytes of most problems.
const TYPICAL: usize = 384;

/// The content of a problem document.
#[derive(Clone, Copy, Debug)]
pub struct ProblemBody<'a> {
    pub status: StatusCode,
    /// The last part of its type.
    pub name: &'a str,
    pub detail: &'a str,
    pub request_id: Option<&'a str>,
    /// The limits that denied the request, as far as they are told: then the type is
    /// [`QUOTA_EXCEEDED`].
    pub violated: Option<&'a [Arc<str>]>,
    /// Further members, each a string.
    pub members: &'a [(&'static str, &'a str)],
}

impl ProblemBody<'_> {
    /// RFC 9457 §3, with the members of draft-ietf-httpapi-ratelimit-headers-11 §6.
    pub fn to_json(&self) -> Bytes {
        let mut text = Vec::with_capacity(TYPICAL);
        self.push_kind(&mut text);
        self.finish(text)
    }

    /// The part of the document that all problems with the same type, status and detail share.
    pub(crate) fn kind(&self) -> Vec<u8> {
        let mut text = Vec::new();
        self.push_kind(&mut text);
        text
    }

    /// Like [`Self::to_json`], where [`Self::kind`] was told before.
    pub(crate) fn json_of_kind(&self, kind: &[u8]) -> Bytes {
        let mut text = Vec::with_capacity(TYPICAL);
        text.extend_from_slice(kind);
        self.finish(text)
    }

    fn push_kind(&self, text: &mut Vec<u8>) {
        let kind = if self.violated.is_some() {
            [QUOTA_EXCEEDED, ""]
        } else {
            [OWN_TYPE, self.name]
        };
        let title = self.status.canonical_reason().unwrap_or_default();
        for part in [
            "{\"type\":\"",
            kind[0],
            kind[1],
            "\",\"title\":\"",
            title,
            "\",\"status\":",
            self.status.as_str(),
        ] {
            text.extend_from_slice(part.as_bytes());
        }
        text.extend_from_slice(b",\"detail\":");
        push_json(text, self.detail);
    }

    /// Appends what differs from request to request.
    fn finish(&self, mut text: Vec<u8>) -> Bytes {
        if let Some(request_id) = self.request_id {
            text.extend_from_slice(b",\"request-id\":");
            push_json(&mut text, request_id);
        }
        for (name, value) in self.members {
            text.push(b',');
            push_json(&mut text, name);
            text.push(b':');
            push_json(&mut text, value);
        }
        if let Some(violated) = self.violated.filter(|violated| !violated.is_empty()) {
            text.extend_from_slice(b",\"violated-policies\":[");
            for (at, name) in violated.iter().enumerate() {
                text.extend_from_slice(if at > 0 { b"," } else { b"" });
                push_json(&mut text, name);
            }
            text.push(b']');
        }
        text.extend_from_slice(b"}\n");
        // Cut to its length in place: with room left, `Bytes` would allocate once more.
        text.into_boxed_slice().into()
    }
}

/// Appends a JSON string (RFC 8259 §7).
fn push_json(text: &mut Vec<u8>, string: &str) {
    // No branch a byte: nearly no string has a special one.
    let special = string.bytes().fold(0, |seen, byte| {
        seen | u8::from(byte < 0x20) | u8::from(byte == b'"') | u8::from(byte == b'\\')
    });
    if special == 0 {
        text.push(b'"');
        text.extend_from_slice(string.as_bytes());
        text.push(b'"');
    } else if let Ok(quoted) = serde_json::to_vec(string) {
        text.extend_from_slice(&quoted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_json_whatever_is_in_it() {
        let violated = ["per-client".into(), "a \"b\" \\ \u{e9}\n".into()];
        let problem = ProblemBody {
            status: StatusCode::TOO_MANY_REQUESTS,
            name: "quota-exceeded",
            detail: "\"quoted\"",
            request_id: Some("a\"b\\c"),
            violated: Some(&violated),
            members: &[("limit", "x\ty")],
        };
        let read: serde_json::Value = serde_json::from_slice(&problem.to_json()).unwrap();
        assert_eq!(
            read,
            serde_json::json!({
                "type": QUOTA_EXCEEDED,
                "title": "Too Many Requests",
                "status": 429,
                "detail": "\"quoted\"",
                "request-id": "a\"b\\c",
                "limit": "x\ty",
                "violated-policies": ["per-client", "a \"b\" \\ \u{e9}\n"],
            })
        );
        assert_eq!(problem.json_of_kind(&problem.kind()), problem.to_json());
        let own = ProblemBody {
            violated: None,
            request_id: None,
            members: &[],
            ..problem
        };
        let read: serde_json::Value = serde_json::from_slice(&own.to_json()).unwrap();
        assert_eq!(read["type"], "urn:tollgate:problem:quota-exceeded");
        assert_eq!(
            (read.get("violated-policies"), read.get("request-id")),
            (None, None)
        );
    }
}

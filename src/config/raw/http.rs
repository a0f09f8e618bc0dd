//! What HTTP itself constrains: methods, field names and values, status codes, hosts.

use std::sync::Arc;

use ::http::{HeaderName, HeaderValue, Method, StatusCode};
use serde_json::{Value as Json, json};

use super::address::authority;
use super::limit::Token;
use super::number::or_variable;
use crate::config::decode::Scalar;
use crate::config::mistake::{Trouble, nearest, quote};
use crate::gateway::route::{HostMatch, HostPolicy};

/// The methods of the IANA registry, but for PRI and `*`, which no request has.
const REGISTERED_METHODS: [&str; 39] = [
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "CONNECT",
    "COPY",
    "DELETE",
    "GET",
    "HEAD",
    "LABEL",
    "LINK",
    "LOCK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "OPTIONS",
    "ORDERPATCH",
    "PATCH",
    "POST",
    "PROPFIND",
    "PROPPATCH",
    "PUT",
    "QUERY",
    "REBIND",
    "REPORT",
    "SEARCH",
    "TRACE",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
];

/// The registered method that `text` names in any case. Methods are case-sensitive (RFC 9110 §9.1), so this is for
/// people who write them, never for requests; a method that is not registered may well be meant as it is written.
pub fn registered_method(text: &str) -> Option<&'static str> {
    REGISTERED_METHODS.into_iter().find(|method| method.eq_ignore_ascii_case(text))
}

impl Scalar for Method {
    const WHAT: &'static str = "a method";

    fn read(text: &str) -> Result<Self, Trouble> {
        let trouble = || Trouble::new(format!("{} is not a method", quote(text)));
        let text = registered_method(text).unwrap_or(text);
        if text.bytes().any(|byte| byte.is_ascii_lowercase()) {
            let upper = format!("methods are upper case: {}", quote(&text.to_ascii_uppercase()));
            return Err(trouble().suggest(text, REGISTERED_METHODS.into_iter(), upper));
        }
        Self::from_bytes(text.as_bytes()).map_err(|_| trouble().hint("write GET, POST, PUT, …"))
    }

    fn schema() -> Json {
        let lower = "get|head|post|put|delete|connect|options|trace|patch";
        json!({ "type": "string", "pattern": or_variable(&format!("[^a-z\\s]+|{lower}")) })
    }
}

impl Scalar for HeaderName {
    const WHAT: &'static str = "the name of a header field";

    fn read(text: &str) -> Result<Self, Trouble> {
        Self::from_bytes(text.as_bytes()).map_err(|_| {
            Trouble::new(format!("{} is not the name of a header field", quote(text)))
                .hint("letters, digits and dashes, such as x-tenant")
        })
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

impl Scalar for Token {
    const WHAT: &'static str = "the name of a cookie";

    /// Has the characters of a field name, but keeps its case.
    fn read(text: &str) -> Result<Self, Trouble> {
        match HeaderName::from_bytes(text.as_bytes()) {
            Ok(_) => Ok(Self(Arc::from(text))),
            Err(_) => Err(Trouble::new(format!("{} is not the name of a cookie", quote(text)))
                .hint("letters, digits, dashes and underscores, such as sid")),
        }
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

impl Scalar for HeaderValue {
    const WHAT: &'static str = "the value of a header field";

    /// Not quoted in the mistake: values of header fields are often secrets.
    fn read(text: &str) -> Result<Self, Trouble> {
        let trouble = |what: &str| Trouble::new(what).hint("visible characters and spaces on one line");
        if text.trim_ascii() != text {
            return Err(trouble("the value of a header field starts or ends with a space"));
        }
        Self::from_str(text).map_err(|_| trouble("the value of a header field has a character that cannot be sent"))
    }

    fn schema() -> Json {
        json!({ "type": ["string", "number", "boolean"] })
    }
}

impl Scalar for StatusCode {
    const WHAT: &'static str = "a status code";

    /// A 1xx is never a whole answer (RFC 9110 §15.2).
    fn read(text: &str) -> Result<Self, Trouble> {
        let code = text.parse().ok().and_then(|code| Self::from_u16(code).ok());
        code.filter(|code| (200..=599).contains(&code.as_u16())).ok_or_else(|| {
            Trouble::new(format!("{} is not a status code of an answer", quote(text))).hint("write 200 to 599")
        })
    }

    fn schema() -> Json {
        json!({ "anyOf": [
            { "type": "integer", "minimum": 200, "maximum": 599 },
            { "type": "string", "pattern": or_variable("[2-5][0-9]{2}") },
        ] })
    }
}

/// The status code of an answer that is an error.
#[derive(Clone, Copy)]
pub(in crate::config) struct ErrorStatus(pub StatusCode);

impl Scalar for ErrorStatus {
    const WHAT: &'static str = "a status code";

    fn read(text: &str) -> Result<Self, Trouble> {
        let code = text.parse().ok().and_then(|code| StatusCode::from_u16(code).ok());
        code.filter(|code| (400..=599).contains(&code.as_u16())).map(Self).ok_or_else(|| {
            Trouble::new(format!("{} is not a status code of a refusal", quote(text))).hint("write 400 to 599")
        })
    }

    fn schema() -> Json {
        json!({ "anyOf": [
            { "type": "integer", "minimum": 400, "maximum": 599 },
            { "type": "string", "pattern": or_variable("[45][0-9]{2}") },
        ] })
    }
}

impl Scalar for HostMatch {
    const WHAT: &'static str = "a host";

    fn read(text: &str) -> Result<Self, Trouble> {
        let trouble = |hint: &str| Trouble::new(format!("{} is not a host to match", quote(text))).hint(hint);
        if text == "*" {
            return Err(trouble("leave \"host\" out to match any host"));
        }
        let lower = text.to_ascii_lowercase();
        let suffix = lower.strip_prefix("*.");
        let name = suffix.unwrap_or(&lower);
        if name.contains('*') {
            return Err(trouble("the only wildcard is a leading \"*.\": \"*.example.com\""));
        }
        if suffix.is_none() && is_ipv6_literal(name) {
            return Ok(Self::Exact(name.into()));
        }
        if name.contains(':') {
            return Err(trouble("write the host without scheme and port"));
        }
        if !is_host_name(name) {
            return Err(trouble("write api.example.com or \"*.example.com\""));
        }
        Ok(match suffix {
            Some(suffix) => Self::Suffix(format!(".{suffix}").into()),
            None => Self::Exact(lower.into()),
        })
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

impl Scalar for HostPolicy {
    const WHAT: &'static str = "preserve, endpoint or a host";

    fn read(text: &str) -> Result<Self, Trouble> {
        const WORDS: [&str; 2] = ["preserve", "endpoint"];
        let trouble = || Trouble::new(format!("{} is neither preserve, endpoint nor a host", quote(text)));
        match text {
            "preserve" => return Ok(Self::Preserve),
            "endpoint" => return Ok(Self::Endpoint),
            // A slip of these words would be a valid host.
            _ if !text.contains(['.', ':']) && nearest(text, WORDS.into_iter()).is_some() => {
                return Err(trouble().suggest(text, WORDS.into_iter(), ""));
            }
            _ => {}
        }
        let host = authority(text).and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
        host.map(Self::Fixed).ok_or_else(|| trouble().hint("write preserve, endpoint, or a host such as api.internal"))
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

fn is_ipv6_literal(host: &str) -> bool {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.is_some_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok())
}

/// RFC 1123 §2.1, and underscores, which container names have.
fn is_host_name(name: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(fine);
    name.len() <= 253 && name.split('.').all(label)
}

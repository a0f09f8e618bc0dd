//! Header fields as conditions, of routes and of exemptions; mappings of header fields; and the
//! fields that operators cannot set.

use std::collections::HashMap;

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderName, HeaderValue};
use serde_json::{Value as Json, json};

use crate::report::{Report, ValueProblem, quote};
use crate::scalar::text::OnlyTrue;
use crate::yaml::collection::{Mapping, MappingEntry};
use crate::yaml::decode::{Decode, Located, Scalar, SchemaDefinitions, mismatch};
use crate::yaml::node::{YamlNode, YamlValue};
use crate::yaml::record::record;

record! {
    /// A header field with any value.
    RawPresent {
        /// The field must be there.
        required present: Located<OnlyTrue>,
    }
}

/// The value that a header field must have. `None`: any.
pub struct RawHeaderCondition(pub Option<HeaderValue>);

impl Decode for RawHeaderCondition {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        match &node.value {
            YamlValue::Map(_) => RawPresent::decode(node, report)?
                .present
                .valid()
                .map(|_| Self(None)),
            YamlValue::Scalar { text, .. } if is_likely_pattern(text) => {
                let problem = ValueProblem::new(format!(
                    "{} is compared as it stands: * is no wildcard here",
                    quote(text)
                ));
                report.mistake(
                    &node.location,
                    problem.hint("write the whole value, or {present: true} for any"),
                );
                None
            }
            YamlValue::Scalar { .. } if !node.value.is_null() => {
                Located::decode(node, report).map(|at: Located<HeaderValue>| Self(Some(at.value)))
            }
            _ => {
                mismatch(
                    node,
                    "a value",
                    Some("write the value, or {present: true} for any"),
                    report,
                );
                None
            }
        }
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "anyOf": [HeaderValue::schema(), RawPresent::schema(definitions)] })
    }
}

/// Whether a `*` at an end is meant for any characters. It is not in `*` (RFC 9110 §13.1.1) and in
/// ranges such as `text/*` (RFC 9110 §12.5.1).
fn is_likely_pattern(text: &str) -> bool {
    text != "*"
        && (text.starts_with('*') && !text.starts_with("*/")
            || text.ends_with('*') && !text.ends_with("/*"))
}

/// Reports names of fields that differ by case alone.
pub fn check_names<V>(headers: &Mapping<HeaderName, V>, report: &mut Report) {
    let mut lines = HashMap::new();
    for MappingEntry {
        text,
        location,
        key,
        ..
    } in &headers.0
    {
        let Some(name) = key else { continue };
        if let Some(line) = lines.insert(name, location.line_beside(location)) {
            let problem =
                ValueProblem::new(format!("{} is here twice, first on {line}", quote(text)));
            report.mistake(
                location,
                problem.hint("upper and lower case are the same in names of header fields"),
            );
        }
    }
}

/// Hop-by-hop fields and the framing (RFC 9110 §7.6.1, RFC 9112 §6).
pub fn is_connection_header(name: &HeaderName) -> bool {
    let known = [
        CONNECTION,
        CONTENT_LENGTH,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
    ];
    known.contains(name) || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

/// Fields of requests that the gateway itself says to upstreams.
const SAID_BY_THE_GATEWAY: [&str; 7] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-client-cert",
    "x-request-id",
    "via",
];

pub const OF_WEBSOCKET: &str = "a client and its upstream agree on a WebSocket by this";

pub const OF_CONNECTION: &str = "the gateway sets it for each connection";

pub fn is_of_websocket(name: &HeaderName) -> bool {
    name.as_str().starts_with("sec-websocket-")
}

/// The hint for a field of requests that is not an operator's to set.
pub fn refused_in_requests(name: &HeaderName) -> Option<&'static str> {
    match name {
        name if *name == HOST => {
            Some("the key \"host\" of the route says which Host the upstream sees")
        }
        name if SAID_BY_THE_GATEWAY.contains(&name.as_str()) => {
            Some("choose another name: the gateway says this itself")
        }
        name if *name == EXPECT => Some("the gateway itself answers it"),
        name if is_of_websocket(name) => Some(OF_WEBSOCKET),
        name if is_connection_header(name) => Some(OF_CONNECTION),
        _ => None,
    }
}

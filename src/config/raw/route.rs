//! `routes`: which requests, and what becomes of them.

use ::http::{HeaderName, HeaderValue, Method, StatusCode};
use serde_json::{Value as Json, json};

use super::DAY;
use super::limit::LimitUse;
use super::number::{Size, Span};
use super::path::{FullPath, Prefix};
use super::word::{Name, Text, Yes};
use crate::config::decode::{At, Decode, Definitions, Many, Scalar, Table, mismatch};
use crate::config::mistake::Report;
use crate::config::node::{Node, Value};
use crate::config::record::record;
use crate::gateway::route::{HostMatch, HostPolicy, PathPattern};

record! {
    /// Which requests, and what becomes of them.
    Route at place {
        /// How the route is called in metrics, logs and keys. Unique.
        required name: At<Name>,
        /// Which requests. Default: all.
        optional r#match: Match,
        /// Forward to this upstream.
        optional upstream: At<Name>,
        /// Answer with something fixed.
        optional respond: Respond,
        /// Answer with a description of the request.
        optional echo: At<Yes>,
        /// Forward without this leading part of the path.
        optional strip_prefix: At<Prefix>,
        /// Forward with another leading part of the path.
        optional replace_prefix: ReplacePrefix,
        /// Forward to this path, whatever the request's.
        optional replace_path: At<FullPath>,
        /// The Host that the upstream sees: the client's (preserve), the endpoint's (endpoint), or this one.
        optional host: At<HostPolicy>,
        /// Limits that count the route's requests: names, or {limit, cost}.
        optional limits: Vec<LimitUse>,
        /// A request body longer than this is refused with 413. Default: no bound.
        optional max_body: At<Size<1, { u64::MAX }>>,
        /// From the request's header section to the response's; then 504. Default: the upstream's timeouts only.
        optional timeout: At<Span<DAY>>,
    }
}

record! {
    /// Which requests a route takes: all conditions hold.
    Match {
        /// A host such as api.example.com, or *.example.com for all below it. Default: any.
        optional host: At<HostMatch>,
        /// /exact, /users/{id} or /prefix/*.
        default("/*") path: At<PathPattern>,
        /// Methods. Default: any.
        optional methods: Many<At<Method>>,
        /// Header fields that must be there: a value, or {present: true} for any.
        optional headers: Table<HeaderName, HeaderCondition>,
    }
}

record! {
    /// A header field with any value.
    Present {
        /// The field must be there.
        required present: At<Yes>,
    }
}

record! {
    /// A fixed answer.
    Respond {
        /// The status code.
        default(200) status: At<StatusCode>,
        /// Header fields.
        optional headers: Table<HeaderName, At<HeaderValue>>,
        /// The body. Default: empty.
        optional body: At<Text>,
    }
}

record! {
    /// Another leading part of the path.
    ReplacePrefix at place {
        /// The part to replace.
        required from: At<Prefix>,
        /// What stands there instead.
        required to: At<Prefix>,
    }
}

/// What a header field must hold. `None`: anything.
pub(in crate::config) struct HeaderCondition(pub Option<HeaderValue>);

impl Decode for HeaderCondition {
    fn decode(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Map(_) => Present::decode(node, report)?.present.good().map(|_| Self(None)),
            Value::Scalar { .. } if !node.value.is_null() => {
                At::decode(node, report).map(|at: At<HeaderValue>| Self(Some(at.value)))
            }
            _ => {
                mismatch(node, "a value", Some("write the value, or {present: true} for any"), report);
                None
            }
        }
    }

    fn schema(definitions: &mut Definitions) -> Json {
        json!({ "anyOf": [HeaderValue::schema(), Present::schema(definitions)] })
    }
}

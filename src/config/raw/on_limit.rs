//! `on_limit`: what happens to a request that a limit denies.

use ::http::{HeaderName, HeaderValue};
use serde_json::{Value as Json, json};

use super::http::ErrorStatus;
use super::number::{Span, Whole};
use super::route::Respond;
use super::word::{Name, Text, unknown};
use crate::config::decode::{At, Decode, Definitions, Slot, Table, mismatch};
use crate::config::mistake::{Report, Trouble};
use crate::config::node::{Node, Place, Value};
use crate::config::record::record;

record! {
    /// What happens to a request over the limit. One of these keys.
    OnLimitOptions at place {
        /// Refuse it, with an answer of your own.
        optional reject: Refusal,
        /// Let it wait for its tokens.
        optional queue: QueueBounds,
        /// Let it pass, to something cheaper.
        optional degrade: DegradeOptions,
    }
}

record! {
    /// A refusal. Retry-After and the RateLimit fields are added.
    Refusal {
        /// The status code, 400 to 599.
        default(429) status: At<ErrorStatus>,
        /// The type of the body.
        default("text/plain; charset=utf-8") content_type: At<HeaderValue>,
        /// Further header fields.
        optional headers: Table<HeaderName, At<HeaderValue>>,
        /// The body. Default: empty, without a type.
        optional body: At<Text>,
    }
}

record! {
    /// A line to wait in: for each key its own, first come, first served.
    QueueBounds {
        /// The longest a request waits: at most 1m. Longer waits are refused at once.
        default("1s") max_wait: At<Span<60_000>>,
        /// Requests that wait for this limit on one node, all keys together.
        default(100) max_waiting: At<Whole<1, 100_000>>,
    }
}

record! {
    /// Something cheaper. One of these keys.
    DegradeOptions at place {
        /// Forward to this upstream.
        optional upstream: At<Name>,
        /// Answer with something fixed.
        optional respond: Respond,
    }
}

/// What happens to a request over the limit.
pub(in crate::config) enum OnLimit {
    Reject(Option<Refusal>),
    Queue(QueueBounds),
    Degrade(Degrade),
    /// Nothing: the limit only counts.
    Shadow(Place),
}

/// What a request over the limit gets instead.
pub(in crate::config) enum Degrade {
    Upstream(At<Name>),
    Respond(Respond),
}

const SIMPLE: [&str; 3] = ["reject", "queue", "shadow"];

impl Decode for OnLimit {
    fn decode(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Scalar { text, .. } if !node.value.is_null() => match text.as_str() {
                "reject" => Some(Self::Reject(None)),
                "queue" => QueueBounds::decode(&empty(node), report).map(Self::Queue),
                "shadow" => Some(Self::Shadow(node.place.clone())),
                "degrade" => {
                    let trouble = Trouble::new("\"degrade\" needs to be told to what");
                    report.mistake(
                        &node.place,
                        trouble.hint("write {degrade: {upstream: …}} or {degrade: {respond: …}}"),
                    );
                    None
                }
                _ => {
                    report.mistake(&node.place, unknown(text, &SIMPLE));
                    None
                }
            },
            Value::Map(_) => OnLimitOptions::decode(node, report)?.only(report),
            _ => {
                let hint = "write reject, shadow, {reject: …}, {queue: …} or {degrade: …}";
                mismatch(node, "what happens to a request over the limit", Some(hint), report);
                None
            }
        }
    }

    fn schema(definitions: &mut Definitions) -> Json {
        json!({ "anyOf": [{ "enum": SIMPLE }, OnLimitOptions::schema(definitions)] })
    }
}

/// A record in which nothing is said.
fn empty(node: &Node) -> Node {
    Node { place: node.place.clone(), value: Value::Map(Vec::new()) }
}

impl OnLimitOptions {
    fn only(self, report: &mut Report) -> Option<OnLimit> {
        let Self { place, reject, queue, degrade } = self;
        let present = [reject.is_present(), queue.is_present(), degrade.is_present()];
        if present.iter().filter(|present| **present).count() != 1 {
            let trouble = Trouble::new("a request over the limit meets exactly one of reject, queue, degrade");
            report.mistake(&place, trouble.hint("write reject, shadow, {reject: …}, {queue: …} or {degrade: …}"));
            return None;
        }
        match (reject, queue, degrade) {
            (Slot::Good(refusal), ..) => Some(OnLimit::Reject(Some(refusal))),
            (_, Slot::Good(bounds), _) => Some(OnLimit::Queue(bounds)),
            (.., Slot::Good(options)) => options.only(report).map(OnLimit::Degrade),
            _ => None,
        }
    }
}

impl DegradeOptions {
    fn only(self, report: &mut Report) -> Option<Degrade> {
        match (self.upstream, self.respond) {
            (Slot::Good(name), Slot::Absent) => Some(Degrade::Upstream(name)),
            (Slot::Absent, Slot::Good(respond)) => Some(Degrade::Respond(respond)),
            (Slot::Bad, _) | (_, Slot::Bad) => None,
            _ => {
                let trouble = Trouble::new("\"degrade\" has exactly one of upstream and respond");
                report
                    .mistake(&self.place, trouble.hint("write {upstream: name} or {respond: {status: 200, body: …}}"));
                None
            }
        }
    }
}

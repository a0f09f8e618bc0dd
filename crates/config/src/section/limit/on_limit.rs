//! `on_limit`: the treatment of a request that a limit denies.

use std::sync::Arc;

use http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Value as Json, json};
use tollgate_limiter::limit::fixed_response::FixedResponse;
use tollgate_limiter::limit::on_limit::{Degrade, OnLimit, Queueing};
use tollgate_limiter::limit::rollout::Rollout;

use crate::report::{Location, Report, ValueProblem, quote};
use crate::scalar::number::{BoundedDuration, WholeNumber};
use crate::scalar::text::{DefinedName, PlainText};
use crate::section::common::named::NamedSection;
use crate::section::common::respond::{RawRespond, answer_headers};
use crate::yaml::collection::Mapping;
use crate::yaml::decode::{
    Decode, Located, Scalar, SchemaDefinitions, Setting, mismatch, only_one,
};
use crate::yaml::node::{YamlNode, YamlValue};
use crate::yaml::record::record;
use crate::yaml::schema::or_variable;
use crate::yaml::words::{Words, words};
use tollgate_proxy::upstream::UpstreamSpec;

record! {
    /// The treatment of a request over the limit. Exactly one of these keys.
    RawOnLimitOptions at location {
        /// Refuse it, with an answer of your own.
        optional reject: RawRefusal,
        /// Let it wait for its tokens.
        optional queue: RawQueue,
        /// Let it pass, to something cheaper.
        optional degrade: RawDegradeOptions,
    }
}

record! {
    /// A refusal. Retry-After and the RateLimit fields are added.
    RawRefusal {
        /// The status code, 400 to 599.
        default(429) status: Located<ErrorStatus>,
        /// The type of the body.
        default("text/plain; charset=utf-8") content_type: Located<HeaderValue>,
        /// Further header fields.
        optional headers: Mapping<HeaderName, Located<HeaderValue>>,
        /// The body. Default: empty, without a type.
        optional body: Located<PlainText>,
    }
}

record! {
    /// A queue for each key, first come, first served.
    RawQueue {
        /// The longest a request waits: at most 1m. Longer waits are refused at once.
        default("1s") max_wait: Located<BoundedDuration<60_000>>,
        /// Requests that wait for this limit on one node, all keys together. When all places are
        /// taken, the longest line gives one to a key with few.
        default(100) max_waiting: Located<WholeNumber<1, 100_000>>,
    }
}

record! {
    /// Something cheaper. Exactly one of these keys.
    RawDegradeOptions at location {
        /// Forward to this upstream.
        optional upstream: Located<DefinedName>,
        /// Answer with something fixed.
        optional respond: RawRespond,
    }
}

/// The treatment of a request over the limit.
pub enum RawOnLimit {
    Reject(Option<RawRefusal>),
    Queue(RawQueue),
    Degrade(RawDegrade),
    /// Nothing: the limit only counts.
    Shadow(Location),
}

/// The cheaper target of a request over the limit.
pub enum RawDegrade {
    Upstream(Located<DefinedName>),
    Respond(RawRespond),
}

/// A treatment that needs no option.
#[derive(Clone, Copy)]
enum OnLimitWord {
    Reject,
    Queue,
    Shadow,
}

words! {
    OnLimitWord: "what happens to a request over the limit" {
        "reject" => Reject,
        "queue" => Queue,
        "shadow" => Shadow,
    }
}

const FORMS: &str = "write reject, shadow, {reject: …}, {queue: …} or {degrade: …}";

impl Decode for RawOnLimit {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        match &node.value {
            YamlValue::Scalar { text, .. } if !node.value.is_null() => {
                match OnLimitWord::read(text) {
                    Ok(OnLimitWord::Reject) => Some(Self::Reject(None)),
                    Ok(OnLimitWord::Queue) => {
                        RawQueue::decode(&empty(node), report).map(Self::Queue)
                    }
                    Ok(OnLimitWord::Shadow) => Some(Self::Shadow(node.location.clone())),
                    Err(_) if text == "degrade" => {
                        let problem = ValueProblem::new("\"degrade\" needs a target");
                        report.mistake(
                            &node.location,
                            problem
                                .hint("write {degrade: {upstream: …}} or {degrade: {respond: …}}"),
                        );
                        None
                    }
                    Err(unknown) => {
                        report.mistake(&node.location, unknown);
                        None
                    }
                }
            }
            YamlValue::Map(_) => RawOnLimitOptions::decode(node, report)?.choose(report),
            _ => {
                mismatch(node, OnLimitWord::WHAT, Some(FORMS), report);
                None
            }
        }
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "anyOf": [{ "enum": OnLimitWord::WORDS }, RawOnLimitOptions::schema(definitions)] })
    }
}

/// A record without keys: all defaults.
fn empty(node: &YamlNode) -> YamlNode {
    YamlNode {
        location: node.location.clone(),
        value: YamlValue::Map(Vec::new()),
    }
}

impl RawRefusal {
    /// The answer. `None`: a mistake was reported.
    pub fn build(&self, report: &mut Report) -> Option<FixedResponse> {
        let headers = self.headers.build(|headers| {
            for entry in &headers.0 {
                if entry.key.as_ref() != Some(&CONTENT_TYPE) {
                    continue;
                }
                let problem = ValueProblem::new("the type of the body has a key of its own");
                report.mistake(
                    &entry.location,
                    problem.hint("write content_type: … beside \"headers\""),
                );
            }
            answer_headers(headers, report)
        });
        let body = self.body.build(|body| Some(body.value.bytes()))?;
        let mut headers = headers?.unwrap_or_default();
        if body.is_some() {
            headers.push((CONTENT_TYPE, self.content_type.value()?));
        }
        Some(FixedResponse {
            status: self.status.value()?.0,
            headers,
            body: body.unwrap_or_default(),
        })
    }
}

/// Keeps browsers from taking the body for another type than the answer says: applications share
/// hosts, and a text must not become another one's script.
fn of_its_type(mut answer: FixedResponse) -> FixedResponse {
    let mut names = answer.headers.iter().map(|(name, _)| name);
    let has_type = names.clone().any(|name| *name == CONTENT_TYPE);
    if has_type && !names.any(|name| *name == X_CONTENT_TYPE_OPTIONS) {
        let nosniff = HeaderValue::from_static("nosniff");
        answer.headers.push((X_CONTENT_TYPE_OPTIONS, nosniff));
    }
    answer
}

impl RawQueue {
    /// The bounds of the queue. `None`: a mistake was reported.
    pub fn build(&self) -> Option<Queueing> {
        Some(Queueing {
            max_wait: self.max_wait.value()?.0,
            max_waiting: self.max_waiting.value()?.count(),
        })
    }
}

impl RawOnLimitOptions {
    fn choose(self, report: &mut Report) -> Option<RawOnLimit> {
        let options = [
            self.reject
                .take(|refusal| Some(RawOnLimit::Reject(Some(refusal)))),
            self.queue.take(|queue| Some(RawOnLimit::Queue(queue))),
            self.degrade
                .take(|options| options.choose(report).map(RawOnLimit::Degrade)),
        ];
        only_one(options).unwrap_or_else(|_| {
            let problem = ValueProblem::new(
                "a request over the limit meets exactly one of reject, queue, degrade",
            );
            report.mistake(&self.location, problem.hint(FORMS));
            None
        })
    }
}

impl RawDegradeOptions {
    fn choose(self, report: &mut Report) -> Option<RawDegrade> {
        let options = [
            self.upstream.take(|name| Some(RawDegrade::Upstream(name))),
            self.respond
                .take(|respond| Some(RawDegrade::Respond(respond))),
        ];
        only_one(options).unwrap_or_else(|_| {
            let problem = ValueProblem::new("\"degrade\" has exactly one of upstream and respond");
            report.mistake(
                &self.location,
                problem.hint("write {upstream: name} or {respond: {status: 200, body: …}}"),
            );
            None
        })
    }
}

/// The status code of an answer that is an error.
#[derive(Clone, Copy)]
pub struct ErrorStatus(pub StatusCode);

impl Scalar for ErrorStatus {
    const WHAT: &'static str = "a status code";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let code = text.parse().ok();
        match code.and_then(|code| StatusCode::from_u16(code).ok()) {
            Some(code) if (400..=599).contains(&code.as_u16()) => Ok(Self(code)),
            Some(_) | None => Err(ValueProblem::new(format!(
                "{} is not a status code of a refusal",
                quote(text)
            ))
            .hint("write 400 to 599")),
        }
    }

    fn schema() -> Json {
        json!({ "anyOf": [
            { "type": "integer", "minimum": 400, "maximum": 599 },
            { "type": "string", "pattern": or_variable("[45][0-9]{2}") },
        ] })
    }
}

/// The consequence of a denial, and the share of keys that it is for. `None`: a mistake was
/// reported.
pub fn on_limit(
    setting: &Setting<RawOnLimit>,
    enforce: &Setting<Located<Rollout>>,
    upstreams: &NamedSection<UpstreamSpec>,
    report: &mut Report,
) -> Option<(OnLimit, Rollout)> {
    let enforced = enforce.value();
    let on_limit = match setting.valid()? {
        RawOnLimit::Reject(None) => OnLimit::Reject,
        RawOnLimit::Reject(Some(refusal)) => {
            OnLimit::Answer(Arc::new(of_its_type(refusal.build(report)?)))
        }
        RawOnLimit::Queue(queue) => OnLimit::Queue(queue.build()?),
        RawOnLimit::Degrade(degrade) => {
            OnLimit::Degrade(self::degrade(degrade, upstreams, report)?)
        }
        RawOnLimit::Shadow(location) => {
            if enforced.is_some_and(|enforced| enforced != Rollout::ALL) {
                let problem = ValueProblem::new(
                    "a limit in shadow enforces nothing, so \"enforce\" has no effect",
                );
                report.mistake(location, problem.hint("remove \"on_limit\" or \"enforce\""));
                return None;
            }
            return Some((OnLimit::Reject, Rollout::NONE));
        }
    };
    Some((on_limit, enforced?))
}

fn degrade(
    raw: &RawDegrade,
    upstreams: &NamedSection<UpstreamSpec>,
    report: &mut Report,
) -> Option<Degrade> {
    match raw {
        RawDegrade::Upstream(name) => Some(Degrade::Upstream(
            upstreams.find(name, report)?.name.clone(),
        )),
        RawDegrade::Respond(respond) => respond
            .build(report)
            .map(|respond| Degrade::Respond(Arc::new(of_its_type(respond)))),
    }
}

//! Rules for limits of policies that limits of the file are free of: no plans in the store, no
//! upstreams but those of their application, and answers that do no more in a browser than say that
//! there were too many requests.
//!
//! Applications share hosts and the store with others, and many people edit them.

use std::collections::HashSet;

use http::{HeaderName, HeaderValue};

use super::CheckedApplication;
use crate::report::{Report, ValueProblem, quote};
use crate::scalar::media_type::media_type;
use crate::scalar::text::DefinedName;
use crate::section::common::respond::RawRespond;
use crate::section::limit::definition::RawLimit;
use crate::section::limit::on_limit::{RawDegrade, RawOnLimit};
use crate::section::policies::strategy_limit::RawStrategyLimit;
use crate::yaml::collection::Mapping;
use crate::yaml::decode::{Located, Setting};

/// Fields of answers, besides those that begin with `x-`.
const SAFE_FIELDS: [&str; 3] = ["content-language", "content-type", "retry-after"];

/// Beginnings of fields that tell browsers, robots or proxies before the gateway what to do.
const UNSAFE_BEGINNINGS: [&str; 19] = [
    "x-accel-",
    "x-archive-files",
    "x-content-type-options",
    "x-dns-prefetch-control",
    "x-envoy-",
    "x-forwarded-",
    "x-frame-options",
    "x-lighttpd-",
    "x-litespeed-",
    "x-middleware-",
    "x-permitted-cross-domain-policies",
    "x-ratelimit-",
    "x-reproxy-",
    "x-request-id",
    "x-robots-tag",
    "x-sendfile",
    "x-sourcemap",
    "x-ua-compatible",
    "x-xss-protection",
];

/// Types of bodies that no browser runs, besides those that end in `+json`.
const SAFE_TYPES: [&str; 4] = [
    "text/plain",
    "text/csv",
    "application/json",
    "application/grpc",
];

/// The rules for the limits of one application. What the file's defaults give a limit is the
/// file's own.
pub struct LimitRules<'a> {
    application: &'a str,
    /// The upstreams that its limits may send requests to.
    upstreams: HashSet<&'a str>,
}

/// The header fields of an answer.
type RawFields = Setting<Mapping<HeaderName, Located<HeaderValue>>>;

impl<'a> LimitRules<'a> {
    pub fn new(application: &'a CheckedApplication) -> Self {
        let raw = application.raw.iter();
        let listed = raw.flat_map(|raw| raw.upstreams.items());
        Self {
            application: &application.name,
            upstreams: listed.map(|at| &*at.value.0).collect(),
        }
    }

    /// Reports what a limit as it is `written` has that is the file's alone.
    pub fn check(&self, written: &RawStrategyLimit, limit: &RawLimit, report: &mut Report) {
        if written.written("plans").is_some()
            && let Some(plans) = limit.plans.valid()
            && let Some(hash) = plans.redis.valid()
        {
            let problem = ValueProblem::new(
                "a limit of policies has no plans in the store: it could read any hash there",
            );
            let hint = "write them under \"plans\" of the application, or the limit into the file";
            report.mistake(&hash.location, problem.hint(hint));
        }
        if written.written("on_limit").is_some()
            && let Some(on_limit) = limit.on_limit.valid()
        {
            self.check_answers(on_limit, report);
        }
    }

    fn check_answers(&self, on_limit: &RawOnLimit, report: &mut Report) {
        match on_limit {
            RawOnLimit::Reject(Some(refusal)) => {
                check_fields(&refusal.headers, report);
                if let Some(written) = refusal.content_type.valid() {
                    check_type(written, report);
                }
            }
            RawOnLimit::Degrade(RawDegrade::Respond(answer)) => {
                check_fields(&answer.headers, report);
                check_has_type(answer, report);
            }
            RawOnLimit::Degrade(RawDegrade::Upstream(name)) => self.check_upstream(name, report),
            RawOnLimit::Reject(None) | RawOnLimit::Queue(_) | RawOnLimit::Shadow(_) => {}
        }
    }

    /// Reports an upstream that is not among those of the application: by it, whoever edits one
    /// application would lead its traffic past the logins and limits of another's routes.
    fn check_upstream(&self, at: &Located<DefinedName>, report: &mut Report) {
        let text = &*at.value.0;
        if self.upstreams.contains(text) {
            return;
        }
        let name = quote(text);
        let application = quote(self.application);
        let problem = ValueProblem::new(format!(
            "upstream {name} is not among those of application {application}"
        ));
        let hint = format!(
            "write upstreams: [{text}] in the application; in a database only an admin may"
        );
        report.mistake(&at.location, problem.hint(hint));
    }
}

/// Reports fields that act on other answers of the host, or send browsers elsewhere.
fn check_fields(fields: &RawFields, report: &mut Report) {
    for field in fields.members() {
        let name = field.text.to_ascii_lowercase();
        if name == "content-type" {
            if let Some(value) = &field.value {
                check_type(value, report);
            }
        } else if !is_safe_field(&name) {
            let problem = ValueProblem::new(format!(
                "a limit of policies does not answer with {}",
                quote(&field.text)
            ));
            let hint = "take it out: content-type, content-language, retry-after and most that begin with x- may stay";
            report.mistake(&field.location, problem.hint(hint));
        }
    }
}

/// Whether a field of this name in small letters acts on nothing but its own answer.
fn is_safe_field(name: &str) -> bool {
    if name.starts_with("x-") {
        let mut beginnings = UNSAFE_BEGINNINGS.iter();
        !beginnings.any(|beginning| name.starts_with(beginning))
    } else {
        SAFE_FIELDS.contains(&name)
    }
}

/// Reports a type of bodies that browsers run. Of several with commas between them they take the
/// last, and one that they cannot read they guess.
fn check_type(written: &Located<HeaderValue>, report: &mut Report) {
    let text = String::from_utf8_lossy(written.value.as_bytes());
    let is_safe = match media_type(&text) {
        Some(read) => SAFE_TYPES.contains(&read.essence_str()) || read.suffix() == Some(mime::JSON),
        None => false,
    };
    if !is_safe || text.contains(',') {
        let problem = ValueProblem::new(format!(
            "a limit of policies does not answer with {}",
            quote(&text)
        ));
        let hint = "write text/plain, text/csv, application/json, application/grpc, or a type that ends in +json";
        report.mistake(&written.location, problem.hint(hint));
    }
}

/// Reports a body without a type, which browsers would guess from its text.
fn check_has_type(answer: &RawRespond, report: &mut Report) {
    let mut fields = answer.headers.members().iter();
    if let Some(body) = answer.body.valid()
        && !fields.any(|field| field.text.eq_ignore_ascii_case("content-type"))
    {
        let problem = ValueProblem::new(
            "the body has no type: browsers would guess one, such as that of a page",
        );
        report.mistake(
            &body.location,
            problem.hint("write headers: {content-type: text/plain}, or another type"),
        );
    }
}

//! Rules for limits of policies that limits of the file are free of: no plans in the store, and
//! answers that do no more in a browser than say that there were too many requests.
//!
//! Applications share hosts and the store with others, and many people edit them.

use crate::overlay::part;
use crate::report::{Report, ValueProblem, quote};
use crate::scalar::media_type::media_type;
use crate::section::policies::document::RawApplication;
use crate::yaml::node::{NodeEntry, YamlNode, YamlValue};

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

/// Reports what the limits of an application's strategies, and their candidates, have that is the
/// file's alone.
pub fn check(raw: &RawApplication, report: &mut Report) {
    for entry in raw.strategies.members() {
        let Some(strategy) = &entry.value else {
            continue;
        };
        if let Some(limit) = strategy.limit.valid() {
            check_limit(&limit.0, report);
        }
        if let Some(candidate) = strategy.candidate.valid()
            && let Some(limit) = candidate.limit.valid()
        {
            check_limit(&limit.0, report);
        }
    }
}

fn check_limit(limit: &YamlNode, report: &mut Report) {
    check_plans(limit, report);
    check_answers(limit, report);
}

/// Reports plans in the store: by their name, an editor would read any hash there is.
fn check_plans(limit: &YamlNode, report: &mut Report) {
    if let Some(plans) = member(limit, "plans")
        && let Some(redis) = member(plans, "redis")
    {
        let problem = ValueProblem::new(
            "a limit of policies has no plans in the store: it could read any hash there",
        );
        report.mistake(
            &redis.location,
            problem
                .hint("write them under \"plans\" of the application, or the limit into the file"),
        );
    }
}

fn check_answers(limit: &YamlNode, report: &mut Report) {
    let Some(on_limit) = member(limit, "on_limit") else {
        return;
    };
    if let Some(refusal) = member(on_limit, "reject") {
        check_fields(refusal, report);
        if let Some(written) = member(refusal, "content_type") {
            check_type(written, report);
        }
    }
    if let Some(degrade) = member(on_limit, "degrade")
        && let Some(answer) = member(degrade, "respond")
    {
        check_fields(answer, report);
        check_has_type(answer, report);
    }
}

/// Reports fields that act on other answers of the host, or send browsers elsewhere.
fn check_fields(answer: &YamlNode, report: &mut Report) {
    for NodeEntry {
        key,
        key_location,
        value,
    } in header_fields(answer)
    {
        let name = key.to_ascii_lowercase();
        if name == "content-type" {
            check_type(value, report);
        } else if !is_safe_field(&name) {
            let problem = ValueProblem::new(format!(
                "a limit of policies does not answer with {}",
                quote(key)
            ));
            let hint = "take it out: content-type, content-language, retry-after and most that begin with x- may stay";
            report.mistake(key_location, problem.hint(hint));
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
fn check_type(written: &YamlNode, report: &mut Report) {
    let YamlValue::Scalar { text, .. } = &written.value else {
        return;
    };
    let is_safe = match media_type(text) {
        Some(read) => SAFE_TYPES.contains(&read.essence_str()) || read.suffix() == Some(mime::JSON),
        None => false,
    };
    if !is_safe || text.contains(',') {
        let problem = ValueProblem::new(format!(
            "a limit of policies does not answer with {}",
            quote(text)
        ));
        let hint = "write text/plain, text/csv, application/json, application/grpc, or a type that ends in +json";
        report.mistake(&written.location, problem.hint(hint));
    }
}

/// Reports a body without a type, which browsers would guess from its text.
fn check_has_type(answer: &YamlNode, report: &mut Report) {
    let mut fields = header_fields(answer).iter();
    if let Some(body) = member(answer, "body")
        && !fields.any(|field| field.key.eq_ignore_ascii_case("content-type"))
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

/// The value of a key of a mapping, unless it is nothing.
fn member<'a>(node: &'a YamlNode, key: &str) -> Option<&'a YamlNode> {
    let entry = part::entry(entries(node), key)?;
    if entry.value.value.is_null() {
        None
    } else {
        Some(&entry.value)
    }
}

fn header_fields(answer: &YamlNode) -> &[NodeEntry] {
    match member(answer, "headers") {
        Some(headers) => entries(headers),
        None => &[],
    }
}

fn entries(node: &YamlNode) -> &[NodeEntry] {
    match &node.value {
        YamlValue::Map(entries) => entries,
        _ => &[],
    }
}

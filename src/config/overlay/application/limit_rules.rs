//! Rules for limits of policies that limits of the file are free of: no plans in the store, and
//! answers that do no more in a browser than say that there were too many requests.
//!
//! Applications share hosts and the store with others, and many people edit them.

use crate::config::file::policies::{RawApplication, RawStrategy};
use crate::config::overlay::part;
use crate::config::report::{Report, ValueProblem, quote};
use crate::config::yaml::node::{NodeEntry, YamlNode, YamlValue};

/// Fields of answers, besides those that begin with `x-`.
const SAFE_FIELDS: [&str; 3] = ["content-language", "content-type", "retry-after"];

/// Beginnings of fields that tell browsers, robots or proxies before the gateway what to do.
const UNSAFE_BEGINNINGS: [&str; 18] = [
    "x-accel-",
    "x-archive-files",
    "x-content-type-options",
    "x-dns-prefetch-control",
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
    let strategies = raw
        .strategies
        .members()
        .iter()
        .filter_map(|entry| entry.value.as_ref());
    for limit in strategies.flat_map(limits) {
        check_plans(limit, report);
        check_answers(limit, report);
    }
}

/// The limit of a strategy and that of its candidate.
fn limits(strategy: &RawStrategy) -> impl Iterator<Item = &YamlNode> {
    let tried = strategy
        .candidate
        .valid()
        .and_then(|candidate| candidate.limit.valid());
    strategy
        .limit
        .valid()
        .into_iter()
        .chain(tried)
        .map(|limit| &limit.0)
}

/// Reports plans in the store: by their name, an editor would read any hash there is.
fn check_plans(limit: &YamlNode, report: &mut Report) {
    if let Some(redis) = member(limit, "plans").and_then(|plans| member(plans, "redis")) {
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
        member(refusal, "content_type")
            .into_iter()
            .for_each(|written| check_type(written, report));
    }
    if let Some(answer) = member(on_limit, "degrade").and_then(|degrade| member(degrade, "respond"))
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
    } in member(answer, "headers").into_iter().flat_map(entries)
    {
        let name = key.to_ascii_lowercase();
        let is_own = name.starts_with("x-")
            && !UNSAFE_BEGINNINGS
                .iter()
                .any(|unsafe_one| name.starts_with(unsafe_one));
        if name == "content-type" {
            check_type(value, report);
        } else if !is_own && !SAFE_FIELDS.contains(&&*name) {
            let problem = ValueProblem::new(format!(
                "a limit of policies does not answer with {}",
                quote(key)
            ));
            let hint = "take it out: content-type, content-language, retry-after and most that begin with x- may stay";
            report.mistake(key_location, problem.hint(hint));
        }
    }
}

/// Reports a type of bodies that browsers run. Of several with commas between them they take the
/// last.
fn check_type(written: &YamlNode, report: &mut Report) {
    let YamlValue::Scalar { text, .. } = &written.value else {
        return;
    };
    let essence = text
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let is_safe = SAFE_TYPES.contains(&&*essence) || essence.ends_with("+json");
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
    let has_type = || {
        let mut fields = member(answer, "headers").into_iter().flat_map(entries);
        fields.any(|field| field.key.eq_ignore_ascii_case("content-type"))
    };
    if let Some(body) = member(answer, "body")
        && !has_type()
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
    let found = part::entry(entries(node), key).map(|entry| &entry.value);
    found.filter(|value| !value.value.is_null())
}

fn entries(node: &YamlNode) -> &[NodeEntry] {
    match &node.value {
        YamlValue::Map(entries) => entries,
        _ => &[],
    }
}

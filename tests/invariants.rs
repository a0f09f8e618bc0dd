//! What ARCHITECTURE.md says of the whole, read off the sources.
//!
//! Each rule is a function from sources to findings, and has a test that shows it a misuse: a rule that finds nothing is
//! one that holds, and not one that looks past it. When a rule is in the way, change ARCHITECTURE.md with it and say why.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

#[path = "invariants/rules.rs"]
mod rules;
#[path = "invariants/source.rs"]
mod source;

use rules::*;
use source::{Source, sources};

#[track_caller]
fn assert_none(findings: &[String]) {
    assert!(findings.is_empty(), "\n  {}\n", findings.join("\n  "));
}

/// The rule finds something in this text, were it at this path.
#[track_caller]
fn assert_found(rule: impl Fn(&[Source]) -> Vec<String>, path: &str, text: &str) {
    let findings = rule(&[Source::new(path, text)]);
    assert!(findings.iter().any(|finding| finding.starts_with(path)), "{path} passes with: {text}\n{findings:?}");
}

#[track_caller]
fn assert_passes(rule: impl Fn(&[Source]) -> Vec<String>, path: &str, text: &str) {
    assert_none(&rule(&[Source::new(path, text)]));
}

#[test]
fn only_its_own_place_names_a_crate() {
    assert_none(&crates_at_home(&sources()));
}

#[test]
fn a_crate_away_from_home_is_found() {
    assert_found(crates_at_home, "src/admin/mod.rs", "use fred::clients::Client;");
    assert_found(crates_at_home, "src/store/memory.rs", "fn f(c: &fred::prelude::Client) {}");
    assert_found(crates_at_home, "src/app.rs", "use saphyr_parser::{Event, Parser};");
    assert_found(crates_at_home, "src/gateway/stack.rs", "use hyper::{body::Incoming, client::conn::http1};");
    assert_found(crates_at_home, "src/gateway/stack.rs", "use hyper_util::client::legacy::Client;");
    assert_found(crates_at_home, "src/torture/node.rs", "use hyper::client::conn::http1::handshake;");
    assert_passes(crates_at_home, "src/torture/target.rs", "use hyper::client::conn::http1::handshake;");
    assert_passes(crates_at_home, "src/admin/mod.rs", "// fred\nconst NAME: &str = \"fred\"; fn alfred() {}");
    assert_passes(crates_at_home, "src/server/worker.rs", "use hyper::{body::Incoming, server::conn::http1};");
}

#[test]
fn one_file_of_the_data_path_knows_the_http_client_and_two_beside_it() {
    let sources = sources();
    let mut known = HTTP_CLIENTS.map(|(file, _)| file);
    known.sort_unstable();
    assert_eq!(files_naming_the_client(&sources), known, "others ask src/proxy/ to send");
}

#[test]
fn each_module_knows_only_what_is_below_it() {
    assert_none(&dependencies(&sources()));
}

#[test]
fn a_step_upwards_is_found() {
    assert_found(dependencies, "src/rate_limit/layer.rs", "use crate::route::Route;");
    assert_found(dependencies, "src/rate_limit/limiter.rs", "use crate::store::{Store, redis::RedisStore};");
    assert_found(dependencies, "src/proxy/forward.rs", "fn f() { crate::app::stop() }");
    assert_found(dependencies, "src/upstream/health.rs", "use super::super::admin;");
    assert_found(dependencies, "src/clock.rs", "use crate::body::Body;");
    assert_found(dependencies, "src/rate_limit/bucket.rs", "use super::algorithm::Rate;");
    assert_found(dependencies, "src/route/mod.rs", "use crate::config::Config;");
    assert_found(dependencies, "src/torture/judge.rs", "use crate::rate_limit::bucket;");
    assert_found(dependencies, "src/rate_limit/limiter.rs", "use crate::torture::Limit;");
    assert_found(dependencies, "src/somewhere/new.rs", "use crate::clock;");
    assert_passes(dependencies, "src/rate_limit/layer.rs", "use super::{key::Key, policy::*}; use crate::clock;");
    assert_passes(dependencies, "src/clock.rs", "#[cfg(test)]\nmod tests { use super::*; use crate::body::Body; }");
}

#[test]
fn only_the_outer_modules_know_the_configuration() {
    assert_none(&config_stays_outside(&sources()));
    assert_found(config_stays_outside, "src/server/drain.rs", "use crate::{clock, config::Config};");
}

#[test]
fn only_clock_reads_time() {
    assert_none(&one_clock(&sources()));
    assert_found(one_clock, "src/proxy/retry.rs", "fn f() { let begun = std::time::Instant::now(); }");
    assert_found(one_clock, "src/proxy/retry.rs", "fn f(begun: Instant) { begun.elapsed(); }");
    assert_found(one_clock, "src/observe/logging.rs", "use std::time::SystemTime as T; fn f() { SystemTime::now(); }");
    assert_passes(one_clock, "src/proxy/retry.rs", "async fn f() { tokio::time::sleep(WAIT).await }");
    assert_passes(one_clock, "src/clock.rs", "fn now() -> Instant { Instant::now() }");
}

#[test]
fn the_bucket_does_arithmetic_and_nothing_else() {
    assert_none(&bucket_is_arithmetic(&sources()));
    for misuse in ["fn f() -> Vec<u8> { panic() }", "async fn f() {}", "fn f() -> String { format!() }", "use std::io;"]
    {
        assert_found(bucket_is_arithmetic, "src/rate_limit/bucket.rs", misuse);
    }
}

#[test]
fn metric_handles_are_resolved_by_constructors() {
    assert_none(&handles_are_resolved_once(&sources()));
    let per_event = "impl M { fn hit(&self) { counter!(\"tollgate_x_total\").increment(1); } }";
    assert_found(handles_are_resolved_once, "src/observe/metrics.rs", per_event);
    let free = "fn count(route: &str) { metrics::counter!(\"tollgate_x_total\", \"route\" => route.to_owned()); }";
    assert_found(handles_are_resolved_once, "src/server/worker.rs", free);
    let constructor = "impl M { fn new(route: &str) -> Self { Self(counter!(\"tollgate_x_total\")) } }";
    assert_passes(handles_are_resolved_once, "src/observe/metrics.rs", constructor);
}

#[test]
fn a_key_never_becomes_a_metric_label() {
    assert_none(&labels_are_few(&sources()));
    let by_key = "fn new(k: &Key) -> Self { Self(counter!(\"tollgate_x_total\", \"key\" => k.to_string())) }";
    assert_found(labels_are_few, "src/rate_limit/limiter.rs", by_key);
    let hidden = "fn new(key: Key) -> Self { Self(gauge!(\"tollgate_x\", \"limit\" => key.show())) }";
    assert_found(labels_are_few, "src/rate_limit/limiter.rs", hidden);
    let collected = "fn new(labels: Vec<Label>) -> Self { Self(gauge!(\"tollgate_x\", labels)) }";
    assert_found(labels_are_few, "src/rate_limit/limiter.rs", collected);
    let by_limit =
        "fn new(l: &Limit) -> Self { Self(counter!(\"tollgate_x_total\", \"limit\" => l.name.to_string())) }";
    assert_passes(labels_are_few, "src/rate_limit/limiter.rs", by_limit);
}

#[test]
fn only_the_table_of_failures_writes_a_status_code() {
    assert_none(&one_table_of_status_codes(&sources()));
    let reply = "fn f() -> Response<Body> { respond(StatusCode::BAD_GATEWAY) }";
    assert_found(one_table_of_status_codes, "src/proxy/forward.rs", reply);
    assert_found(one_table_of_status_codes, "src/proxy/forward.rs", "use http::StatusCode as S;");
    assert_passes(one_table_of_status_codes, "src/error.rs", reply);
    assert_passes(one_table_of_status_codes, "src/proxy/forward.rs", "fn f(status: StatusCode) { status.as_u16(); }");
}

#[test]
fn the_compiler_and_clippy_check_the_rest() {
    let manifest = std::fs::read_to_string("Cargo.toml").expect("Cargo.toml is there");
    assert_none(&missing_lints(&manifest));
    assert_eq!(missing_lints("[lints.rust]\n[lints.clippy]\nawait_holding_lock = \"allow\"\n").len(), LINTS.len());
    let make = std::fs::read_to_string("Makefile").expect("Makefile is there");
    assert!(make.contains("--all-targets -- -D warnings"), "`make lint` must turn clippy's warnings into errors");
}

#[test]
fn lints_are_expected_with_a_reason_and_never_allowed() {
    assert_none(&no_lint_is_allowed(&sources()));
    assert_found(no_lint_is_allowed, "src/app.rs", "#[allow(clippy::await_holding_lock)] async fn f() {}");
    assert_found(no_lint_is_allowed, "src/app.rs", "#[expect(clippy::await_holding_lock, reason = \"\")] fn f() {}");
    assert_passes(no_lint_is_allowed, "src/app.rs", "#[expect(clippy::disallowed_methods, reason = \"\")] fn f() {}");
}

#[test]
fn code_is_told_from_comments_literals_and_tests() {
    let text =
        "let a = '\"'; /* fred */ let b = r#\"fred\"#; let c = b\"fred\\\"\"; fn f<'a>(x: &'a str) {} fred::x();";
    let source = Source::new("src/a.rs", text);
    assert_eq!(source.find("fred"), [text.rfind("fred").expect("it is there")]);
    assert_eq!(source.code.len(), text.len());
}

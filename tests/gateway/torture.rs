//! `tollgate torture`: what it says of gateways that keep their promise, of one that does not, and
//! of what it cannot judge.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::thread;

use tollgate_testing::redis::RedisServer;
use tollgate_testing::turns;

use crate::process::Gateway;

fn tollgate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .arg("torture")
        .args(arguments)
        .output()
        .unwrap()
}

fn judged(output: &Output) -> Vec<serde_json::Value> {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn gateways_killed_while_they_are_driven_keep_the_promise() {
    let _turn = turns::among_few();
    survives_kill9("exact");
}

#[test]
fn gateways_killed_with_tokens_taken_ahead_keep_the_promise() {
    let _turn = turns::among_few();
    survives_kill9("leased");
}

fn survives_kill9(consistency: &str) {
    let server = RedisServer::start();
    let redis = format!("redis://127.0.0.1:{}", server.port());
    let fleet = [
        "--redis",
        &redis,
        "--nodes",
        "2",
        "--workers",
        "1",
        "--clients",
        "8",
        // A busy machine keeps it: a late call would be an outage, with terms of its own.
        "--store-timeout",
        "5s",
    ];
    let limit = [
        "--consistency",
        consistency,
        "--rate",
        "200/s",
        "--burst",
        "60",
    ];
    let run = [
        "--scenario",
        "crash",
        "--spawn",
        "--duration",
        "3500ms",
        "--json",
    ];
    let output = tollgate(&[fleet.as_slice(), &limit, &run].concat());
    let outcomes = judged(&output);
    assert_eq!(output.status.code(), Some(0), "{outcomes:#?}");
    // First the row with crashes again and again, then that with a lone one: in both, nodes of one
    // process come before gateways.
    assert_eq!(outcomes.len(), 4);
    assert!(
        outcomes.iter().all(|outcome| outcome["over"] == 0),
        "{outcomes:#?}"
    );
    assert!(
        outcomes[1]["answers"]["200"].as_u64() > Some(0),
        "{outcomes:#?}"
    );
    assert!(
        outcomes[1]["answers"]["429"].as_u64() > Some(0),
        "{outcomes:#?}"
    );
}

/// A server that lets everybody through. Ends with the test's process.
fn generous() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        listener
            .incoming()
            .flatten()
            .for_each(|stream| drop(thread::spawn(move || answer(stream))))
    });
    address
}

/// Each piece that arrives is a request: the clients send one at a time.
fn answer(mut stream: TcpStream) {
    let mut piece = [0; 4_096];
    while stream.read(&mut piece).is_ok_and(|count| count > 0) {
        if stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")
            .is_err()
        {
            return;
        }
    }
}

#[test]
fn a_gateway_without_a_limit_breaks_its_promise() {
    let target = format!("http://{}/", generous());
    let output = tollgate(&[
        "--target",
        &target,
        "--rate",
        "100/s",
        "--burst",
        "10",
        "--duration",
        "500ms",
        "--json",
    ]);
    let outcomes = judged(&output);
    assert_eq!(output.status.code(), Some(1), "{outcomes:#?}");
    assert!(outcomes[0]["over"].as_u64() > Some(0), "{outcomes:#?}");
    assert_eq!(outcomes[0]["answers"]["200"], outcomes[0]["requests"]);
}

#[test]
fn a_key_per_header_is_a_limit_per_key() {
    let target = format!("http://{}/", generous());
    let driven = [
        "--target",
        &target,
        "--concurrency",
        "4",
        "--duration",
        "300ms",
        "--json",
    ];
    // Few enough for any one key, and far too many for one key that all requests share.
    let limit = ["--rate", "1/s", "--burst", "20"];
    let keys = ["--key-header", "x-key", "--keys", "100000"];
    let each = tollgate(&[driven.as_slice(), &limit, &keys].concat());
    assert_eq!(each.status.code(), Some(0), "{:#?}", judged(&each));
    let shared = tollgate(&[driven.as_slice(), &limit].concat());
    assert_eq!(shared.status.code(), Some(1), "{:#?}", judged(&shared));
}

#[test]
fn a_second_run_is_judged_like_the_first() {
    let gateway = Gateway::start(
        "workers: 1
listeners: [{address: '127.0.0.1:0'}]
admin: {address: '127.0.0.1:0'}
limits:
  one: {key: {constant: all}, rate: 1/h, burst: 20}
  each: {key: {header: x-key}, rate: 1/h, burst: 20}
routes:
  - {name: one, match: {path: /one}, limits: [one], echo: true}
  - {name: each, match: {path: /each}, limits: [each], echo: true}
",
    );
    let limit = ["--rate", "1/h", "--burst", "20"];
    let run = ["--concurrency", "4", "--duration", "300ms", "--json"];
    for (path, keys) in [
        ("/one", [].as_slice()),
        ("/each", &["--key-header", "x-key", "--keys", "2"]),
    ] {
        let target = gateway.url(path);
        let driven = ["--target", &target];
        for _ in 0..2 {
            let output = tollgate(&[driven.as_slice(), &limit, &run, keys].concat());
            assert_eq!(output.status.code(), Some(0), "{:#?}", judged(&output));
        }
    }
}

#[test]
fn a_run_that_cannot_be_judged_exits_with_2() {
    for (arguments, said) in [
        (["--scenario", "flap"].as_slice(), "they need --redis"),
        (&["--cost", "300"], "must not cost more than the burst"),
        (&["--rate", "fast"], "a rate is tokens per period"),
        (
            &["--redis", "redis://127.0.0.1:1", "--duration", "1s"],
            "no Redis decides",
        ),
        (
            &["--target", "https://127.0.0.1/"],
            "a target is http://host:port/path",
        ),
        (&["--target", "http://127.0.0.1:1/"], "no target answers"),
        (&["--spawn"], "--redis"),
        (&["--consistency", "loose"], "exact, leased"),
        (
            &["--redis", "rediss://127.0.0.1:1", "--scenario", "flap"],
            "name one server without TLS",
        ),
        (
            &[
                "--redis",
                "redis-cluster://127.0.0.1:1",
                "--scenario",
                "all",
            ],
            "left out, for they need redis://host:port: skew, reorder, flap",
        ),
    ] {
        let output = tollgate(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            (output.status.code(), stderr.contains(said)),
            (Some(2), true),
            "{arguments:?}: {stderr}"
        );
    }
}

#[test]
fn the_table_has_a_row_for_each_scenario() {
    let output = tollgate(&[
        "--scenario",
        "steady,hot-key",
        "--duration",
        "100ms",
        "--workers",
        "1",
    ]);
    let table = String::from_utf8(output.stdout).unwrap();
    let first: Vec<&str> = table
        .lines()
        .skip(2)
        .take(3)
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(first, ["scenario", "steady", "hot-key"], "{table}");
    assert!(!table.contains('\x1b'));
}

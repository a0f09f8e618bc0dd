//! Costs that only the response tells: reserved before, settled after.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::process::{Gateway, curl, eventually, status};
use tollgate_testing::redis::RedisServer;

/// Tokens come back so slowly that none does while a test runs.
const SLOW: &str = "key: {constant: all}, rate: 1000/d";

/// An upstream whose answers are in the requests: the query, percent-decoded, is what is sent,
/// piece by piece (`|`), each once the test says so, if it is to say anything (`@` before the
/// first).
struct Upstream {
    address: SocketAddr,
    heads: Receiver<String>,
}

impl Upstream {
    fn start() -> (Self, std::sync::mpsc::Sender<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, heads) = channel();
        let (go, gone) = channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                answer(stream.unwrap(), &sender, &gone);
            }
        });
        (Self { address, heads }, go)
    }
}

fn answer(mut stream: TcpStream, heads: &std::sync::mpsc::Sender<String>, go: &Receiver<()>) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let query = head
        .split(' ')
        .nth(1)
        .and_then(|target| target.split_once('?'))
        .map_or("", |(_, query)| query);
    let script = decode(query);
    let _ = heads.send(head);
    let (waits, script) = script
        .strip_prefix('@')
        .map_or((false, &*script), |script| (true, script));
    for piece in script.split('|') {
        if stream.write_all(piece.as_bytes()).is_err() {
            return;
        }
        if waits && go.recv().is_err() {
            return;
        }
    }
}

fn decode(query: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = query.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let hex: String = rest.by_ref().take(2).map(char::from).collect();
                bytes.push(u8::from_str_radix(&hex, 16).unwrap());
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn encode(script: &str) -> String {
    script.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

fn routes(store: Option<u16>, limits: &str, upstream: SocketAddr) -> String {
    let store = store.map_or_else(String::new, |port| {
        format!("store: {{redis: 'redis://127.0.0.1:{port}', timeout: 500ms}}\n")
    });
    format!(
        "workers: 2
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
{store}limits: {{{limits}}}
upstreams: {{llm: {{endpoints: ['http://{upstream}']}}, gone: {{endpoints: ['http://127.0.0.1:1']}}}}
routes:
  - {{name: gone, match: {{path: /gone}}, upstream: gone, limits: [l]}}
  - {{name: llm, match: {{path: '/*'}}, upstream: llm, limits: [l]}}
"
    )
}

fn limit(cost: &str) -> String {
    format!("l: {{{SLOW}, cost: {{{cost}}}}}")
}

/// The tokens that are left, by the admin port.
fn left(gateway: &Gateway) -> u64 {
    let view = gateway.bucket("/buckets/l");
    view["remaining"]
        .as_u64()
        .unwrap_or_else(|| panic!("{view:#}"))
}

fn until_left(gateway: &Gateway, tokens: u64) {
    eventually(&format!("{tokens} are left"), || {
        (left(gateway) == tokens).then_some(())
    });
}

fn settlements(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric(&format!(
        "tollgate_ratelimit_settlements_total{{limit=\"l\",outcome=\"{outcome}\"}}"
    ))
}

fn ask(gateway: &Gateway, script: &str) -> String {
    curl(&[&gateway.url(&format!("/?{}", encode(script)))])
}

fn close(head: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\n{head}Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Sends a request and leaves its answer to the caller.
fn open(gateway: &Gateway, script: &str) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.listeners[0]).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    write!(
        stream,
        "GET /?{} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        encode(script)
    )
    .unwrap();
    stream
}

fn read_until(stream: &mut TcpStream, end: &str) {
    let (mut read, mut byte) = (Vec::new(), [0]);
    while !read.ends_with(end.as_bytes()) {
        assert_eq!(
            stream.read(&mut byte).unwrap(),
            1,
            "{}",
            String::from_utf8_lossy(&read)
        );
        read.push(byte[0]);
    }
}

#[test]
fn a_header_of_the_response_settles_the_cost_up_and_down() {
    let redis = RedisServer::start();
    let (upstream, _go) = Upstream::start();
    for store in [None, Some(redis.port())] {
        let cost = "response_header: x-tokens-used, reserve: 100, max: 700";
        let gateway = Gateway::start(&routes(store, &limit(cost), upstream.address));
        assert_eq!(ask(&gateway, &close("X-Tokens-Used: 30\r\n", "ok")), "ok");
        until_left(&gateway, 970);
        ask(&gateway, &close("X-Tokens-Used: 170\r\n", "ok"));
        until_left(&gateway, 800);
        ask(&gateway, &close("X-Tokens-Used: 100\r\n", "ok"));
        until_left(&gateway, 700);
        ask(&gateway, &close("", "ok"));
        ask(&gateway, &close("X-Tokens-Used: some\r\n", "ok"));
        until_left(&gateway, 500);
        ask(&gateway, &close("X-Tokens-Used: 5000\r\n", "ok"));
        until_left(&gateway, 0);
        assert_eq!(
            status(&[&gateway.url("/")]),
            429,
            "two hundred more than there were are owed"
        );
        for outcome in ["less", "even", "absent", "unreadable"] {
            assert_eq!(settlements(&gateway, outcome), 1.0, "{outcome}");
        }
        assert_eq!(settlements(&gateway, "more"), 2.0);
        assert_eq!(
            gateway.log().matches("cannot be read").count(),
            1,
            "{}",
            gateway.log()
        );
        redis.command(&["FLUSHALL"]);
    }
}

#[test]
fn a_field_of_the_body_settles_the_cost_and_the_body_passes_as_it_is() {
    let redis = RedisServer::start();
    let (upstream, _go) = Upstream::start();
    let cost = "response_json: usage.total_tokens, reserve: 100, max: 700";
    let gateway = Gateway::start(&routes(Some(redis.port()), &limit(cost), upstream.address));
    let body =
        r#"{"choices":[{"text":"\"usage\":{\"total_tokens\":9}"}],"usage":{"total_tokens":40}}"#;
    let target = gateway.url(&format!(
        "/?{}",
        encode(&close("Content-Type: application/json\r\n", body))
    ));
    assert_eq!(curl(&["-H", "accept-encoding: gzip, br", &target]), body);
    until_left(&gateway, 960);
    let head = upstream.heads.recv().unwrap().to_ascii_lowercase();
    assert!(
        head.contains("accept-encoding: identity\r\n") && !head.contains("gzip"),
        "{head}"
    );

    let events =
        "data: {\"usage\":null}\n\ndata: {\"usage\":{\"total_tokens\":150}}\n\ndata: [DONE]\n\n";
    let streamed =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    assert_eq!(ask(&gateway, &format!("{streamed}{events}")), events);
    until_left(&gateway, 810);

    ask(&gateway, &close("Content-Encoding: gzip\r\n", body));
    ask(&gateway, &close("Content-Type: text/html\r\n", "<p>no"));
    until_left(&gateway, 610);
    assert_eq!(
        (
            settlements(&gateway, "unreadable"),
            settlements(&gateway, "absent")
        ),
        (1.0, 1.0)
    );
}

#[test]
fn input_and_output_are_weighed_and_a_stream_without_its_numbers_costs_the_most() {
    let redis = RedisServer::start();
    let (upstream, _go) = Upstream::start();
    for store in [None, Some(redis.port())] {
        let cost = "response_json: [{first_of: [usage.in, message.usage.in]}, {path: usage.out, weight: 4}],
            reserve: 10, max: 400, absent: max";
        let gateway = Gateway::start(&routes(store, &limit(cost), upstream.address));
        let target = gateway.url(&format!(
            "/?{}",
            encode(&close("", r#"{"usage":{"in":20,"out":5}}"#))
        ));
        let head = curl(&["-i", &target]);
        assert!(
            head.contains("ratelimit-policy: \"l\";q=1000;w=86400;qu=\"tokens\""),
            "{head}"
        );
        assert!(head.contains("ratelimit: \"l\";r=990;"), "{head}");
        until_left(&gateway, 960);
        let streamed =
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
        let started = "data: {\"message\":{\"usage\":{\"in\":30}}}\n\n";
        ask(
            &gateway,
            &format!("{streamed}{started}data: {{\"usage\":{{\"out\":5}}}}\n\n"),
        );
        until_left(&gateway, 910);
        ask(&gateway, &format!("{streamed}{started}data: [DONE]\n\n"));
        until_left(&gateway, 510);
        let failed = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy";
        assert_eq!(ask(&gateway, failed), "busy");
        until_left(&gateway, 500);
        assert_eq!(settlements(&gateway, "absent"), 2.0);
        redis.command(&["FLUSHALL"]);
    }
}

#[test]
fn an_unreached_upstream_costs_nothing_and_a_broken_response_the_reservation() {
    let redis = RedisServer::start();
    let (upstream, _go) = Upstream::start();
    let cost = "response_json: used, reserve: 100, max: 700";
    let gateway = Gateway::start(&routes(Some(redis.port()), &limit(cost), upstream.address));
    assert_eq!(status(&[&gateway.url("/gone")]), 502);
    eventually("it is given back", || {
        (settlements(&gateway, "unreached") == 1.0).then_some(())
    });
    until_left(&gateway, 1_000);
    // Closed before it answered.
    assert_eq!(status(&[&gateway.url("/?")]), 502);
    until_left(&gateway, 900);
    let mut stream = open(
        &gateway,
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"used\":300, ",
    );
    let _ = stream.read_to_end(&mut Vec::new());
    until_left(&gateway, 600);
    let mut stream = open(
        &gateway,
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"used\":3, ",
    );
    let _ = stream.read_to_end(&mut Vec::new());
    until_left(&gateway, 500);
    assert_eq!(
        settlements(&gateway, "cut"),
        2.0,
        "what was told by then is the least, and so is what was reserved"
    );
}

#[test]
fn a_client_that_leaves_early_is_charged_the_larger_of_reservation_and_usage() {
    let redis = RedisServer::start();
    let (upstream, go) = Upstream::start();
    let cost = "response_json: used, reserve: 100, max: 700";
    let gateway = Gateway::start(&routes(Some(redis.port()), &limit(cost), upstream.address));
    let events = "@HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"used\":150}\n\n|data: {\"used\":400}\n\n";
    let mut stream = open(&gateway, events);
    read_until(&mut stream, "150}\n\n");
    assert_eq!(left(&gateway), 900, "reserved, and not settled yet");
    drop(stream);
    until_left(&gateway, 850);
    assert_eq!(settlements(&gateway, "cut"), 1.0);
    drop(go);
}

#[test]
fn a_node_that_dies_before_settling_leaves_the_reservation_charged() {
    let redis = RedisServer::start();
    let (upstream, go) = Upstream::start();
    let cost = "response_json: used, reserve: 100, max: 700";
    let routes = routes(Some(redis.port()), &limit(cost), upstream.address);
    let mut dying = Gateway::start(&routes);
    let answer =
        "@HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"used\":600}\n\n|";
    let mut stream = open(&dying, answer);
    read_until(&mut stream, "600}\n\n");
    dying.signal("KILL");
    dying.wait();
    drop(go);
    let other = Gateway::start(&routes);
    assert_eq!(left(&other), 900);
    assert_eq!(ask(&other, &close("", "{\"used\":200}")), "{\"used\":200}");
    until_left(&other, 700);
}

#[test]
fn a_settlement_during_an_outage_is_charged_when_redis_is_back() {
    let redis = RedisServer::start();
    let (upstream, go) = Upstream::start();
    let cost = "response_json: used, reserve: 100, max: 700";
    let gateway = Gateway::start(&routes(Some(redis.port()), &limit(cost), upstream.address));
    let answer = "@HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{\"used\"|:400}";
    let mut stream = open(&gateway, answer);
    read_until(&mut stream, "{\"used\"");
    redis.stop();
    go.send(()).unwrap();
    read_until(&mut stream, ":400}");
    go.send(()).unwrap();
    let local = || curl(&[&format!("http://{}/buckets/l?local=true", gateway.admin)]);
    eventually("it counts on this node", || {
        let view: Value = serde_json::from_str(&local()).unwrap();
        (view["remaining"] == 600).then_some(())
    });
    redis.cont();
    until_left(&gateway, 600);
}

#[test]
fn a_drained_gateway_has_settled_its_last_responses() {
    let redis = RedisServer::start();
    let (upstream, go) = Upstream::start();
    let cost = "response_json: used, reserve: 100, max: 700";
    let routes = routes(Some(redis.port()), &limit(cost), upstream.address);
    let mut first = Gateway::start(&routes);
    let mut stream = open(
        &first,
        "@HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{\"used\"|:400}",
    );
    read_until(&mut stream, "{\"used\"");
    first.signal("TERM");
    go.send(()).unwrap();
    read_until(&mut stream, ":400}");
    drop(go);
    assert!(first.wait().success());
    assert_eq!(left(&Gateway::start(&routes)), 600);
}

#[test]
fn shadow_and_degraded_requests_settle_by_their_response() {
    let redis = RedisServer::start();
    let (upstream, _go) = Upstream::start();
    let cost = "cost: {response_json: used, reserve: 100, max: 700}";
    let shadow = format!("l: {{{SLOW}, {cost}, on_limit: shadow}}");
    let gateway = Gateway::start(&routes(Some(redis.port()), &shadow, upstream.address));
    ask(&gateway, &close("", "{\"used\":250}"));
    until_left(&gateway, 750);
    let planned = format!(
        "l: {{{SLOW}, plans: {{by: {{header: x-plan}}, table: {{llm: {{rate: 1000/d, {cost}}}}}}},
          on_limit: {{degrade: {{respond: {{status: 202}}}}}}}}"
    );
    let gateway = Gateway::start(&routes(Some(redis.port()), &planned, upstream.address));
    let target = gateway.url(&format!("/?{}", encode(&close("", "{\"used\":800}"))));
    curl(&["-H", "x-plan: llm", &target]);
    until_left(&gateway, 50);
    assert_eq!(
        status(&["-H", "x-plan: llm", &gateway.url("/")]),
        202,
        "not charged, so nothing to settle"
    );
    assert_eq!(left(&gateway), 50);
    ask(&gateway, &close("", "{\"used\":800}"));
    until_left(&gateway, 49);
}

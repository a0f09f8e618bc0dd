//! HTTP/2 as users of the program see it: with curl, in the log and in the metrics.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use serde_json::Value;

use crate::process::{Gateway, curl, eventually};
use tollgate_testing::raw_http2::{END_HEADERS, HEADERS, PING, PREFACE, SETTINGS, block, frame};

const ROUTES: &str = "
workers: 1
listeners:
  - address: 127.0.0.1:0
admin: {address: '127.0.0.1:0'}
limits:
  once: {key: client_ip, rate: 1/h, burst: 1}
upstreams:
  gone: {endpoints: ['http://127.0.0.1:9']}
routes:
  - {name: echo, match: {path: /echo}, echo: true, limits: [once]}
  - {name: gone, match: {path: /gone}, upstream: gone}
  - {name: fixed, match: {path: /fixed, methods: [GET, HEAD]}, respond: {status: 200, body: fixed}}
";

/// curl ends with error 92 where content follows the answer to a HEAD.
#[test]
fn a_head_over_http_2_gets_no_content_from_any_answer_of_our_own() {
    let gateway = Gateway::start(ROUTES);
    for (path, status) in [
        ("/fixed", 200),
        ("/echo", 200),
        ("/echo", 429),
        ("/gone", 502),
        ("/nothing", 404),
    ] {
        let head = curl(&["--http2-prior-knowledge", "--head", &gateway.url(path)]);
        assert!(
            head.starts_with(&format!("HTTP/2 {status}")),
            "{path}: {head}"
        );
    }
    let head = curl(&[
        "--http2-prior-knowledge",
        "--head",
        "-X",
        "OPTIONS",
        &gateway.url("/fixed"),
    ]);
    assert!(head.starts_with("HTTP/2 405"), "{head}");
}

#[test]
fn a_request_that_breaks_a_rule_counts_for_the_limits_of_its_listener() {
    let routes = ROUTES
        .replace(
            "  - address: 127.0.0.1:0",
            "  - {address: '127.0.0.1:0', limits: [twice]}",
        )
        .replace(
            "limits:\n",
            "limits:\n  twice: {key: client_ip, rate: 2/h}\n",
        );
    let gateway = Gateway::start(&routes);
    for status in [400, 400, 429] {
        let url = gateway.url("/fixed\"");
        let head = curl(&["--http2-prior-knowledge", "--head", &url]);
        assert!(head.starts_with(&format!("HTTP/2 {status}")), "{head}");
    }
}

/// An upstream that switches no protocol.
fn stubborn_upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        }
    });
    address
}

#[test]
fn a_refused_websocket_is_one_request_in_the_log_and_in_the_metrics() {
    let routes = ROUTES.replace(
        "http://127.0.0.1:9",
        &format!("http://{}", stubborn_upstream()),
    );
    let gateway = Gateway::start(&format!("access_log: json\n{routes}"));
    let mut client = TcpStream::connect(gateway.listeners[0]).unwrap();
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":path", "/gone"),
        (":authority", "a"),
        ("sec-websocket-version", "13"),
    ];
    let request = frame(HEADERS, END_HEADERS, 1, &block(&fields));
    client
        .write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[]), &request].concat())
        .unwrap();
    let lines = || -> Vec<Value> {
        let log = gateway.log();
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["status"].is_u64()).collect()
    };
    eventually("it is logged", || (!lines().is_empty()).then_some(()));
    assert_eq!(curl(&[&gateway.url("/fixed")]), "fixed");
    let lines = eventually("the next request is logged, too", || {
        Some(lines()).filter(|lines| lines.iter().any(|line| line["path"] == "/fixed"))
    });
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(
        (&lines[0]["status"], &lines[0]["path"]),
        (&Value::from(502), &Value::from("/gone"))
    );
    let counted = |status| {
        format!("tollgate_requests_total{{route=\"gone\",method=\"GET\",status=\"{status}\"}}")
    };
    assert_eq!(gateway.metric(&counted(502)), 1.0);
    assert!(!gateway.metrics().contains(&counted(200)));
}

#[test]
fn a_flood_is_one_line_in_the_log_and_one_in_the_metric() {
    let gateway = Gateway::start(ROUTES);
    let series = "tollgate_http2_floods_total{kind=\"control_frames\"}";
    assert_eq!(gateway.metric(series), 0.0);
    let address = gateway.url("").trim_start_matches("http://").to_owned();
    let mut client = TcpStream::connect(address).unwrap();
    let flood = frame(PING, 0, 0, &[0; 8]).repeat(5_000);
    // The server may close before it has all.
    let _ = client.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[]), &flood].concat());
    eventually("the connection is closed", || {
        (gateway.metric(series) == 1.0).then_some(())
    });
    let lines = || {
        gateway
            .log()
            .lines()
            .filter(|line| line.contains("HTTP/2 connection was closed"))
            .count()
    };
    eventually("it is logged", || (lines() > 0).then_some(()));
    assert_eq!(
        (lines(), gateway.metric(series)),
        (1, 1.0),
        "{}",
        gateway.log()
    );
}

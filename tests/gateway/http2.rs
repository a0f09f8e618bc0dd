//! HTTP/2 as users of the program see it: with curl, in the log and in the metrics.

use std::io::Write as _;
use std::net::TcpStream;

use crate::process::{Gateway, curl, eventually};
use tollgate_test_support::raw_http2::{PING, PREFACE, SETTINGS, frame};
use tollgate_test_support::turns;

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
    let _turn = turns::beside_others();
    let gateway = Gateway::start(ROUTES);
    for (path, status) in [("/fixed", 200), ("/echo", 200), ("/echo", 429), ("/gone", 502), ("/nothing", 404)] {
        let head = curl(&["--http2-prior-knowledge", "--head", &gateway.url(path)]);
        assert!(head.starts_with(&format!("HTTP/2 {status}")), "{path}: {head}");
    }
    let head = curl(&["--http2-prior-knowledge", "--head", "-X", "OPTIONS", &gateway.url("/fixed")]);
    assert!(head.starts_with("HTTP/2 405"), "{head}");
}

#[test]
fn a_flood_is_one_line_in_the_log_and_one_in_the_metric() {
    let _turn = turns::beside_others();
    let gateway = Gateway::start(ROUTES);
    let series = "tollgate_http2_floods_total{kind=\"control_frames\"}";
    assert_eq!(gateway.metric(series), 0.0);
    let address = gateway.url("").trim_start_matches("http://").to_owned();
    let mut client = TcpStream::connect(address).unwrap();
    let flood = frame(PING, 0, 0, &[0; 8]).repeat(5_000);
    // The server may close before it has all.
    let _ = client.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[]), &flood].concat());
    eventually("the connection is closed", || (gateway.metric(series) == 1.0).then_some(()));
    let log = gateway.log();
    assert_eq!(log.lines().filter(|line| line.contains("HTTP/2 connection was closed")).count(), 1, "{log}");
}

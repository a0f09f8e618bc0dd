//! Retries as an operator writes them: in a route, under its limits and within its time.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::process::{Gateway, curl, eventually, status};
use tollgate_test_support::turns;

/// A server that answers every request with 503, or none at all, and how many it got.
fn failing(answers: bool) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, requests) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&requests);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, seen) = (stream.unwrap(), Arc::clone(&seen));
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while matches!(stream.read(&mut buffer), Ok(read) if read > 0) {
                    seen.fetch_add(1, Ordering::SeqCst);
                    if answers && stream.write_all(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n").is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, requests)
}

/// Attempts that take 300 ms each, at a server that does not answer.
const SLOW: &str = "on: [timeout], attempts: 10, per_try: 300ms, back_off: {base: 1ms, max: 1ms}";

fn routes(server: SocketAddr, route: &str) -> String {
    format!(
        "workers: 1
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
limits: {{two: {{key: client_ip, rate: 2/h}}}}
upstreams: {{orders: {{endpoints: ['http://{server}']}}}}
routes: [{{name: all, upstream: orders, {route}}}]
"
    )
}

#[test]
fn a_request_that_is_sent_again_is_one_request_of_its_limits() {
    let _turn = turns::beside_others();
    let (server, requests) = failing(true);
    let gateway = Gateway::start(&routes(server, "limits: [two], retry: {on: [5xx], attempts: 3}"));
    let statuses: Vec<_> = (0..3).map(|_| status(&[&gateway.url("/")])).collect();
    assert_eq!(statuses, [503, 503, 429]);
    assert_eq!(requests.load(Ordering::SeqCst), 6);
    assert_eq!(gateway.metric("tollgate_upstream_retries_total{upstream=\"orders\"}"), 4.0);
    let outcome = |name| {
        let series = format!("tollgate_upstream_retried_requests_total{{upstream=\"orders\",outcome=\"{name}\"}}");
        eventually("it is counted", || gateway.find_metric(&series))
    };
    assert_eq!(["succeeded", "failed", "over_budget"].map(outcome), [0.0, 2.0, 0.0]);
}

#[test]
fn the_time_of_the_whole_request_bounds_all_attempts() {
    let _turn = turns::beside_others();
    let (server, requests) = failing(false);
    let gateway = Gateway::start(&routes(server, &format!("retry: {{{SLOW}}}, timeouts: {{request: 800ms}}")));
    // The attempt that is under way at the end is cut.
    assert_eq!(status(&[&gateway.url("/")]), 504);
    assert!((2..=3).contains(&requests.load(Ordering::SeqCst)), "{requests:?}");

    // A pause that is longer than what is left is not begun: the client gets the answer that there is.
    let (server, _) = failing(true);
    let long = "retry: {on: [503], attempts: 2, back_off: {base: 1d, max: 1d}}";
    let gateway = Gateway::start(&routes(server, &format!("{long}, timeouts: {{request: 5s}}")));
    assert_eq!(status(&[&gateway.url("/")]), 503);
}

#[test]
fn the_deadline_of_a_call_bounds_all_attempts() {
    let _turn = turns::beside_others();
    let (server, requests) = failing(false);
    let retry = format!("retry: {{{SLOW}, non_idempotent: true, keep_body: 1KiB}}");
    let gateway = Gateway::start(&routes(server, &retry));
    let call = ["-H", "content-type: application/grpc", "-H", "grpc-timeout: 800m", "-d", "x"];
    let url = gateway.url("/");
    let head = curl(&[&call[..], &["-s", "-D", "-", "-o", "/dev/null", &url]].concat());
    assert!(head.contains("grpc-status: 4"), "{head}");
    assert!((2..=3).contains(&requests.load(Ordering::SeqCst)), "{requests:?}");
}

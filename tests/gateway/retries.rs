//! Retries as an operator writes them: in a route, under its limits and within its time.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::process::{Gateway, curl, eventually, status};

/// A server that answers every request with 503, or none at all, and how many it got.
fn failing(answers: bool) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, requests) = (
        listener.local_addr().unwrap(),
        Arc::new(AtomicUsize::new(0)),
    );
    let seen = Arc::clone(&requests);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, seen) = (stream.unwrap(), Arc::clone(&seen));
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while matches!(stream.read(&mut buffer), Ok(read) if read > 0) {
                    seen.fetch_add(1, Ordering::SeqCst);
                    if answers
                        && stream
                            .write_all(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n")
                            .is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    (address, requests)
}

/// Attempts that take 900 ms each, at a server that does not answer.
const SLOW: &str = "on: [timeout], attempts: 10, per_try: 900ms, back_off: {base: 1ms, max: 1ms}";

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
    let (server, requests) = failing(true);
    let gateway = Gateway::start(&routes(
        server,
        "limits: [two], retry: {on: [5xx], attempts: 3}",
    ));
    let statuses: Vec<_> = (0..3).map(|_| status(&[&gateway.url("/")])).collect();
    assert_eq!(statuses, [503, 503, 429]);
    assert_eq!(requests.load(Ordering::SeqCst), 6);
    assert_eq!(
        gateway.metric("tollgate_upstream_retries_total{upstream=\"orders\"}"),
        4.0
    );
    let outcome = |name| {
        let series = format!(
            "tollgate_upstream_retried_requests_total{{upstream=\"orders\",outcome=\"{name}\"}}"
        );
        eventually("it is counted", || gateway.find_metric(&series))
    };
    assert_eq!(
        ["succeeded", "failed", "over_budget"].map(outcome),
        [0.0, 2.0, 0.0]
    );
}

#[test]
fn the_time_of_the_whole_request_bounds_all_attempts() {
    let (server, requests) = failing(false);
    let gateway = Gateway::start(&routes(
        server,
        &format!("retry: {{{SLOW}}}, timeouts: {{request: 2400ms}}"),
    ));
    // The attempt that is under way at the end is cut.
    assert_eq!(status(&[&gateway.url("/")]), 504);
    assert!(
        (1..=3).contains(&requests.load(Ordering::SeqCst)),
        "{requests:?}"
    );

    // A pause that is longer than what is left is not begun: the client gets the answer that there
    // is.
    let (server, _) = failing(true);
    let long = "retry: {on: [503], attempts: 2, back_off: {base: 1d, max: 1d}}";
    let gateway = Gateway::start(&routes(
        server,
        &format!("{long}, timeouts: {{request: 5s}}"),
    ));
    assert_eq!(status(&[&gateway.url("/")]), 503);
}

#[test]
fn the_deadline_of_a_call_bounds_all_attempts() {
    let (server, requests) = failing(false);
    let retry = format!("retry: {{{SLOW}, non_idempotent: true, keep_body: 1KiB}}");
    let gateway = Gateway::start(&routes(server, &retry));
    let call = [
        "-H",
        "content-type: application/grpc",
        "-H",
        "grpc-timeout: 2400m",
        "-d",
        "x",
    ];
    let url = gateway.url("/");
    let head = curl(&[&call[..], &["-s", "-D", "-", "-o", "/dev/null", &url]].concat());
    assert!(head.contains("grpc-status: 4"), "{head}");
    assert!(
        (1..=3).contains(&requests.load(Ordering::SeqCst)),
        "{requests:?}"
    );
}

/// Bytes of a body that is kept.
const KEPT: usize = 1 << 20;

/// A server that reads bodies of [`KEPT`] bytes. It answers 503 to those at /busy, and none to
/// others. How many of both it got.
fn reading() -> (SocketAddr, Arc<[AtomicUsize; 2]>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, requests) = (
        listener.local_addr().unwrap(),
        Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]),
    );
    let seen = Arc::clone(&requests);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, seen) = (BufReader::new(stream.unwrap()), Arc::clone(&seen));
            thread::spawn(move || {
                let (mut line, mut body) = (String::new(), vec![0; KEPT]);
                while matches!(stream.read_line(&mut line), Ok(read) if read > 0) {
                    let is_busy = line.contains(" /busy ");
                    while line != "\r\n" {
                        line.clear();
                        stream.read_line(&mut line).unwrap();
                    }
                    line.clear();
                    if stream.read_exact(&mut body).is_err() {
                        return;
                    }
                    seen[usize::from(!is_busy)].fetch_add(1, Ordering::SeqCst);
                    if is_busy
                        && stream
                            .get_mut()
                            .write_all(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n")
                            .is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    (address, requests)
}

/// A request of the client at `ip`, with a body that is kept.
fn upload(gateway: &Gateway, path: &str, ip: &str) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.listeners[0]).unwrap();
    let head = format!(
        "PUT {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-forwarded-for: {ip}\r\ncontent-length: {KEPT}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![b'a'; KEPT]).unwrap();
    stream
}

#[test]
fn bodies_that_one_client_has_kept_are_bounded_and_those_of_others_are_kept() {
    let (server, requests) = reading();
    let retry = "retry: {on: [503], attempts: 2, keep_body: 1MiB, back_off: {base: 1ms, max: 1ms}}";
    let gateway = Gateway::start(&format!(
        "trusted_proxies: [127.0.0.1]\n{}",
        routes(server, retry)
    ));
    let count = |place: usize| requests[place].load(Ordering::SeqCst);
    let busy = |ip: &str| {
        let before = count(0);
        let mut answer = String::new();
        upload(&gateway, "/busy", ip)
            .read_to_string(&mut answer)
            .unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        count(0) - before
    };
    // An eighth of the 64 MiB for all.
    let held: Vec<TcpStream> = (0..8)
        .map(|_| upload(&gateway, "/held", "192.0.2.1"))
        .collect();
    eventually("they are sent", || (count(1) == 8).then_some(()));
    assert_eq!(gateway.metric("tollgate_bodies_not_kept_total"), 0.0);
    assert_eq!(
        (busy("192.0.2.1"), busy("192.0.2.2")),
        (1, 2),
        "how often it is sent"
    );
    assert_eq!(gateway.metric("tollgate_bodies_not_kept_total"), 1.0);
    drop(held);
    eventually("there is room again", || {
        (busy("192.0.2.1") == 2).then_some(())
    });
}

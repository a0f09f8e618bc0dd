//! Time limits of routes, each in place of its upstream's.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::process::{Gateway, curl, eventually, status};
use tollgate_testing::PATIENCE;

/// Answers by the path: `/silent` not before `release`, `/half` with half of a body, `/endless`
/// with a body that never pauses and never ends, `/tunnel` with a tunnel to itself.
fn upstream(release: &Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let release = Arc::clone(release);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let release = Arc::clone(&release);
            thread::spawn(move || drop(answer(stream.unwrap(), &release)));
        }
    });
    address
}

fn answer(mut stream: TcpStream, release: &AtomicBool) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    while lines
        .next()
        .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
    {}
    match first.split(' ').nth(1).unwrap_or_default() {
        "/half" => stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf!")?,
        "/tunnel" => {
            stream.write_all(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n",
            )?;
            let mut byte = [0];
            while stream.read(&mut byte)? == 1 {
                stream.write_all(&byte)?;
            }
        }
        "/endless" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            loop {
                stream.write_all(b"4\r\nmore\r\n")?;
            }
        }
        _ => {
            eventually("the upstream may answer", || {
                release.load(Ordering::Relaxed).then_some(())
            });
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")?;
        }
    }
    // Held until the gateway closes it.
    stream.read(&mut [0]).map(drop)
}

/// A gateway before that upstream; routes by host, each with these time limits.
fn gateway(upstream: SocketAddr, of_upstream: &str, routes: &[(&str, &str)]) -> Gateway {
    let route = |(name, times): &(&str, &str)| {
        format!(
            "  - {{name: {name}, match: {{host: {name}}}, upstream: up, timeouts: {{{times}}}}}\n"
        )
    };
    let routes: String = routes.iter().map(route).collect();
    Gateway::start(&format!(
        "workers: 1
access_log: json
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
upstreams: {{up: {{endpoints: ['http://{upstream}'], {of_upstream}}}}}
routes:
  - {{name: plain, upstream: up}}
{routes}"
    ))
}

fn problem(gateway: &Gateway, host: &str, path: &str) -> String {
    let answer: serde_json::Value =
        serde_json::from_str(&curl(&["-H", &format!("Host: {host}"), &gateway.url(path)])).unwrap();
    answer["type"]
        .as_str()
        .unwrap_or_default()
        .rsplit(['/', ':', '#'])
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Everything that a client gets until its connection ends.
fn all(gateway: &Gateway, host: &str, path: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(gateway.listeners[0]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())
        .unwrap();
    let mut read = Vec::new();
    // An end, or a reset: what is cut is cut.
    let _ = stream.read_to_end(&mut read);
    read
}

#[test]
fn a_route_waits_less_long_than_its_upstream_says() {
    let up = upstream(&Arc::default());
    let of_upstream =
        "response_timeout: 1d, idle_timeout: 1d, connect_timeout: 1d, bounds: {connections: 2}";
    let routes = [
        ("head", "response: 100ms"),
        ("idle", "idle: 100ms"),
        ("connect", "connect: 100ms"),
    ];
    let gateway = gateway(up, of_upstream, &routes);
    assert_eq!(problem(&gateway, "head", "/silent"), "response-timeout");
    let half = all(&gateway, "idle", "/half");
    assert!(
        half.starts_with(b"HTTP/1.1 200 ") && half.ends_with(b"half!"),
        "{}",
        String::from_utf8_lossy(&half)
    );
    // Two requests hold both connections.
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(gateway.listeners[0]).unwrap();
        stream
            .write_all(b"GET /silent HTTP/1.1\r\nHost: plain\r\n\r\n")
            .unwrap();
        held.push(stream);
    }
    let open = || gateway.metric("tollgate_upstream_connections{upstream=\"up\"}");
    eventually("both are held", || (open() == 2.0).then_some(()));
    assert_eq!(
        problem(&gateway, "connect", "/silent"),
        "upstream-overloaded"
    );
}

#[test]
fn a_route_waits_longer_than_its_upstream_says_and_the_next_request_does_not() {
    let release = Arc::default();
    let gateway = gateway(
        upstream(&release),
        "response_timeout: 100ms",
        &[("patient", "response: 1d")],
    );
    thread::scope(|scope| {
        let patient = scope.spawn(|| curl(&["-H", "Host: patient", &gateway.url("/silent")]));
        assert_eq!(problem(&gateway, "plain", "/silent"), "response-timeout");
        assert_eq!(problem(&gateway, "plain", "/silent"), "response-timeout");
        assert!(!patient.is_finished());
        release.store(true, Ordering::Relaxed);
        assert_eq!(patient.join().unwrap(), "done");
    });
    // The connection that is used again has the times of the route that uses it.
    release.store(false, Ordering::Relaxed);
    assert_eq!(problem(&gateway, "plain", "/silent"), "response-timeout");
}

#[test]
fn the_time_of_the_whole_request_ends_in_504_or_cuts_the_answer() {
    let release = Arc::new(AtomicBool::new(false));
    let gateway = gateway(
        upstream(&release),
        "response_timeout: 1d, idle_timeout: 1d",
        &[("whole", "request: 2s")],
    );
    assert_eq!(problem(&gateway, "whole", "/silent"), "response-timeout");
    let requests = |outcome: &str| {
        gateway.metric(&format!(
            "tollgate_upstream_requests_total{{upstream=\"up\",outcome=\"{outcome}\"}}"
        ))
    };
    assert_eq!(["response_timeout", "cancelled"].map(requests), [1.0, 0.0]);
    let half = all(&gateway, "whole", "/half");
    assert!(
        half.ends_with(b"half!"),
        "{}",
        String::from_utf8_lossy(&half)
    );
    let endless = all(&gateway, "whole", "/endless");
    assert!(endless.starts_with(b"HTTP/1.1 200 ") && !endless.ends_with(b"0\r\n\r\n"));
    let incomplete = || {
        gateway
            .log()
            .lines()
            .filter(|line| line.contains("\"complete\":false"))
            .count()
    };
    eventually("both are logged as cut", || {
        (incomplete() == 2).then_some(())
    });
    release.store(true, Ordering::Relaxed);
    assert_eq!(status(&["-H", "Host: whole", &gateway.url("/silent")]), 200);
}

#[test]
fn a_tunnel_outlives_the_time_of_the_whole_request() {
    let routes = [("whole", "request: 2s"), ("longer", "response: 2500ms")];
    let gateway = gateway(upstream(&Arc::default()), "response_timeout: 1d", &routes);
    let mut tunnel = TcpStream::connect(gateway.listeners[0]).unwrap();
    tunnel.set_read_timeout(Some(PATIENCE)).unwrap();
    tunnel
        .write_all(
            b"GET /tunnel HTTP/1.1\r\nHost: whole\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n",
        )
        .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        tunnel.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(
        head.starts_with(b"HTTP/1.1 101 "),
        "{}",
        String::from_utf8_lossy(&head)
    );
    // By then, the time of the request is over.
    assert_eq!(problem(&gateway, "longer", "/silent"), "response-timeout");
    tunnel.write_all(b"still").unwrap();
    let mut echoed = [0; 5];
    tunnel.read_exact(&mut echoed).unwrap();
    assert_eq!(&echoed, b"still");
}

#[test]
fn the_whole_time_of_a_request_counts_its_waits() {
    let up = upstream(&Arc::new(AtomicBool::new(true)));
    let gateway = Gateway::start(&format!(
        "workers: 1
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
limits: {{one: {{key: host, algorithm: concurrency, max_in_flight: 1, on_limit: {{queue: {{max_wait: 60s}}}}}}}}
upstreams: {{up: {{endpoints: ['http://{up}']}}}}
routes:
  - {{name: queued, match: {{path: /queued}}, upstream: up, limits: [one], timeouts: {{request: 200ms}}}}
  - {{name: held, match: {{path: /tunnel}}, upstream: up, limits: [one]}}
"
    ));
    // A tunnel has the only place.
    let mut tunnel = TcpStream::connect(gateway.listeners[0]).unwrap();
    tunnel.set_read_timeout(Some(PATIENCE)).unwrap();
    tunnel
        .write_all(
            b"GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n",
        )
        .unwrap();
    assert!(tunnel.read(&mut [0; 4096]).unwrap() > 0);
    assert_eq!(problem(&gateway, "a", "/queued"), "not-forwarded-in-time");
    assert_eq!(
        gateway
            .find_metric("tollgate_upstream_requests_total{upstream=\"up\",outcome=\"cancelled\"}"),
        Some(0.0)
    );
    drop(tunnel);
    eventually("the place is free", || {
        (status(&[&gateway.url("/queued")]) == 200).then_some(())
    });
}

#[test]
fn a_request_that_waits_for_a_connection_until_its_time_is_over_gets_its_tokens_back() {
    let release = Arc::new(AtomicBool::new(false));
    let up = upstream(&release);
    let gateway = Gateway::start(&format!(
        "workers: 1
access_log: json
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
limits: {{few: {{key: host, rate: 1/d, burst: 2, cost: {{response_header: x-cost, reserve: 1, max: 1}}}}}}
upstreams: {{up: {{endpoints: ['http://{up}'], connect_timeout: 1d, response_timeout: 1d, bounds: {{connections: 1}}}}}}
routes:
  - {{name: whole, match: {{host: whole}}, upstream: up, limits: [few], timeouts: {{request: 600ms}}}}
  - {{name: head, match: {{host: head}}, upstream: up, limits: [few], timeout: 600ms}}
  - {{name: plain, upstream: up}}
"
    ));
    // The only connection is taken.
    let mut held = TcpStream::connect(gateway.listeners[0]).unwrap();
    held.write_all(b"GET /silent HTTP/1.1\r\nHost: plain\r\n\r\n")
        .unwrap();
    let open = || gateway.metric("tollgate_upstream_connections{upstream=\"up\"}");
    eventually("it is held", || (open() == 1.0).then_some(()));
    for host in ["whole", "head"] {
        for _ in 0..5 {
            assert_eq!(problem(&gateway, host, "/silent"), "not-forwarded-in-time");
        }
    }
    let told = gateway
        .log()
        .matches("\"problem\":\"not-forwarded-in-time\"")
        .count();
    assert!(told >= 9, "{}", gateway.log());
    // A request that an upstream has had pays.
    drop(held);
    for host in ["whole", "head"] {
        eventually("the connection is free", || {
            (problem(&gateway, host, "/silent") == "response-timeout").then_some(())
        });
        assert_eq!(problem(&gateway, host, "/silent"), "response-timeout");
        assert_eq!(problem(&gateway, host, "/silent"), "quota-exceeded");
    }
}

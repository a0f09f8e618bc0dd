//! Health as an operator sees it: on the admin port, in metrics, in the log, and over a reload.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::process::{Gateway, curl, eventually, status};

/// A server that answers every request with 500, or with 200 while it is well, or with nothing at all.
struct Server {
    address: SocketAddr,
    well: Arc<AtomicBool>,
}

impl Server {
    fn start(hangs: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let well = Arc::new(AtomicBool::new(false));
        let state = Arc::clone(&well);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, state) = (stream.unwrap(), Arc::clone(&state));
                thread::spawn(move || converse(stream, &state, hangs));
            }
        });
        Self { address, well }
    }
}

fn converse(mut stream: TcpStream, well: &AtomicBool, hangs: bool) {
    let mut buffer = [0; 4096];
    while matches!(stream.read(&mut buffer), Ok(read) if read > 0) {
        let status = if well.load(Ordering::SeqCst) { "200 OK" } else { "500 Broken" };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        if !hangs && stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn routes(servers: &[&Server], upstream: &str, route: &str) -> String {
    let endpoints: Vec<_> = servers.iter().map(|server| format!("'http://{}'", server.address)).collect();
    format!(
        "workers: 1
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
upstreams: {{orders: {{endpoints: [{}], {upstream}}}}}
routes: [{{name: all, upstream: orders{route}}}]
",
        endpoints.join(", ")
    )
}

/// The state of each endpoint, as the admin port shows it.
fn states(gateway: &Gateway) -> Vec<String> {
    let page: serde_json::Value =
        serde_json::from_str(&curl(&[&format!("http://{}/upstreams", gateway.admin)])).unwrap();
    assert_eq!(page[0]["upstream"], "orders");
    let endpoints = page[0]["endpoints"].as_array().unwrap();
    endpoints.iter().map(|endpoint| endpoint["state"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_ejected_endpoint_is_shown_and_stays_out_over_a_reload() {
    let (good, bad, third) = (Server::start(false), Server::start(false), Server::start(false));
    for server in [&good, &third] {
        server.well.store(true, Ordering::SeqCst);
    }
    let eject = "eject: {after: 2, for: 1h, longest: 1d}";
    let gateway = Gateway::start(&routes(&[&bad, &good], eject, ""));
    let count = |number| (0..number).filter(|_| status(&[&gateway.url("/")]) == 500).count();
    assert_eq!(count(20), 2);
    assert_eq!(states(&gateway), ["ejected", "in_service"]);
    let series = |name: &str, server: &Server| {
        format!("tollgate_upstream_endpoint_{name}{{upstream=\"orders\",endpoint=\"http://{}\"}}", server.address)
    };
    assert_eq!(gateway.metric(&series("up", &bad)), 0.0);
    assert_eq!(gateway.metric(&series("up", &good)), 1.0);
    assert_eq!(gateway.metric(&series("ejections_total", &bad)), 1.0);

    // Another endpoint, and another setting of the upstream: those that stay are what they were.
    gateway.rewrite(&routes(&[&third, &bad, &good], &format!("{eject}, idle_timeout: 9s"), ""));
    eventually("the third is taken over", || (states(&gateway).len() == 3).then_some(()));
    assert_eq!(states(&gateway), ["in_service", "ejected", "in_service"]);
    assert_eq!(count(20), 0);
    assert_eq!(gateway.metric(&series("ejections_total", &bad)), 1.0);

    // Nothing is left of one that has left.
    gateway.rewrite(&routes(&[&third, &good], eject, ""));
    eventually("it has left", || (states(&gateway).len() == 2).then_some(()));
    assert_eq!(gateway.find_metric(&series("up", &bad)), None);
    assert_eq!(gateway.log().matches("an endpoint is ejected").count(), 1);
}

#[test]
fn an_endpoint_is_probed_by_the_gateway_and_shown_with_what_it_answered() {
    let (good, bad) = (Server::start(false), Server::start(false));
    good.well.store(true, Ordering::SeqCst);
    let health = "health: {path: /healthz, interval: 100ms, unhealthy_after: 2}";
    let gateway = Gateway::start(&routes(&[&bad, &good], health, ""));
    eventually("it is unhealthy", || (states(&gateway) == ["unhealthy", "in_service"]).then_some(()));
    let page = curl(&[&format!("http://{}/upstreams", gateway.admin)]);
    assert!(page.contains("\"error\": \"it answered 500 Internal Server Error\""), "{page}");
    assert_eq!((0..10).map(|_| status(&[&gateway.url("/")])).max(), Some(200));
    bad.well.store(true, Ordering::SeqCst);
    eventually("it is healthy", || (states(&gateway) == ["in_service", "in_service"]).then_some(()));
    let probes = |outcome| {
        let labels = format!("upstream=\"orders\",endpoint=\"http://{}\",outcome=\"{outcome}\"", bad.address);
        gateway.metric(&format!("tollgate_upstream_endpoint_probes_total{{{labels}}}"))
    };
    assert!(probes("failed") >= 1.0 && probes("passed") >= 2.0);
}

#[test]
fn an_endpoint_that_lets_the_routes_timeout_pass_is_ejected() {
    let (good, silent) = (Server::start(false), Server::start(true));
    good.well.store(true, Ordering::SeqCst);
    let gateway = Gateway::start(&routes(&[&silent, &good], "eject: {after: 3, for: 1h}", ", timeout: 300ms"));
    let get = || status(&[&gateway.url("/")]);
    assert_eq!((0..16).filter(|_| get() == 504).count(), 3);
    assert_eq!(states(&gateway), ["ejected", "in_service"]);
}

#[test]
fn a_client_that_leaves_gets_no_endpoint_ejected() {
    let (good, silent) = (Server::start(false), Server::start(true));
    good.well.store(true, Ordering::SeqCst);
    let gateway = Gateway::start(&routes(&[&silent, &good], "eject: {after: 1, for: 1h}", ", timeout: 1h"));
    for _ in 0..6 {
        let mut client = TcpStream::connect(gateway.listeners[0]).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        // It is under way when its client leaves.
        let page = || gateway.find_metric("tollgate_requests_in_flight");
        eventually("it has arrived or is answered", || page().filter(|count| *count > 0.0).or(Some(0.0)));
    }
    assert_eq!(states(&gateway), ["in_service", "in_service"]);
}

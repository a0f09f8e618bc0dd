//! Health as an operator sees it: on the admin port, in metrics, in the log, and over a reload.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tollgate_testing::pace;

use crate::process::{Gateway, curl, eventually, status};

/// A server that answers every request with 500, or with 200 while it is well.
struct Server {
    address: SocketAddr,
    state: Arc<ServerState>,
}

struct ServerState {
    well: AtomicBool,
    pace: Pace,
    /// The requests that came.
    asked: AtomicUsize,
}

/// How fast a server answers.
#[derive(Clone, Copy)]
enum Pace {
    Prompt,
    After(Duration),
    Never,
}

impl Server {
    fn start(pace: Pace) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(ServerState {
            well: AtomicBool::new(false),
            pace,
            asked: AtomicUsize::new(0),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, state) = (stream.unwrap(), Arc::clone(&shared));
                thread::spawn(move || converse(stream, &state));
            }
        });
        Self { address, state }
    }

    /// A server that is well.
    fn well(pace: Pace) -> Self {
        let server = Self::start(pace);
        server.state.well.store(true, Ordering::SeqCst);
        server
    }

    fn asked(&self) -> usize {
        self.state.asked.load(Ordering::SeqCst)
    }
}

fn converse(mut stream: TcpStream, state: &ServerState) {
    let mut buffer = [0; 4096];
    while matches!(stream.read(&mut buffer), Ok(read) if read > 0) {
        state.asked.fetch_add(1, Ordering::SeqCst);
        match state.pace {
            Pace::Prompt => {}
            Pace::After(time) => pace::pause(time),
            Pace::Never => continue,
        }
        let status = if state.well.load(Ordering::SeqCst) {
            "200 OK"
        } else {
            "500 Broken"
        };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn routes(servers: &[&Server], upstream: &str, route: &str) -> String {
    let endpoints: Vec<_> = servers
        .iter()
        .map(|server| format!("'http://{}'", server.address))
        .collect();
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

/// Each endpoint, as the admin port shows it.
fn endpoints(gateway: &Gateway) -> Vec<serde_json::Value> {
    let page: serde_json::Value =
        serde_json::from_str(&curl(&[&format!("http://{}/upstreams", gateway.admin)])).unwrap();
    assert_eq!(page[0]["upstream"], "orders");
    page[0]["endpoints"].as_array().unwrap().clone()
}

/// The state of each endpoint.
fn states(gateway: &Gateway) -> Vec<String> {
    endpoints(gateway)
        .iter()
        .map(|endpoint| endpoint["state"].as_str().unwrap().to_owned())
        .collect()
}

/// A metric of the endpoint.
fn series(name: &str, server: &Server, labels: &str) -> String {
    let own = format!(
        "upstream=\"orders\",endpoint=\"http://{}\"{labels}",
        server.address
    );
    format!("tollgate_upstream_endpoint_{name}{{{own}}}")
}

#[test]
fn an_ejected_endpoint_is_shown_and_stays_out_over_a_reload() {
    let (good, bad, third) = (
        Server::well(Pace::Prompt),
        Server::start(Pace::Prompt),
        Server::well(Pace::Prompt),
    );
    let eject = "eject: {after: 2, for: 1h, longest: 1d}";
    let gateway = Gateway::start(&routes(&[&bad, &good], eject, ""));
    let count = |number| {
        (0..number)
            .filter(|_| status(&[&gateway.url("/")]) == 500)
            .count()
    };
    assert_eq!(count(20), 2);
    assert_eq!(states(&gateway), ["ejected", "in_service"]);
    assert_eq!(gateway.metric(&series("up", &bad, "")), 0.0);
    assert_eq!(gateway.metric(&series("up", &good, "")), 1.0);
    assert_eq!(
        gateway.metric(&series("ejections_total", &bad, ",reason=\"failures\"")),
        1.0
    );
    assert_eq!(
        gateway.find_metric(&series("ejections_total", &bad, ",reason=\"latency\"")),
        None
    );

    // Another endpoint, and another setting of the upstream: those that stay are what they were.
    gateway.rewrite(&routes(
        &[&third, &bad, &good],
        &format!("{eject}, idle_timeout: 9s"),
        "",
    ));
    eventually("the third is taken over", || {
        (states(&gateway).len() == 3).then_some(())
    });
    assert_eq!(states(&gateway), ["in_service", "ejected", "in_service"]);
    assert_eq!(count(20), 0);
    assert_eq!(
        gateway.metric(&series("ejections_total", &bad, ",reason=\"failures\"")),
        1.0
    );

    // Nothing is left of one that has left.
    gateway.rewrite(&routes(&[&third, &good], eject, ""));
    eventually("it has left", || {
        (states(&gateway).len() == 2).then_some(())
    });
    assert_eq!(gateway.find_metric(&series("up", &bad, "")), None);
    assert_eq!(gateway.log().matches("an endpoint is ejected").count(), 1);
}

#[test]
fn an_endpoint_that_hangs_for_all_of_a_requests_time_is_ejected() {
    let (silent, good) = (Server::well(Pace::Never), Server::well(Pace::Prompt));
    for time in [
        "timeouts: {request: 2s}",
        "timeouts: {request: 2s}, timeout: 1h",
    ] {
        let file = routes(
            &[&silent, &good],
            "eject: {after: 2, for: 1h}",
            &format!(", {time}"),
        );
        let gateway = Gateway::start(&file);
        let failed = (0..12)
            .filter(|_| status(&[&gateway.url("/")]) == 504)
            .count();
        assert_eq!(
            (failed, states(&gateway)),
            (2, vec!["ejected".to_owned(), "in_service".to_owned()]),
            "{time}"
        );
    }
}

#[test]
fn an_endpoint_that_is_slow_is_shown_as_ejected_for_that() {
    let (good, slow) = (
        Server::well(Pace::Prompt),
        Server::well(Pace::After(Duration::from_secs(1))),
    );
    let eject = "eject: {for: 1h, longest: 1d, latency: {above: 100ms, requests: 2, window: 4s}}";
    let gateway = Gateway::start(&routes(&[&slow, &good], eject, ""));
    eventually("it is ejected", || {
        assert_eq!(status(&[&gateway.url("/")]), 200);
        (states(&gateway) == ["ejected", "in_service"]).then_some(())
    });
    let page = endpoints(&gateway);
    assert_eq!(page[0]["ejected_because"], "latency");
    assert!(
        page[0]["median_latency"].as_f64().unwrap() > 0.9,
        "{page:?}"
    );
    assert!(
        page[1]["ejected_because"].is_null() && page[1]["median_latency"].as_f64().unwrap() < 0.9,
        "{page:?}"
    );
    for (reason, times) in [("latency", 1.0), ("failures", 0.0)] {
        let total = series("ejections_total", &slow, &format!(",reason=\"{reason}\""));
        assert_eq!(gateway.metric(&total), times, "{reason}");
    }

    // It stays out over a reload, as long as its upstream judges by latency.
    gateway.rewrite(&routes(
        &[&slow, &good],
        &format!("{eject}, idle_timeout: 9s"),
        "",
    ));
    eventually("it is reloaded", || {
        gateway.log().contains("reloaded").then_some(())
    });
    assert_eq!(states(&gateway), ["ejected", "in_service"]);
    gateway.rewrite(&routes(
        &[&slow, &good],
        "eject: {for: 1h, longest: 1d}",
        "",
    ));
    eventually("it is back", || {
        (states(&gateway) == ["in_service", "in_service"]).then_some(())
    });
}

#[test]
fn an_endpoint_is_probed_by_the_gateway_and_shown_with_what_it_answered() {
    let (good, bad) = (Server::well(Pace::Prompt), Server::start(Pace::Prompt));
    let health = "health: {path: /healthz, interval: 100ms, unhealthy_after: 2}";
    let gateway = Gateway::start(&routes(&[&bad, &good], health, ""));
    eventually("it is unhealthy", || {
        (states(&gateway) == ["unhealthy", "in_service"]).then_some(())
    });
    let page = curl(&[&format!("http://{}/upstreams", gateway.admin)]);
    assert!(
        page.contains("\"error\": \"it answered 500 Internal Server Error\""),
        "{page}"
    );
    assert_eq!(
        (0..10).map(|_| status(&[&gateway.url("/")])).max(),
        Some(200)
    );
    bad.state.well.store(true, Ordering::SeqCst);
    eventually("it is healthy", || {
        (states(&gateway) == ["in_service", "in_service"]).then_some(())
    });
    let probes = |outcome| {
        let labels = format!(
            "upstream=\"orders\",endpoint=\"http://{}\",outcome=\"{outcome}\"",
            bad.address
        );
        gateway.metric(&format!(
            "tollgate_upstream_endpoint_probes_total{{{labels}}}"
        ))
    };
    assert!(probes("failed") >= 1.0 && probes("passed") >= 2.0);
}

#[test]
fn an_endpoint_that_lets_the_routes_timeout_pass_is_ejected() {
    let (good, silent) = (Server::well(Pace::Prompt), Server::start(Pace::Never));
    let gateway = Gateway::start(&routes(
        &[&silent, &good],
        "eject: {after: 3, for: 1h}",
        ", timeout: 2s",
    ));
    let get = || status(&[&gateway.url("/")]);
    assert_eq!((0..16).filter(|_| get() == 504).count(), 3);
    assert_eq!(states(&gateway), ["ejected", "in_service"]);
}

#[test]
fn a_client_that_leaves_gets_no_endpoint_ejected() {
    let (good, silent) = (Server::well(Pace::Prompt), Server::start(Pace::Never));
    let gateway = Gateway::start(&routes(
        &[&silent, &good],
        "eject: {after: 1, for: 1h}",
        ", timeout: 1h",
    ));
    for count in 1..=6 {
        let mut client = TcpStream::connect(gateway.listeners[0]).unwrap();
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        // It is under way when its client leaves.
        eventually("a server has it", || {
            (good.asked() + silent.asked() == count).then_some(())
        });
    }
    let in_flight = || gateway.find_metric("tollgate_requests_in_flight");
    eventually("all have left", || {
        in_flight().filter(|count| *count == 0.0)
    });
    assert_eq!(silent.asked(), 3);
    assert_eq!(states(&gateway), ["in_service", "in_service"]);
}

#[test]
fn an_adaptive_bound_is_shown_with_what_it_measured() {
    let server = Server::well(Pace::After(Duration::from_millis(20)));
    let gateway = Gateway::start(&routes(
        &[&server],
        "bounds: {adaptive: {min: 4, requests: 10}}",
        "",
    ));
    let gauge =
        |name: &str| gateway.metric(&format!("tollgate_upstream_{name}{{upstream=\"orders\"}}"));
    assert_eq!(
        (gauge("concurrency_limit"), gauge("min_rtt_seconds")),
        (4.0, 0.0)
    );
    for _ in 0..10 {
        assert_eq!(status(&[&gateway.url("/")]), 200);
    }
    eventually("it is measured", || {
        Some(gauge("min_rtt_seconds")).filter(|seconds| *seconds > 0.015)
    });
    let page: serde_json::Value =
        serde_json::from_str(&curl(&[&format!("http://{}/upstreams", gateway.admin)])).unwrap();
    let bound = &page[0]["concurrency"];
    assert_eq!(
        (&bound["limit"], &bound["in_flight"]),
        (&4.into(), &0.into()),
        "{bound}"
    );
    assert!(bound["min_rtt"].as_f64().unwrap() > 0.015, "{bound}");
    // Nothing changes its endpoints.
    assert_eq!(gateway.find_metric(&series("up", &server, "")), None);
    let limited = "tollgate_upstream_requests_total{upstream=\"orders\",outcome=\"limited\"}";
    assert_eq!(gateway.metric(limited), 0.0);
}

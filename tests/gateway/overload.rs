//! More clients than the process has descriptors for: requests are answered, and nobody else is
//! blamed.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::Duration;

use crate::process::{Gateway, curl, eventually, status};
use tollgate_testing::PATIENCE;

/// An upstream that answers each request on a connection of its own, and none while somebody holds
/// `gate` to write.
fn upstream(gate: &Arc<RwLock<()>>) -> SocketAddr {
    let gate = Arc::clone(gate);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let gate = Arc::clone(&gate);
            thread::spawn(move || {
                let mut head = [0; 4096];
                while stream.read(&mut head).is_ok_and(|read| read > 0) {
                    drop(gate.read());
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                }
            });
        }
    });
    address
}

fn routes(upstream: SocketAddr, more: &str) -> String {
    format!(
        "workers: 1
listeners: [{{address: '127.0.0.1:0'{more}}}]
admin: {{address: '127.0.0.1:0'}}
upstreams: {{up: {{endpoints: ['http://{upstream}']}}}}
routes: [{{name: all, upstream: up}}, {{name: short, match: {{path: /short}}, respond: {{status: 200}}}}]
"
    )
}

#[test]
fn idle_clients_beyond_the_descriptors_leave_a_working_upstream_reachable() {
    let gateway = Gateway::start_with_limit("-n 100", &routes(upstream(&Arc::default()), ""));
    let log = gateway.log();
    assert!(
        log.contains("bounds client connections before max_connections does"),
        "{log}"
    );
    assert!(log.contains("\"descriptors\":100"), "{log}");
    let idle: Vec<_> = (0..120)
        .map(|_| TcpStream::connect(gateway.listeners[0]).unwrap())
        .collect();
    for _ in 0..3 {
        assert_eq!(status(&[&gateway.url("/")]), 200);
    }
    assert!(gateway.metric("tollgate_connections_closed_for_room_total") > 50.0);
    assert!(gateway.metric("tollgate_connections") < 50.0);
    drop(idle);
}

#[test]
fn clients_that_say_nothing_push_out_no_client_that_is_served() {
    let gateway = Gateway::start_with_limit("-n 100", &routes(upstream(&Arc::default()), ""));
    let mut served = TcpStream::connect(gateway.listeners[0]).unwrap();
    is_served(&mut served);
    let silent: Vec<_> = (0..120)
        .map(|_| TcpStream::connect(gateway.listeners[0]).unwrap())
        .collect();
    // 24 of them have a place.
    eventually("all others have made room", || {
        (gateway.metric("tollgate_connections_closed_for_room_total") >= 97.0).then_some(())
    });
    is_served(&mut served);
    drop(silent);
}

fn is_served(client: &mut TcpStream) {
    write!(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = String::new();
    while !answer.ends_with("ok") {
        let mut bytes = [0; 4096];
        let read = client.read(&mut bytes).unwrap();
        assert!(read > 0, "the connection is closed: {answer:?}");
        answer += &String::from_utf8_lossy(&bytes[..read]);
    }
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
}

#[test]
fn a_request_that_is_shed_is_charged_to_no_limit() {
    let gate = Arc::default();
    let upstream = upstream(&gate);
    let gateway = Gateway::start(&format!(
        "workers: 1
max_requests: 1
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
limits: {{few: {{key: client_ip, rate: 5/30d}}}}
upstreams: {{up: {{endpoints: ['http://{upstream}']}}}}
routes: [{{name: all, upstream: up, limits: [few]}}]
"
    ));
    let closed = gate.write().unwrap();
    let mut first = TcpStream::connect(gateway.listeners[0]).unwrap();
    write!(first, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    eventually("the first request is under way", || {
        (gateway.metric("tollgate_requests_in_flight") == 1.0).then_some(())
    });
    for _ in 0..2 {
        assert_eq!(status(&[&gateway.url("/")]), 503);
    }
    drop(closed);
    let mut answer = [0; 4096];
    let read = first.read(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]);
    assert!(answer.contains("\"few\";r=4"), "{answer}");
    let second = curl(&["-i", &gateway.url("/")]);
    assert!(second.contains("\"few\";r=3"), "{second}");
}

#[test]
fn the_limit_on_descriptors_is_raised_to_the_hard_one_and_said() {
    let gateway = Gateway::start_with_limit(
        "-Sn 90",
        &routes(upstream(&Arc::default()), ", max_connections: 20"),
    );
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.pid())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words[3], words[4], "{line}");
    assert!(
        gateway
            .log()
            .contains(&format!("\"descriptors\":{}", words[3])),
        "{}",
        gateway.log()
    );
    assert!(
        !gateway.log().contains("bounds client connections"),
        "{}",
        gateway.log()
    );
}

#[test]
fn listeners_that_can_be_full_one_by_one_are_not_warned_of() {
    // 70 clients: half of what two listeners and a worker leave of 200 descriptors.
    for (bound, warns) in [(60, false), (80, true)] {
        let routes = routes(upstream(&Arc::default()), "").replace(
            "listeners: [{address: '127.0.0.1:0'}]",
            &format!(
                "listeners: [{{address: '127.0.0.1:0', max_connections: {bound}}}, \
                 {{address: '127.0.0.1:0', max_connections: 60}}]"
            ),
        );
        let gateway = Gateway::start_with_limit("-n 200", &routes);
        let log = gateway.log();
        assert!(log.contains("\"client_connections\":70"), "{log}");
        assert_eq!(
            log.contains("bounds client connections before max_connections does"),
            warns,
            "{log}"
        );
    }
}

#[test]
fn running_out_of_descriptors_is_not_the_upstreams_fault() {
    let gate = Arc::new(RwLock::new(()));
    let closed = gate.write().unwrap();
    let gateway = Gateway::start_with_limit("-n 64", &routes(upstream(&gate), ""));
    // A connection of a client, with many requests under way, each of which needs a connection of
    // its own.
    let mut load = Command::new("h2load");
    let load = load
        .args(["-n", "100", "-c", "1", "-m", "100", &gateway.url("/")])
        .stdout(Stdio::piped())
        .spawn();
    let load = load
        .unwrap_or_else(|error| panic!("cannot start h2load: {error}; `make test` installs it"));
    let is_out = || {
        gateway
            .log()
            .contains("the gateway is out of descriptors")
            .then_some(())
    };
    eventually("there is no descriptor left", is_out);
    drop(closed);
    let output = load.wait_with_output().unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(report.contains("status codes: "), "{report}");
    let requests = |outcome: &str| {
        gateway.metric(&format!(
            "tollgate_upstream_requests_total{{upstream=\"up\",outcome=\"{outcome}\"}}"
        ))
    };
    assert!(
        requests("exhausted") > 0.0 && requests("response") > 0.0,
        "{report}"
    );
    assert_eq!(
        (requests("connect_failed"), requests("no_endpoint")),
        (0.0, 0.0),
        "{report}"
    );
    let exhausted = "tollgate_upstream_connects_total{upstream=\"up\",outcome=\"exhausted\"}";
    assert!(gateway.metric(exhausted) > 0.0);
    let lines = gateway
        .log()
        .matches("the gateway is out of descriptors")
        .count();
    assert_eq!(lines, 1, "{}", gateway.log());
    assert!(
        !gateway.log().contains("accepts no connection"),
        "{}",
        gateway.log()
    );
    eventually("the endpoint is asked again", || {
        (status(&[&gateway.url("/")]) == 200).then_some(())
    });
}

#[test]
fn a_client_below_the_least_rate_gets_408_and_is_counted_and_logged() {
    // A client that stalls for so long before its first byte counts would be silent instead of
    // slow.
    let bounds = ", body_timeout: 2s, min_body_rate: 1GiB/s";
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let routes = format!(
        "access_log: json\n{}",
        routes(silent.local_addr().unwrap(), bounds)
    );
    let gateway = Gateway::start(&routes);
    let mut client = TcpStream::connect(gateway.listeners[0]).unwrap();
    client
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n")
        .unwrap();
    client
        .set_read_timeout(Some(Duration::from_millis(2)))
        .unwrap();
    let mut answer = [0; 4096];
    let read = eventually("the client is answered", || {
        client.write_all(b"x").unwrap();
        client.read(&mut answer).ok()
    });
    let answer = String::from_utf8_lossy(&answer[..read]);
    assert!(
        answer.starts_with("HTTP/1.1 408 ") && answer.contains("body-too-slow"),
        "{answer}"
    );
    assert_eq!(
        gateway.metric("tollgate_slow_bodies_total{kind=\"request\"}"),
        1.0
    );
    assert_eq!(
        gateway.metric("tollgate_slow_bodies_total{kind=\"response\"}"),
        0.0
    );
    eventually("it is logged", || {
        gateway.log().contains("body-too-slow").then_some(())
    });
}

#[test]
fn trusted_proxies_have_as_many_connections_as_they_like() {
    let bound = ", max_connections_per_client: 2";
    let routes = routes(upstream(&Arc::default()), bound);
    let gateway = Gateway::start(&routes);
    let open = || -> Vec<_> {
        (0..5)
            .map(|_| TcpStream::connect(gateway.listeners[0]).unwrap())
            .collect()
    };
    let clients = open();
    eventually("three are refused", || {
        (gateway.metric("tollgate_connections_refused_total") == 3.0).then_some(())
    });
    gateway.rewrite(&format!("trusted_proxies: [127.0.0.0/8]\n{routes}"));
    gateway.signal("HUP");
    eventually("the file is applied", || {
        gateway.log().contains("reloaded").then_some(())
    });
    drop(clients);
    let mut proxies = open();
    for proxy in &mut proxies {
        proxy.set_read_timeout(Some(PATIENCE)).unwrap();
        proxy
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        proxy.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    }
    assert_eq!(gateway.metric("tollgate_connections_refused_total"), 3.0);
    assert_eq!(curl(&[&gateway.url("/")]), "ok");
}

/// A gateway with room for few clients, all of which are taken by clients that have their answers
/// and go on sending. Returns the status that another client gets, which waits for a minute at
/// most.
fn another_among(request: &str, answers: &str) -> u16 {
    let gateway = Gateway::start_with_limit("-n 100", &routes(upstream(&Arc::default()), ""));
    let bounded = gateway.log();
    let room = bounded
        .split("\"client_connections\":")
        .nth(1)
        .and_then(|rest| rest.split([',', '}']).next()?.parse().ok());
    let room: usize = room.unwrap_or_else(|| panic!("{bounded}"));
    let clients: Vec<_> = (0..room)
        .map(|_| {
            let mut client = TcpStream::connect(gateway.listeners[0]).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.write_all(request.as_bytes()).unwrap();
            let mut answer = [0; 512];
            let read = client.read(&mut answer).unwrap();
            assert!(
                answer[..read].starts_with(answers.as_bytes()),
                "{}",
                String::from_utf8_lossy(&answer[..read])
            );
            client
        })
        .collect();
    let mut dripping: Vec<_> = clients
        .iter()
        .map(|client| client.try_clone().unwrap())
        .collect();
    let (stop, stopped) = channel::<()>();
    let drip = thread::spawn(move || {
        while stopped
            .recv_timeout(Duration::from_millis(200))
            .is_err_and(|why| why == RecvTimeoutError::Timeout)
        {
            dripping
                .iter_mut()
                .for_each(|client| drop(client.write_all(b"x")));
        }
    });
    let status = status(&[&gateway.url("/")]);
    drop(stop);
    drip.join().unwrap();
    status
}

#[test]
fn clients_that_go_on_sending_after_their_last_answer_make_room() {
    let request = "GET / HTTP/1.1\r\nBad Header\r\n\r\n";
    assert_eq!(another_among(request, "HTTP/1.1 400 "), 200);
}

#[test]
fn clients_whose_unread_body_drips_in_after_the_answer_make_room() {
    let request = "POST /short HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n";
    assert_eq!(another_among(request, "HTTP/1.1 200 "), 200);
}

#[test]
fn a_client_that_goes_on_sending_holds_up_no_drain() {
    // A drain that waits for the client goes on for longer than this test has patience.
    let routes = routes(upstream(&Arc::default()), "");
    let mut gateway = Gateway::start(&format!("drain_timeout: 10m\n{routes}"));
    let mut client = TcpStream::connect(gateway.listeners[0]).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nBad Header\r\n\r\n")
        .unwrap();
    assert!(client.read(&mut [0; 512]).unwrap() > 0);
    gateway.signal("TERM");
    eventually("the gateway ends", || {
        let _ = client.write_all(b"x");
        gateway.has_ended().then_some(())
    });
}

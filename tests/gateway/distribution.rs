//! Requests that are split over upstreams, and copies of them, as clients and servers see it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use tollgate_testing::PATIENCE;

use crate::process::{Gateway, curl, eventually, status};

/// A server that keeps all that it is sent, and answers each request with its name, or never.
struct Server {
    address: SocketAddr,
    received: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(name: &'static str, answers: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::<Mutex<Vec<String>>>::default();
        let all = Arc::clone(&received);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, all) = (stream.unwrap(), Arc::clone(&all));
                thread::spawn(move || converse(stream, name, answers, &all));
            }
        });
        Self { address, received }
    }

    fn received(&self) -> Vec<String> {
        self.received.lock().unwrap().clone()
    }
}

fn converse(mut stream: TcpStream, name: &str, answers: bool, all: &Mutex<Vec<String>>) {
    let mut text = Vec::new();
    let mut buffer = [0; 65_536];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        text.extend_from_slice(&buffer[..read]);
        while let Some(end) = whole(&text) {
            let request =
                String::from_utf8_lossy(&text.drain(..end).collect::<Vec<_>>()).into_owned();
            all.lock().unwrap().push(request.to_ascii_lowercase());
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}",
                name.len()
            );
            if answers && stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}

/// Where the first request of `text` ends, if it is all there.
fn whole(text: &[u8]) -> Option<usize> {
    let head = text.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let fields = String::from_utf8_lossy(&text[..head]).to_ascii_lowercase();
    if fields.contains("transfer-encoding: chunked") {
        return Some(
            head + text[head..]
                .windows(5)
                .position(|window| window == b"0\r\n\r\n")?
                + 5,
        );
    }
    let length = fields
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    Some(head + length.unwrap_or(0)).filter(|end| text.len() >= *end)
}

fn start(upstreams: &[(&str, SocketAddr)], route: &str) -> Gateway {
    let upstreams: Vec<_> = upstreams
        .iter()
        .map(|(name, address)| format!("{name}: {{endpoints: ['http://{address}']}}"))
        .collect();
    Gateway::start(&format!(
        "workers: 1
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
upstreams: {{{}}}
routes: [{{name: all, {route}}}]
",
        upstreams.join(", ")
    ))
}

/// How many of `count` requests with this field each server answers.
fn spread(gateway: &Gateway, count: usize, field: &str) -> BTreeMap<String, usize> {
    let urls = vec![gateway.url("/"); count];
    let mut args = vec!["-w", "\n", "-H", field];
    args.extend(urls.iter().map(String::as_str));
    let mut counts = BTreeMap::new();
    for name in curl(&args).split_whitespace() {
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    counts
}

fn mirrored(gateway: &Gateway, outcome: &str) -> f64 {
    let series = format!("tollgate_mirrored_requests_total{{route=\"all\",outcome=\"{outcome}\"}}");
    gateway.find_metric(&series).unwrap_or(0.0)
}

#[test]
fn each_upstream_of_a_split_gets_its_share() {
    let (most, few, none) = (
        Server::start("most", true),
        Server::start("few", true),
        Server::start("none", true),
    );
    let upstreams = [("a", most.address), ("b", few.address), ("c", none.address)];
    let gateway = start(
        &upstreams,
        "upstream: [{to: a, weight: 75%}, {to: b, weight: 25%}, {to: c, weight: 0%}]",
    );
    let counts = spread(&gateway, 400, "x-user: ada");
    // Five standard deviations: once in a million runs by chance.
    let few = counts["few"];
    assert!(
        (57..=143).contains(&few) && counts["most"] == 400 - few,
        "{counts:?}"
    );
    for (upstream, count) in [("a", 400 - few), ("b", few)] {
        let series = format!(
            "tollgate_upstream_requests_total{{upstream=\"{upstream}\",outcome=\"response\"}}"
        );
        assert_eq!(gateway.metric(&series), count as f64);
    }
}

#[test]
fn a_split_by_a_key_keeps_each_client_at_one_upstream() {
    let (one, two) = (Server::start("one", true), Server::start("two", true));
    let upstreams = [("a", one.address), ("b", two.address)];
    let parts = |a: u8| {
        format!(
            "upstream: [{{to: a, weight: {a}%}}, {{to: b, weight: {}%}}]",
            100 - a
        )
    };
    let of_users = |gateway: &Gateway| -> Vec<String> {
        let home = |user: usize| {
            let counts = spread(gateway, 5, &format!("x-user: {user}"));
            assert_eq!(counts.len(), 1, "{counts:?}");
            counts.into_keys().next().unwrap()
        };
        (0..24).map(home).collect()
    };
    let by = "split_by: {header: x-user}";
    let half = of_users(&start(&upstreams, &format!("{}, {by}", parts(50))));
    assert!(
        half.contains(&"one".to_owned()) && half.contains(&"two".to_owned()),
        "{half:?}"
    );
    // A larger share takes clients over, and gives none away.
    let more = of_users(&start(&upstreams, &format!("{}, {by}", parts(25))));
    assert!(
        half.iter()
            .zip(&more)
            .all(|(half, more)| half == "one" || more == "two"),
        "{half:?} {more:?}"
    );
    assert_ne!(half, more);
    let gateway = start(&upstreams, &format!("{}, {by}", parts(50)));
    assert_eq!(
        spread(&gateway, 60, "x-other: 1").len(),
        2,
        "requests without a key go to any"
    );
}

#[test]
fn a_request_stays_with_the_upstream_that_was_picked_for_it() {
    let server = Server::start("up", true);
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let upstreams = [("up", server.address), ("down", gone)];
    let gateway = start(
        &upstreams,
        "upstream: [{to: down, weight: 100%}, {to: up, weight: 0%}]",
    );
    assert_eq!(status(&[&gateway.url("/")]), 502);
    assert_eq!(server.received().len(), 0);
}

#[test]
fn a_copy_has_what_the_upstream_gets_and_its_answer_is_dropped() {
    let (server, shadow) = (Server::start("server", true), Server::start("shadow", true));
    let upstreams = [("up", server.address), ("shadow", shadow.address)];
    let route = "upstream: up, mirror: {to: shadow}, match: {path: /api/*}, strip_prefix: /api, \
        request_headers: {set: {x-set: here}}";
    let gateway = start(&upstreams, route);
    let url = gateway.url("/api/orders?a=b");
    let answer = curl(&[
        "-d",
        "some content",
        "-H",
        "host: shop.example",
        "-H",
        "connection: x-hop",
        "-H",
        "x-hop: 1",
        &url,
    ]);
    assert_eq!(answer, "server");
    let copy = eventually("the copy", || shadow.received().pop());
    let request = server.received().pop().unwrap();
    for of_both in [
        "post /orders?a=b http/1.1\r\n",
        "host: shop.example\r\n",
        "x-set: here\r\n",
        "\r\n\r\nsome content",
    ] {
        assert!(
            copy.contains(of_both) && request.contains(of_both),
            "{of_both}: {copy}\n{request}"
        );
    }
    let lines = |text: &str| {
        let mut lines: Vec<_> = text
            .lines()
            .map(str::to_owned)
            .filter(|line| line != "x-mirrored: 1")
            .collect();
        lines.sort();
        lines
    };
    assert!(
        copy.contains("x-mirrored: 1\r\n")
            && !copy.contains("x-hop")
            && !request.contains("x-mirrored"),
        "{copy}"
    );
    assert_eq!(lines(&copy), lines(&request));
    eventually("it is counted", || {
        (mirrored(&gateway, "answered") == 1.0).then_some(())
    });
    // A client does not get the mark taken out, and says nothing beside it.
    curl(&[
        "-H",
        "connection: x-mirrored",
        "-H",
        "x-mirrored: 0",
        "-H",
        "x_mirrored: 0",
        "-d",
        "x",
        &url,
    ]);
    let copy = eventually("the copy", || {
        (shadow.received().len() == 2).then(|| shadow.received().pop().unwrap())
    });
    assert!(
        copy.contains("x-mirrored: 1\r\n") && !copy.contains("mirrored: 0"),
        "{copy}"
    );
    // A body of unknown length, and none at all.
    curl(&["-H", "transfer-encoding: chunked", "-d", "in pieces", &url]);
    let copy = eventually("the copy", || {
        (shadow.received().len() == 3).then(|| shadow.received().pop().unwrap())
    });
    assert!(
        copy.contains("content-length: 9\r\n") && copy.ends_with("\r\n\r\nin pieces"),
        "{copy}"
    );
    curl(&[&url]);
    let copy = eventually("the copy", || {
        (shadow.received().len() == 4).then(|| shadow.received().pop().unwrap())
    });
    assert!(
        copy.starts_with("get /orders") && !copy.contains("content-length"),
        "{copy}"
    );
}

#[test]
fn copies_that_hang_or_fail_cost_the_requests_nothing() {
    let (server, shadow) = (
        Server::start("server", true),
        Server::start("shadow", false),
    );
    let upstreams = [("up", server.address), ("shadow", shadow.address)];
    let gateway = start(
        &upstreams,
        "upstream: up, mirror: {to: shadow, max_in_flight: 3}",
    );
    assert_eq!(
        spread(&gateway, 50, "a: b"),
        [("server".to_owned(), 50)].into()
    );
    eventually("the others are counted", || {
        (mirrored(&gateway, "too_many") == 47.0).then_some(())
    });
    eventually("three copies", || {
        (shadow.received().len() == 3).then_some(())
    });
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let gateway = start(
        &[("up", server.address), ("shadow", gone)],
        "upstream: up, mirror: {to: shadow}",
    );
    assert_eq!(
        spread(&gateway, 5, "a: b"),
        [("server".to_owned(), 5)].into()
    );
    eventually("they have failed", || {
        (mirrored(&gateway, "failed") == 5.0).then_some(())
    });
    let share = start(&upstreams, "upstream: up, mirror: {to: shadow, share: 0%}");
    assert_eq!(
        spread(&share, 20, "a: b"),
        [("server".to_owned(), 20)].into()
    );
    assert_eq!(shadow.received().len(), 3);
}

#[test]
fn a_body_passes_while_it_is_copied_and_half_a_body_is_not_copied() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    upstream.set_nonblocking(true).unwrap();
    let shadow = Server::start("shadow", true);
    let upstreams = [
        ("up", upstream.local_addr().unwrap()),
        ("shadow", shadow.address),
    ];
    let gateway = start(&upstreams, "upstream: up, mirror: {to: shadow}");
    let half = || {
        let mut client = TcpStream::connect(gateway.listeners[0]).unwrap();
        client
            .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nfirst")
            .unwrap();
        let (stream, _) = eventually("the request", || upstream.accept().ok());
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        read_until(&stream, "first");
        (client, stream)
    };
    let (client, stream) = half();
    drop(client);
    eventually("it is counted", || {
        (mirrored(&gateway, "incomplete") == 1.0).then_some(())
    });
    drop(stream);
    let (mut client, stream) = half();
    client.write_all(b"other").unwrap();
    read_until(&stream, "other");
    eventually("the copy is answered", || {
        (mirrored(&gateway, "answered") == 1.0).then_some(())
    });
    assert!(
        matches!(&*shadow.received(), [copy] if copy.ends_with("\r\n\r\nfirstother")),
        "{:?}",
        shadow.received()
    );
}

fn read_until(mut stream: &TcpStream, end: &str) {
    let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
    while !text.ends_with(end.as_bytes()) {
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "closed after {}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&buffer[..read]);
    }
}

#[test]
fn an_answer_without_end_to_a_copy_is_not_read() {
    let server = Server::start("server", true);
    let shadow = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstreams = [
        ("up", server.address),
        ("shadow", shadow.local_addr().unwrap()),
    ];
    let gateway = start(&upstreams, "upstream: up, mirror: {to: shadow}");
    let talking = thread::spawn(move || {
        let mut stream = shadow.accept().unwrap().0;
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1099511627776\r\n\r\n")
            .unwrap();
        while stream.write_all(&[b'x'; 65_536]).is_ok() {}
    });
    assert_eq!(curl(&[&gateway.url("/")]), "server");
    eventually("the connection is closed", || {
        talking.is_finished().then_some(())
    });
    talking.join().unwrap();
}

#[test]
fn a_request_for_another_protocol_is_not_copied() {
    let (server, shadow) = (Server::start("server", true), Server::start("shadow", true));
    let upstreams = [("up", server.address), ("shadow", shadow.address)];
    let gateway = start(&upstreams, "upstream: up, mirror: {to: shadow}");
    let url = gateway.url("/");
    assert_eq!(
        curl(&["-H", "connection: upgrade", "-H", "upgrade: chat", &url]),
        "server"
    );
    assert!(server.received()[0].contains("upgrade: chat\r\n"));
    assert_eq!(curl(&["-H", "x-plain: 1", &url]), "server");
    eventually("the other is copied", || {
        (mirrored(&gateway, "answered") == 1.0).then_some(())
    });
    assert!(
        matches!(&*shadow.received(), [copy] if copy.contains("x-plain: 1")),
        "{:?}",
        shadow.received()
    );
}

#[test]
fn requests_with_long_bodies_are_not_copied() {
    let (server, shadow) = (Server::start("server", true), Server::start("shadow", true));
    let upstreams = [("up", server.address), ("shadow", shadow.address)];
    let gateway = start(
        &upstreams,
        "upstream: up, mirror: {to: shadow, max_body: 10KiB}",
    );
    let url = gateway.url("/");
    let (long, fits) = ("a".repeat(10_241), "a".repeat(10_240));
    assert_eq!(curl(&["-d", &long, &url]), "server");
    assert_eq!(
        curl(&["-d", &long, "-H", "transfer-encoding: chunked", &url]),
        "server"
    );
    assert_eq!(mirrored(&gateway, "too_large"), 2.0);
    assert_eq!(
        curl(&["-d", &fits, "-H", "expect: 100-continue", &url]),
        "server"
    );
    let copy = eventually("the copy", || shadow.received().pop());
    assert!(
        copy.ends_with(&fits) && !copy.contains("expect"),
        "{}",
        copy.len()
    );
    assert_eq!(shadow.received().len(), 1);
    assert!(
        server
            .received()
            .iter()
            .all(|request| request.contains("aaaa"))
    );
}

//! Limits that count by a member of the body, which is read before they are asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::process::{Gateway, curl, eventually, status};
use tollgate_testing::PATIENCE;

/// An upstream of logins: 401 where the body says `wrong`, else 200. It keeps what it got.
struct Login {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Login {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = requests.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, kept) = (stream.unwrap(), kept.clone());
                thread::spawn(move || Self::answer(stream, &kept));
            }
        });
        Self { address, requests }
    }

    fn answer(mut stream: TcpStream, kept: &Mutex<Vec<String>>) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut request = String::new();
        while !request.ends_with("\r\n\r\n") && reader.read_line(&mut request).unwrap_or(0) > 0 {}
        let (head, at) = (request.to_ascii_lowercase(), kept.lock().unwrap().len());
        kept.lock().unwrap().push(request.clone());
        if let Some((_, rest)) = head.split_once("content-length: ") {
            let mut body = vec![0; rest.lines().next().unwrap().parse().unwrap()];
            let _ = reader.read_exact(&mut body);
            request.push_str(&String::from_utf8_lossy(&body));
        } else if head.contains("transfer-encoding: chunked") {
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap_or(0) > 0 && !line.ends_with("\r\n\r\n") {}
            request.push_str(&line);
        }
        let status = if request.contains("wrong") {
            "401 Unauthorized"
        } else {
            "200 OK"
        };
        kept.lock().unwrap()[at] = request;
        let _ = write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
        );
    }

    fn last(&self) -> String {
        self.requests.lock().unwrap().last().unwrap().clone()
    }
}

fn start(login: &Login, limit: &str, bounds: &str) -> Gateway {
    Gateway::start(&format!(
        "
workers: 1
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
{bounds}
limits:
  failed-logins: {{{limit}}}
upstreams:
  login: {{endpoints: ['http://{}']}}
routes:
  - {{name: login, match: {{path: /login}}, upstream: login, limits: [failed-logins]}}
  - {{name: plain, upstream: login}}
",
        login.address
    ))
}

const BY_NAME: &str =
    "key: [client_ip, {body: username}], rate: 2/30d, count: {status: [401, 403]}";

fn form(gateway: &Gateway, body: &str) -> u16 {
    status(&["--data-raw", body, &gateway.url("/login")])
}

fn json(gateway: &Gateway, body: &str) -> u16 {
    status(&[
        "--http2-prior-knowledge",
        "--json",
        body,
        &gateway.url("/login"),
    ])
}

fn left(gateway: &Gateway, name: &str) -> u64 {
    let url = format!(
        "http://{}/buckets/failed-logins?client_ip=127.0.0.1&body.username={name}",
        gateway.admin
    );
    let view: Value = serde_json::from_str(&curl(&[&url])).unwrap();
    view["remaining"]
        .as_u64()
        .unwrap_or_else(|| panic!("{view:#}"))
}

/// A request over HTTP/1.1, of which `body` is sent.
fn raw(gateway: &Gateway, fields: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.listeners[0]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "POST /login HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{body}"
    )
    .unwrap();
    stream
}

fn line(stream: &TcpStream) -> String {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

const FORM: &str = "Content-Type: application/x-www-form-urlencoded";

#[test]
fn failed_logins_are_counted_by_name_in_forms_and_json_alike() {
    let login = Login::start();
    let gateway = start(&login, BY_NAME, "");
    for _ in 0..3 {
        assert_eq!(form(&gateway, "username=ada&password=right"), 200);
        eventually("a success is not counted", || {
            (left(&gateway, "ada") == 2).then_some(())
        });
    }
    assert_eq!(form(&gateway, "password=wrong&%75sername=+ada"), 401);
    eventually("one failure", || (left(&gateway, "ada") == 1).then_some(()));
    assert_eq!(
        json(&gateway, r#"{"user\u006eame": "ada", "password": "wrong"}"#),
        401
    );
    eventually("two failures", || {
        (left(&gateway, "ada") == 0).then_some(())
    });
    assert_eq!(form(&gateway, "username=ada&password=right"), 429);
    assert_eq!(json(&gateway, r#"{"username":"ada"}"#), 429);
    assert_eq!(form(&gateway, "username=Ada&password=right"), 200);
    assert_eq!(form(&gateway, "username=bob&password=wrong"), 401);
    assert_eq!((left(&gateway, "bob"), left(&gateway, "ada")), (1, 0));
    let series =
        |outcome| format!("tollgate_body_keys_total{{route=\"login\",outcome=\"{outcome}\"}}");
    assert_eq!(
        (
            gateway.metric(&series("found")),
            gateway.metric(&series("missing"))
        ),
        (9.0, 0.0)
    );
}

#[test]
fn values_that_differ_in_case_count_as_one_where_that_is_asked_for() {
    let login = Login::start();
    let gateway = start(
        &login,
        "key: {body: {name: username, ignore_case: true}}, rate: 2/30d",
        "",
    );
    let answers = ["Ada", "aDA", "ada"].map(|name| form(&gateway, &format!("username={name}")));
    assert_eq!(answers, [200, 200, 429]);
}

#[test]
fn a_body_reaches_the_upstream_byte_for_byte() {
    let login = Login::start();
    let gateway = start(&login, BY_NAME, "");
    let long = format!("username=ada&x={}", "%20+é\u{1}".repeat(20_000));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("body");
    for body in ["username=ada&x=%zz%00;+&&=", "username=ada", &long] {
        std::fs::write(&file, body).unwrap();
        let body_of_file = format!("@{}", file.display());
        for version in ["--http1.1", "--http2-prior-knowledge"] {
            let args = [
                version,
                "-H",
                "Expect:",
                "--data-binary",
                &body_of_file,
                &gateway.url("/login"),
            ];
            assert_eq!(status(&args), 200);
            let got = login.last();
            let (head, got) = got.split_once("\r\n\r\n").unwrap();
            let announced = format!("content-length: {}", body.len());
            assert!(
                got == body && head.to_ascii_lowercase().contains(&announced),
                "{head}"
            );
        }
    }
    for filler in ["", &long] {
        let size = filler.len();
        let chunks = format!(
            "8;a=b\r\nusername\r\n4\r\n=ada\r\n{size:x}\r\n{filler}\r\n0\r\nX-Sum: 7\r\n\r\n"
        );
        let chunks = if size == 0 {
            chunks.replace("0\r\n\r\n0\r\n", "0\r\n")
        } else {
            chunks
        };
        let stream = raw(
            &gateway,
            &format!("{FORM}\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum"),
            &chunks,
        );
        assert!(line(&stream).starts_with("HTTP/1.1 200 "));
        let got = login.last();
        let (head, body) = got.split_once("\r\n\r\n").unwrap();
        let content: String = body.split("\r\n").skip(1).step_by(2).collect();
        assert!(
            content.starts_with(&format!("username=ada{filler}")),
            "{head}"
        );
        assert!(body.ends_with("0\r\nx-sum: 7\r\n\r\n"), "{head}");
    }
}

#[test]
fn a_client_that_waits_for_a_100_is_asked_for_its_body() {
    let login = Login::start();
    let gateway = start(&login, BY_NAME, "");
    let mut stream = raw(
        &gateway,
        &format!("{FORM}\r\nContent-Length: 12\r\nExpect: 100-continue"),
        "",
    );
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    assert!(login.requests.lock().unwrap().is_empty());
    stream.write_all(b"username=ada").unwrap();
    assert!(line(&stream).starts_with("HTTP/1.1 200 "));
    assert!(
        login.last().ends_with("\r\n\r\nusername=ada")
            && !login.last().to_ascii_lowercase().contains("expect")
    );
    let over_http2 = [
        "--http2-prior-knowledge",
        "-H",
        "Expect: 100-continue",
        "--expect100-timeout",
        "60",
        "-d",
        "username=eve",
    ];
    assert_eq!(
        status(&[&over_http2[..], &[&gateway.url("/login")]].concat()),
        200
    );
    assert!(login.last().ends_with("\r\n\r\nusername=eve"));
}

#[test]
fn a_value_that_readers_may_differ_about_is_missing() {
    let login = Login::start();
    let strict = start(
        &login,
        "key: {body: username}, on_missing: refuse, rate: 100/30d",
        "body_keys: {max_body: 1KiB}",
    );
    let shared = start(
        &login,
        "key: {body: username}, rate: 9/30d",
        "body_keys: {max_body: 1KiB}",
    );
    let long = format!("username=ada&x={}", "x".repeat(1024));
    let cases: [&[&str]; 9] = [
        &["-d", "username=ada&username=bob"],
        &["-d", "Username=ada"],
        &["-d", &long],
        &["-d", &long, "-H", "Transfer-Encoding: chunked"],
        &["-d", "username=ada", "-H", "Content-Type: text/plain"],
        &[
            "-d",
            "username=ada",
            "-H",
            "Content-Type: application/x-www-form-urlencoded; charset=ibm037",
        ],
        &["-d", "username=ada", "-H", "Content-Encoding: gzip"],
        &["-F", "username=ada"],
        &["--json", r#"{"username": "ada", "username": "bob"}"#],
    ];
    for case in cases {
        assert_eq!(
            status(&[case, &[&strict.url("/login")]].concat()),
            400,
            "{case:?}"
        );
        assert_eq!(
            status(&[case, &[&shared.url("/login")]].concat()),
            200,
            "{case:?}"
        );
    }
    assert_eq!(
        status(&[&shared.url("/login")]),
        429,
        "all of them have one bucket"
    );
    assert_eq!(form(&shared, "username=ada"), 200);
    assert_eq!(
        status(&["-d", "username=ada", &strict.url("/login?username=bob")]),
        400
    );
    // The part within the bound has a name, and the rest may have another.
    let in_pieces = format!(
        "c\r\nusername=ada\r\n400\r\n{}\r\n0\r\n\r\n",
        "x".repeat(1024)
    );
    let refused = raw(
        &strict,
        &format!("{FORM}\r\nTransfer-Encoding: chunked"),
        &in_pieces,
    );
    assert!(line(&refused).starts_with("HTTP/1.1 400 "));
    assert_eq!(login.requests.lock().unwrap().len(), cases.len() + 1);
}

#[test]
fn a_request_that_is_not_served_is_refused_before_its_body_is_read() {
    let login = Login::start();
    let gateway = start(
        &login,
        BY_NAME,
        "max_requests: 1\nbody_keys: {timeout: 60s}",
    );
    let unfinished = || {
        raw(
            &gateway,
            &format!("{FORM}\r\nContent-Length: 20"),
            "username=ada",
        )
    };
    let _first = unfinished();
    eventually("it is under way", || {
        (status(&[&gateway.url("/plain")]) == 503).then_some(())
    });
    assert!(line(&unfinished()).starts_with("HTTP/1.1 503 "));
}

#[test]
fn a_body_that_is_slow_or_broken_off_reaches_no_upstream() {
    let login = Login::start();
    let gateway = start(&login, BY_NAME, "body_keys: {timeout: 2s}");
    let slow = raw(
        &gateway,
        &format!("{FORM}\r\nContent-Length: 20"),
        "username=ada",
    );
    assert!(line(&slow).starts_with("HTTP/1.1 408 "));
    drop(raw(
        &gateway,
        &format!("{FORM}\r\nContent-Length: 20"),
        "username=ada",
    ));
    let malformed = raw(
        &gateway,
        &format!("{FORM}\r\nTransfer-Encoding: chunked"),
        "8\r\nusername\r\nxx\r\n",
    );
    assert!(line(&malformed).starts_with("HTTP/1.1 400 "));
    let refused = "tollgate_body_keys_total{route=\"login\",outcome=\"refused\"}";
    eventually("three bodies are refused", || {
        (gateway.metric(refused) == 3.0).then_some(())
    });
    assert!(login.requests.lock().unwrap().is_empty());
    assert_eq!(left(&gateway, "ada"), 2);
}

#[test]
fn bodies_that_are_read_ahead_share_a_bound_on_memory() {
    let login = Login::start();
    let gateway = start(
        &login,
        BY_NAME,
        "body_keys: {max_memory: 64KiB, timeout: 60s}",
    );
    let mut first = raw(
        &gateway,
        &format!("{FORM}\r\nContent-Length: 60000"),
        &format!("username=ada&x={}", "x".repeat(50_000)),
    );
    let in_memory = eventually("the memory is in use", || {
        let answer = curl(&["-i", "-d", "username=bob", &gateway.url("/login")]);
        answer.starts_with("HTTP/1.1 503 ").then_some(answer)
    });
    assert!(
        in_memory.to_ascii_lowercase().contains("retry-after: "),
        "{in_memory}"
    );
    assert_eq!(status(&["-d", "username=bob", &gateway.url("/other")]), 200);
    first
        .write_all("x".repeat(60_000 - 50_015).as_bytes())
        .unwrap();
    assert!(line(&first).starts_with("HTTP/1.1 200 "));
    assert_eq!(form(&gateway, "username=bob"), 200);
}

#[test]
fn one_client_leaves_memory_for_the_bodies_of_others() {
    let login = Login::start();
    let bounds = "trusted_proxies: [127.0.0.1]\nbody_keys: {max_memory: 512KiB, timeout: 60s}";
    let gateway = start(&login, BY_NAME, bounds);
    let head = format!("{FORM}\r\nX-Forwarded-For: 203.0.113.1\r\nContent-Length: 60000");
    let body = format!("username=ada&x={}", "x".repeat(50_000));
    let slow: Vec<_> = (0..10).map(|_| raw(&gateway, &head, &body)).collect();
    let from = |client: &str| {
        status(&[
            "-H",
            &format!("x-forwarded-for: {client}"),
            "-d",
            "username=bob",
            &gateway.url("/login"),
        ])
    };
    eventually("the client has its part", || {
        (from("203.0.113.1") == 503).then_some(())
    });
    assert_eq!(from("203.0.113.2"), 200);
    drop(slow);
}

#[test]
fn a_route_whose_limits_ask_for_no_body_streams_it() {
    let login = Login::start();
    let gateway = start(&login, BY_NAME, "");
    let mut stream = TcpStream::connect(gateway.listeners[0]).unwrap();
    write!(
        stream,
        "POST /plain HTTP/1.1\r\nHost: a\r\n{FORM}\r\nContent-Length: 12\r\n\r\nusername"
    )
    .unwrap();
    eventually("the upstream has the head", || {
        (!login.requests.lock().unwrap().is_empty()).then_some(())
    });
    stream.write_all(b"=ada").unwrap();
    assert!(line(&stream).starts_with("HTTP/1.1 200 "));
}

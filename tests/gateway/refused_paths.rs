//! Paths that are refused, and requests that go no further: what limits and upstreams see of them,
//! in both versions.

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::process::{Gateway, curl};

const VERSIONS: [&str; 2] = ["--http1.1", "--http2-prior-knowledge"];

fn status(arguments: &[&str]) -> String {
    curl(
        &[
            &["-o", "/dev/null", "-w", "%{http_code}", "--path-as-is"],
            arguments,
        ]
        .concat(),
    )
}

/// Some servers take each for another path than it is. None is free: a listener's limits count it.
#[test]
fn a_path_in_disguise_is_refused_and_counted_by_the_listeners_limits() {
    for version in VERSIONS {
        let gateway = Gateway::start(
            "
listeners: [{address: '127.0.0.1:0', limits: [ten]}]
admin: {address: '127.0.0.1:0'}
limits:
  ten: {key: client_ip, rate: 10/h, burst: 10}
routes:
  - {name: all, match: {path: '/*'}, echo: true}
",
        );
        let disguised = [
            "/..%2fadmin",
            "/a/%2e%2e%2Fadmin",
            "/a/..;/admin",
            "/a/..%5cadmin",
            "/a/..\\admin",
            "/a/.%2fadmin",
            "/a/..%3bx/admin",
            "/a%00",
            "/%00/../a",
        ];
        for path in disguised {
            assert_eq!(
                status(&[version, &gateway.url(path)]),
                "400",
                "{version} {path}"
            );
        }
        assert_eq!(
            status(&[version, &gateway.url("/a/%2e%2e/b")]),
            "200",
            "{version}"
        );
        for path in ["/", "/..%2fadmin"] {
            assert_eq!(
                status(&[version, &gateway.url(path)]),
                "429",
                "{version} {path}"
            );
        }
    }
}

/// Answers each request with its own head.
fn mirror() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut head) = (stream.unwrap(), Vec::new());
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if !matches!(stream.read(&mut byte), Ok(1)) {
                    break;
                }
                head.push(byte[0]);
            }
            let answer = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                head.len()
            );
            let _ = stream.write_all(&[answer.as_bytes(), &head].concat());
        }
    });
    address
}

#[test]
fn an_options_or_trace_goes_no_further_than_it_says() {
    let gateway = Gateway::start(&format!(
        "
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
upstreams:
  mirror: {{endpoints: ['http://{}']}}
routes:
  - {{name: few, match: {{path: /few, methods: [GET, OPTIONS, TRACE]}}, upstream: mirror}}
  - {{name: all, match: {{path: '/*'}}, upstream: mirror}}
",
        mirror()
    ));
    for version in VERSIONS {
        let sent = |method: &str, hops: &str, path: &str| {
            let field = format!("Max-Forwards: {hops}");
            curl(&[
                version,
                "-i",
                "-X",
                method,
                "-H",
                &field,
                "-H",
                "Cookie: secret",
                &gateway.url(path),
            ])
        };
        for method in ["OPTIONS", "TRACE"] {
            let answer = sent(method, "3", "/");
            assert!(
                answer.contains("max-forwards: 2\r\n"),
                "{version} {method}: {answer}"
            );
        }
        assert!(
            sent("GET", "0", "/").contains("max-forwards: 0\r\n"),
            "another method is left alone"
        );
        let options = sent("OPTIONS", "0", "/few").to_lowercase();
        assert!(
            options.contains(" 200") && options.contains("allow: get, options\r\n"),
            "{version}: {options}"
        );
        let trace = sent("TRACE", "0", "/").to_lowercase();
        assert!(
            trace.contains(" 405") && trace.contains("allow: get,"),
            "{version}: {trace}"
        );
        assert!(
            !trace.contains("secret") && !trace.contains("host:"),
            "{version}: {trace}"
        );
    }
}

/// Some servers take each for a path of the route that asks who the client is.
#[test]
fn a_path_that_some_servers_read_as_another_routes_is_refused_and_counted() {
    for version in VERSIONS {
        let gateway = Gateway::start(&format!(
            "
listeners: [{{address: '127.0.0.1:0', limits: [some]}}]
admin: {{address: '127.0.0.1:0'}}
limits:
  some: {{key: client_ip, rate: 24/d, burst: 24}}
upstreams:
  mirror: {{endpoints: ['http://{}']}}
routes:
  - {{name: admin, match: {{path: '/admin/*'}}, deny: [127.0.0.0/8], upstream: mirror}}
  - {{name: kept, match: {{path: '/projects/*'}}, ambiguous_paths: keep, upstream: mirror}}
  - {{name: user, match: {{path: '/users/{{id}}/*'}}, upstream: mirror}}
  - {{name: all, match: {{path: '/*'}}, upstream: mirror}}
  - {{name: other, match: {{path: '/admin%2Fecho'}}, echo: true}}
",
            mirror()
        ));
        let refused = [
            "/admin%2Fkeys",
            "/admin%2fkeys",
            "/admin%5Ckeys",
            "/admin\\keys",
            "/admin;a=1/keys",
            "/admin;",
            "/%61dmin;x/keys",
            "/admin%3Bx",
            "//admin;x",
            "/a;b%2Fc",
            "/users/7;0/x",
            "/users/7%3B0/x",
            "/users/7%2Fx/y",
        ];
        for path in refused {
            let status = status(&[version, &gateway.url(path)]);
            assert_eq!(status, "400", "{version} {path}");
        }
        let taken = [
            "/a%2Fb",
            "/a;b=c/d",
            "/users/7/x;0",
            "/projects/group%2Fname",
            "/projects/a;b%2Fc%5Cd",
            "/admin%2Fecho",
        ];
        for path in taken {
            let head = curl(&[version, "--path-as-is", &gateway.url(path)]);
            assert!(head.contains(path), "{version} {path}: {head}");
        }
        for _ in 0..5 {
            assert_eq!(
                status(&[version, &gateway.url("/admin;x")]),
                "400",
                "{version}"
            );
        }
        let status = status(&[version, &gateway.url("/admin;x")]);
        assert_eq!(status, "429", "{version}: a refusal is not free");
    }
}

#[test]
fn a_route_is_not_there_through_a_listener_that_does_not_serve_it() {
    let gateway = Gateway::start(
        "
listeners:
  - {name: public, address: '127.0.0.1:0'}
  - {name: internal, address: '127.0.0.1:0'}
  - {address: '127.0.0.1:0'}
admin: {address: '127.0.0.1:0'}
routes:
  - {name: secret, match: {path: '/secret/*'}, listeners: [internal], respond: {body: secret}}
  - {name: own, match: {path: '/a'}, listeners: [public], respond: {body: own}}
  - {name: a, match: {path: '/a'}, respond: {body: a}}
  - {name: twin, match: {path: '/b'}, listeners: [public], respond: {body: public}}
  - {name: other, match: {path: '/b'}, listeners: [internal], respond: {body: internal}}
",
    );
    let get = |listener: usize, path: &str| {
        let url = format!("http://{}{path}", gateway.listeners[listener]);
        curl(&["-w", " %{http_code}", &url])
    };
    let missing = |listener, path| get(listener, path).ends_with(" 404");
    assert!(missing(0, "/secret/x") && missing(2, "/secret/x"));
    assert_eq!(get(1, "/secret/x"), "secret 200");
    assert_eq!(
        [0, 1, 2].map(|listener| get(listener, "/a")),
        ["own 200", "a 200", "a 200"]
    );
    assert_eq!(
        [0, 1].map(|listener| get(listener, "/b")),
        ["public 200", "internal 200"]
    );
    assert!(missing(2, "/b"));
    let explained = |listener: usize| {
        let admin = gateway.admin;
        let url = format!("http://{admin}/explain?url=http://h/secret/x&listener={listener}");
        curl(&[&url])
    };
    assert!(
        explained(0).contains("\"other_listener\""),
        "{}",
        explained(0)
    );
    assert!(!explained(1).contains("\"refused\": {"), "{}", explained(1));
}

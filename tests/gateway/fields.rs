//! Header fields that routes change, and redirects, as a client with curl and the echo of a route
//! behind see them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use crate::process::{Gateway, curl};

/// `ECHO` is the address of a gateway that answers with what it got.
const ROUTES: &str = "
workers: 1
trusted_proxies: [127.0.0.1]
listeners: [{address: '127.0.0.1:0'}]
admin: {address: '127.0.0.1:0'}
limits:
  by-tenant: {key: {header: x-tenant}, rate: 1/h, burst: 1}
upstreams:
  echo: {endpoints: ['http://ECHO']}
  gone: {endpoints: ['http://127.0.0.1:9']}
routes:
  - name: changed
    match: {path: '/users/{id}/*'}
    ambiguous_paths: keep
    upstream: echo
    limits: [by-tenant]
    request_headers:
      remove: [x-internal, cookie]
      set:
        x-tenant: always-the-same
        x-client: '{client_ip} {scheme} {method} {route}'
        x-user: '{path.id}'
        x-target: '{host} {path} {query} {uri}'
        x-old: '{header.x-tenant}{{}}'
        x-nobody: '{client_certificate.subject}'
      add: {accept: text/plain}
    response_headers:
      remove: [ratelimit-policy, server]
      set: {x-request-id: 'id-{request_id}', x-frame-options: DENY}
      add: {set-cookie: a=b}
  - {name: gone, match: {path: /gone}, upstream: gone, response_headers: {set: {x-frame-options: DENY}}}
  - {name: moved, match: {host: old.example, path: '/a/*'}, redirect: {to: 'https://new.example{uri}', status: 308}}
  - {name: shop, match: {path: '/shop/{item}'}, redirect: {to: '{scheme}://{host}/items?is={path.item}'}}
";

fn start() -> (Gateway, Gateway) {
    let echo = Gateway::start(
        "workers: 1\nlisteners: [{address: '127.0.0.1:0'}]\nadmin: off\nroutes: [{name: echo, echo: true}]\n",
    );
    let gateway = Gateway::start(&ROUTES.replace("ECHO", &echo.listeners[0].to_string()));
    (gateway, echo)
}

fn head(url: &str, args: &[&str]) -> String {
    curl(&[&["-o", "/dev/null", "-D", "-"][..], args, &[url]].concat())
}

#[test]
fn requests_reach_the_upstream_with_the_fields_that_the_route_gives_them() {
    let (gateway, _echo) = start();
    let sent = [
        "-H",
        "x-tenant: acme",
        "-H",
        "X-Internal: 1",
        "-H",
        "cookie: a=b",
        "-H",
        "x-client: forged",
        "-H",
        "host: A.example:81",
    ];
    let url = gateway.url("/users/7%2f8/x?q=1&r");
    let seen: serde_json::Value = serde_json::from_str(&curl(
        &[&sent[..], &["-H", "x-forwarded-for: 192.0.2.1", &url]].concat(),
    ))
    .unwrap();
    let field = |name: &str| seen["headers"][name].clone();
    assert_eq!(
        (field("x-internal"), field("cookie")),
        (serde_json::Value::Null, serde_json::Value::Null),
        "{seen}"
    );
    assert_eq!(
        field("x-client"),
        serde_json::json!(["192.0.2.1 http GET changed"])
    );
    assert_eq!(field("x-user"), serde_json::json!(["7%2F8"]), "{seen}");
    assert_eq!(
        field("x-target"),
        serde_json::json!(["a.example /users/7%2f8/x q=1&r /users/7%2f8/x?q=1&r"])
    );
    assert_eq!(
        (field("x-old"), field("x-nobody")),
        (serde_json::json!(["acme{}"]), serde_json::Value::Null)
    );
    assert_eq!(field("accept"), serde_json::json!(["*/*", "text/plain"]));
}

#[test]
fn a_client_neither_removes_nor_disguises_what_a_route_sets() {
    let (gateway, _echo) = start();
    let url = gateway.url("/users/1/a");
    let sent = [
        "-H",
        "x-tenant: c",
        "-H",
        "Connection: x-user, X-Client, close",
        "-H",
        "x_user: forged",
        "-H",
        "X_INTERNAL: 1",
        "-H",
        "x.nobody: forged",
        "-H",
        "x~internal: 1",
        "-H",
        "x.forwarded.for: 9.9.9.9",
        "-H",
        "x~real~ip: 9.9.9.9",
    ];
    let seen: serde_json::Value =
        serde_json::from_str(&curl(&[&sent[..], &[&url]].concat())).unwrap();
    let headers = seen["headers"].as_object().unwrap();
    assert_eq!(headers["x-user"], serde_json::json!(["1"]), "{seen}");
    assert!(headers.contains_key("x-client"), "{seen}");
    assert!(
        headers.keys().all(|name| !name.contains(['_', '.', '~'])),
        "{seen}"
    );
}

#[test]
fn limits_count_by_what_the_client_sent() {
    let (gateway, _echo) = start();
    let status = |tenant: &str| {
        head(&gateway.url("/users/1/a"), &["-H", tenant])
            .split(' ')
            .nth(1)
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        ["x-tenant: a", "x-tenant: b", "x-tenant: a"].map(status),
        ["200", "200", "429"]
    );
}

#[test]
fn answers_carry_the_fields_of_the_route_whoever_they_come_from() {
    let (gateway, _echo) = start();
    let url = gateway.url("/users/1/a");
    let fields = ["-H", "x-tenant: t", "-H", "x-request-id: 42"];
    for status in ["200", "429"] {
        let head = head(&url, &fields);
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
        assert!(
            head.contains("\r\nx-request-id: id-42\r\n")
                && head.matches("x-request-id").count() == 1,
            "{head}"
        );
        assert!(
            head.contains("\r\nx-frame-options: DENY\r\n")
                && head.contains("\r\nset-cookie: a=b\r\n"),
            "{head}"
        );
        assert!(
            !head.contains("ratelimit-policy") && head.contains("\r\nratelimit: "),
            "{head}"
        );
    }
    let gone = head(&gateway.url("/gone"), &[]);
    assert!(
        gone.starts_with("HTTP/1.1 502") && gone.contains("\r\nx-frame-options: DENY\r\n"),
        "{gone}"
    );
}

#[test]
fn a_value_that_no_field_can_have_is_left_out() {
    let (gateway, _echo) = start();
    // Obs-text is not text.
    let output = curl(&["-H", "x-tenant: \u{e9}", &gateway.url("/users/1/a")]);
    let seen: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!(
        seen["headers"]["x-old"],
        serde_json::json!(["{}"]),
        "{seen}"
    );
}

#[test]
fn clients_are_sent_elsewhere_with_what_they_asked_for() {
    let (gateway, _echo) = start();
    let moved = head(
        &gateway.url("/a/b%20c?d=e&f"),
        &["-H", "host: OLD.example:80"],
    );
    assert!(
        moved.starts_with("HTTP/1.1 308")
            && moved.contains("\r\nlocation: https://new.example/a/b%20c?d=e&f\r\n"),
        "{moved}"
    );
    let shop = head(
        &gateway.url("/shop/tea"),
        &["-H", "host: s.example", "-H", "x-forwarded-proto: https"],
    );
    assert!(
        shop.starts_with("HTTP/1.1 302")
            && shop.contains("\r\nlocation: https://s.example/items?is=tea\r\n"),
        "{shop}"
    );
    let nameless = curl(&[
        "-0",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "-H",
        "host;",
        &gateway.url("/shop/tea"),
    ]);
    assert_eq!(nameless, "400");
    assert!(
        shop.contains("content-length: 0") && shop.contains("x-request-id: "),
        "{shop}"
    );
}

/// An upstream that answers one request with `answer`, and what it got of it, once it has seen
/// `end`.
pub fn upstream_until(end: &'static str, answer: &'static str) -> (SocketAddr, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let seen = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut seen, mut byte) = (Vec::new(), [0]);
        while !String::from_utf8_lossy(&seen).contains(end) && stream.read(&mut byte).unwrap() > 0 {
            seen.push(byte[0]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(seen).unwrap()
    });
    (address, seen)
}

#[test]
fn a_client_does_not_say_in_trailers_what_a_route_sets_or_removes() {
    let (address, seen) = upstream_until(
        "0\r\nx-sum: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    );
    let gateway = Gateway::start(&format!(
        "workers: 1\nlisteners: [{{address: '127.0.0.1:0'}}]\nadmin: off\nupstreams: {{up: {{endpoints: ['http://{address}']}}}}\n\
         routes: [{{name: a, upstream: up, request_headers: {{remove: [x-internal], set: {{x-user: ada}}}}}}]\n"
    ));
    let mut client = TcpStream::connect(gateway.listeners[0]).unwrap();
    client
        .write_all(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x-user, x_user, x-internal, x-sum\r\n\r\n\
              1\r\na\r\n0\r\nx-user: evil\r\nx_user: evil\r\nx-internal: 1\r\nx-sum: 1\r\n\r\n",
        )
        .unwrap();
    let seen = seen.join().unwrap().to_ascii_lowercase();
    assert!(
        seen.contains("\r\nx-user: ada\r\n")
            && !seen.contains("evil")
            && !seen.contains("internal: 1"),
        "{seen}"
    );
}

#[test]
fn a_route_may_say_what_no_client_may() {
    let echo = Gateway::start(
        "workers: 1\nlisteners: [{address: '127.0.0.1:0'}]\nadmin: off\nroutes: [{name: echo, echo: true}]\n",
    );
    let gateway = Gateway::start(&format!(
        "workers: 1\nlisteners: [{{address: '127.0.0.1:0'}}]\nadmin: off\nupstreams: {{up: {{endpoints: ['http://{}']}}}}\n\
         routes: [{{name: a, upstream: up, request_headers: {{set: {{x-real-ip: '{{client_ip}}', x-forwarded-prefix: /a}}}}}}]\n",
        echo.listeners[0]
    ));
    let claims = [
        "-H",
        "x-real-ip: 192.0.2.1",
        "-H",
        "x_real_ip: 192.0.2.1",
        "-H",
        "x-forwarded-user: evil",
    ];
    let output = curl(&[&claims[..], &[&gateway.url("/")]].concat());
    let seen: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!(
        seen["headers"]["x-real-ip"],
        serde_json::json!(["127.0.0.1"]),
        "{seen}"
    );
    assert_eq!(
        seen["headers"]["x-forwarded-prefix"],
        serde_json::json!(["/a"]),
        "{seen}"
    );
    assert!(
        !output.contains("192.0.2.1") && !output.contains("evil"),
        "{output}"
    );
}

#[test]
fn no_path_leads_a_redirect_to_another_host() {
    let gateway = Gateway::start(
        "workers: 1\nlisteners: [{address: '127.0.0.1:0'}]\nadmin: off\nroutes:\n\
         - {name: slash, match: {path: '/{page}'}, redirect: {to: '{path}/'}}\n\
         - {name: below, match: {path: '/go/{x}'}, redirect: {to: '/{path.x}'}}\n",
    );
    for (target, location) in [
        ("//evil.example", "/evil.example/"),
        ("/\\evil.example", "/%5Cevil.example/"),
        ("/go/\\evil.example", "/%5Cevil.example"),
    ] {
        let head = head(
            &gateway.url("/"),
            &["--path-as-is", "--request-target", target],
        );
        assert!(
            head.contains(&format!("\r\nlocation: {location}\r\n")),
            "{target}: {head}"
        );
    }
}

#[test]
fn early_hints_lack_what_the_route_removes_and_what_only_the_gateway_says() {
    let answer = "HTTP/1.1 103 Early Hints\r\nserver: secret\r\nlink: </a.css>\r\naccess-control-allow-origin: *\r\n\r\n\
                  HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let (address, _seen) = upstream_until("\r\n\r\n", answer);
    let gateway = Gateway::start(&format!(
        "workers: 1\nlisteners: [{{address: '127.0.0.1:0'}}]\nadmin: off\nupstreams: {{up: {{endpoints: ['http://{address}']}}}}\n\
         routes: [{{name: a, upstream: up, response_headers: {{remove: [server]}}, cors: {{origins: ['https://app.example.com']}}}}]\n"
    ));
    let head = head(&gateway.url("/"), &["-H", "origin: https://evil.example"]);
    assert!(
        head.starts_with("HTTP/1.1 103") && head.contains("link: </a.css>"),
        "{head}"
    );
    assert!(
        !head.contains("secret") && !head.contains("allow-origin"),
        "{head}"
    );
}

//! Header fields that routes change, and redirects, as a client with curl and the echo of a route behind see them.

use crate::process::{Gateway, curl};
use tollgate_test_support::turns;

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
    let _turn = turns::beside_others();
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
    let seen: serde_json::Value =
        serde_json::from_str(&curl(&[&sent[..], &["-H", "x-forwarded-for: 192.0.2.1", &url]].concat())).unwrap();
    let field = |name: &str| seen["headers"][name].clone();
    assert_eq!((field("x-internal"), field("cookie")), (serde_json::Value::Null, serde_json::Value::Null), "{seen}");
    assert_eq!(field("x-client"), serde_json::json!(["192.0.2.1 http GET changed"]));
    assert_eq!(field("x-user"), serde_json::json!(["7%2F8"]), "{seen}");
    assert_eq!(field("x-target"), serde_json::json!(["a.example /users/7%2f8/x q=1&r /users/7%2f8/x?q=1&r"]));
    assert_eq!((field("x-old"), field("x-nobody")), (serde_json::json!(["acme{}"]), serde_json::Value::Null));
    assert_eq!(field("accept"), serde_json::json!(["*/*", "text/plain"]));
}

#[test]
fn a_client_neither_removes_nor_disguises_what_a_route_sets() {
    let _turn = turns::beside_others();
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
    ];
    let seen: serde_json::Value = serde_json::from_str(&curl(&[&sent[..], &[&url]].concat())).unwrap();
    let headers = seen["headers"].as_object().unwrap();
    assert_eq!(headers["x-user"], serde_json::json!(["1"]), "{seen}");
    assert!(headers.contains_key("x-client"), "{seen}");
    assert!(headers.keys().all(|name| !name.contains('_')), "{seen}");
}

#[test]
fn limits_count_by_what_the_client_sent() {
    let _turn = turns::beside_others();
    let (gateway, _echo) = start();
    let status = |tenant: &str| head(&gateway.url("/users/1/a"), &["-H", tenant]).split(' ').nth(1).unwrap().to_owned();
    assert_eq!(["x-tenant: a", "x-tenant: b", "x-tenant: a"].map(status), ["200", "200", "429"]);
}

#[test]
fn answers_carry_the_fields_of_the_route_whoever_they_come_from() {
    let _turn = turns::beside_others();
    let (gateway, _echo) = start();
    let url = gateway.url("/users/1/a");
    let fields = ["-H", "x-tenant: t", "-H", "x-request-id: 42"];
    for status in ["200", "429"] {
        let head = head(&url, &fields);
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
        assert!(head.contains("\r\nx-request-id: id-42\r\n") && head.matches("x-request-id").count() == 1, "{head}");
        assert!(head.contains("\r\nx-frame-options: DENY\r\n") && head.contains("\r\nset-cookie: a=b\r\n"), "{head}");
        assert!(!head.contains("ratelimit-policy") && head.contains("\r\nratelimit: "), "{head}");
    }
    let gone = head(&gateway.url("/gone"), &[]);
    assert!(gone.starts_with("HTTP/1.1 502") && gone.contains("\r\nx-frame-options: DENY\r\n"), "{gone}");
}

#[test]
fn a_value_that_no_field_can_have_is_left_out() {
    let _turn = turns::beside_others();
    let (gateway, _echo) = start();
    // Obs-text is not text.
    let output = curl(&["-H", "x-tenant: \u{e9}", &gateway.url("/users/1/a")]);
    let seen: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!(seen["headers"]["x-old"], serde_json::json!(["{}"]), "{seen}");
}

#[test]
fn clients_are_sent_elsewhere_with_what_they_asked_for() {
    let _turn = turns::beside_others();
    let (gateway, _echo) = start();
    let moved = head(&gateway.url("/a/b%20c?d=e&f"), &["-H", "host: OLD.example:80"]);
    assert!(
        moved.starts_with("HTTP/1.1 308") && moved.contains("\r\nlocation: https://new.example/a/b%20c?d=e&f\r\n"),
        "{moved}"
    );
    let shop = head(&gateway.url("/shop/tea"), &["-H", "host: s.example", "-H", "x-forwarded-proto: https"]);
    assert!(
        shop.starts_with("HTTP/1.1 302") && shop.contains("\r\nlocation: https://s.example/items?is=tea\r\n"),
        "{shop}"
    );
    let nameless = curl(&["-0", "-o", "/dev/null", "-w", "%{http_code}", "-H", "host;", &gateway.url("/shop/tea")]);
    assert_eq!(nameless, "400");
    assert!(shop.contains("content-length: 0") && shop.contains("x-request-id: "), "{shop}");
}

//! Clients whose addresses a listener or a route does not take, as a client with curl sees them.

use crate::process::{Gateway, curl, eventually, status};

/// Two listeners, the second of which serves two networks only. Clients name themselves behind a
/// trusted proxy.
const ROUTES: &str = "
workers: 1
trusted_proxies: [127.0.0.1]
listeners:
  - {address: '127.0.0.1:0', limits: [everyone]}
  - {address: '127.0.0.1:0', allow: [10.0.0.0/8, '2001:db8::/32']}
admin: {address: '127.0.0.1:0'}
limits:
  everyone: {key: {constant: all}, rate: 1000/h, burst: 1000}
routes:
  - {name: open, match: {path: /open}, echo: true}
  - {name: staff, match: {path: /staff}, echo: true, allow: [10.0.0.0/8], deny: [10.9.0.0/16, 10.1.2.3]}
";

fn start() -> Gateway {
    Gateway::start(ROUTES)
}

fn url(gateway: &Gateway, listener: usize, path: &str) -> String {
    format!("http://{}{path}", gateway.listeners[listener])
}

fn from(gateway: &Gateway, listener: usize, client: &str, path: &str) -> u16 {
    status(&[
        "-H",
        &format!("x-forwarded-for: {client}"),
        &url(gateway, listener, path),
    ])
}

#[test]
fn a_route_takes_clients_that_are_allowed_and_not_denied() {
    let gateway = start();
    let clients = [
        "10.1.2.2",
        "10.1.2.3",
        "::ffff:10.1.2.3",
        "10.9.0.1",
        "10.10.0.1",
        "192.0.2.1",
        "2001:db8::1",
    ];
    let answers = clients.map(|client| from(&gateway, 0, client, "/staff"));
    assert_eq!(answers, [200, 403, 403, 403, 200, 403, 403]);
    assert_eq!(
        clients.map(|client| from(&gateway, 0, client, "/open")),
        [200; 7]
    );
}

#[test]
fn a_listener_takes_clients_before_any_route_and_both_have_to_take_them() {
    let gateway = start();
    let paths = ["/open", "/staff", "/nowhere"];
    assert_eq!(
        paths.map(|path| from(&gateway, 1, "192.0.2.1", path)),
        [403; 3]
    );
    assert_eq!(
        paths.map(|path| from(&gateway, 1, "10.0.0.1", path)),
        [200, 200, 404]
    );
    assert_eq!(
        paths.map(|path| from(&gateway, 1, "2001:db8::7", path)),
        [200, 403, 404]
    );
}

#[test]
fn a_client_cannot_name_itself_into_a_network() {
    let gateway = Gateway::start(&ROUTES.replace("trusted_proxies: [127.0.0.1]", ""));
    let spellings = [
        "x-forwarded-for: 10.0.0.1",
        "forwarded: for=10.0.0.1",
        "x-real-ip: 10.0.0.1",
    ];
    assert_eq!(
        spellings.map(|field| status(&["-H", field, &url(&gateway, 1, "/open")])),
        [403; 3]
    );
}

#[test]
fn a_refused_client_gets_a_problem_and_costs_the_others_no_token() {
    let gateway = start();
    let answer = curl(&[
        "-i",
        "-H",
        "x-forwarded-for: 192.0.2.1",
        &gateway.url("/staff"),
    ]);
    assert!(
        answer.contains("content-type: application/problem+json") && !answer.contains("ratelimit"),
        "{answer}"
    );
    assert!(
        answer.contains("\"type\":\"urn:tollgate:problem:network-refused\""),
        "{answer}"
    );
    let head = curl(&[
        "-o",
        "/dev/null",
        "-D",
        "-",
        "-H",
        "x-forwarded-for: 10.0.0.1",
        &gateway.url("/staff"),
    ]);
    assert!(head.contains("\"everyone\";r=999"), "{head}");
    assert_eq!(
        gateway.metric("tollgate_requests_total{route=\"staff\",method=\"GET\",status=\"403\"}"),
        1.0
    );
}

#[test]
fn a_refused_call_of_grpc_is_permission_denied() {
    let gateway = start();
    let fields = [
        "-H",
        "content-type: application/grpc",
        "-H",
        "te: trailers",
        "-H",
        "x-forwarded-for: 192.0.2.1",
    ];
    let url = gateway.url("/staff");
    let args = [
        &["-i", "--http2-prior-knowledge", "-X", "POST"][..],
        &fields,
        &[&url],
    ]
    .concat();
    let answer = curl(&args);
    assert!(answer.contains("grpc-status: 7\r\n"), "{answer}");
}

#[test]
fn a_reload_changes_the_networks() {
    let gateway = start();
    assert_eq!(from(&gateway, 0, "192.0.2.1", "/staff"), 403);
    gateway.rewrite(&ROUTES.replace("allow: [10.0.0.0/8], deny", "allow: [192.0.2.0/24], deny"));
    gateway.signal("HUP");
    crate::process::eventually("the new networks", || {
        (from(&gateway, 0, "192.0.2.1", "/staff") == 200).then_some(())
    });
}

/// Sixty clients behind a balancer that nobody has named, and one that asks for itself.
#[test]
fn a_proxy_that_nobody_has_named_is_warned_of_once_when_a_limit_takes_its_clients_for_one() {
    let gateway = Gateway::start(
        "workers: 1
listeners: [{address: '127.0.0.1:0'}]
admin: {address: '127.0.0.1:0'}
limits:
  each: {key: client_ip, rate: 1/h, burst: 2}
  all: {key: {constant: all}, rate: 1/h, burst: 1}
routes:
  - {name: each, match: {path: /each}, limits: [each], echo: true}
  - {name: all, match: {path: /all}, limits: [all], echo: true}
",
    );
    let warnings = || gateway.log().matches("none of trusted_proxies").count();
    let plain = |path: &str| status(&[&gateway.url(path)]);
    let statuses = [plain("/each"), from(&gateway, 0, "10.0.0.1", "/each")];
    assert_eq!(statuses, [200, 200]);
    assert_eq!(plain("/each"), 429, "a denial of nobody else's client");
    assert_eq!(from(&gateway, 0, "10.0.0.2", "/all"), 200);
    assert_eq!(from(&gateway, 0, "10.0.0.3", "/all"), 429, "by no address");
    assert_eq!(warnings(), 0, "{}", gateway.log());
    for client in ["10.0.0.4", "10.0.0.5", "10.0.0.6"] {
        assert_eq!(from(&gateway, 0, client, "/each"), 429);
    }
    eventually("the warning", || (warnings() > 0).then_some(()));
    assert_eq!(warnings(), 1, "{}", gateway.log());
}

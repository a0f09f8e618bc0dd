//! Routes, limits and failures as a client with curl sees them.

use crate::process::{Gateway, curl, status};

const ROUTES: &str = "
workers: 1
listeners:
  - address: 127.0.0.1:0
    limits: [everyone]
admin: {address: '127.0.0.1:0'}
limits:
  everyone: {key: {constant: all}, rate: 1000/s, burst: 1000}
  three-per-hour: {key: client_ip, rate: 3/h, burst: 3}
  by-tenant: {key: [{header: x-tenant}, route], rate: 1/h, burst: 1, on_missing: refuse}
  dear: {key: {constant: dear}, rate: 5/h, burst: 5}
upstreams:
  gone: {endpoints: ['http://127.0.0.1:9']}
routes:
  - {name: three, match: {path: /three}, echo: true, limits: [three-per-hour]}
  - {name: tenant, match: {path: /tenant}, echo: true, limits: [by-tenant]}
  - {name: open, match: {path: '/open/*'}, echo: true}
  - {name: both, match: {path: /both}, echo: true, limits: [by-tenant, {limit: dear, cost: 5}]}
  - {name: posted, match: {path: /posted, methods: [POST]}, echo: true, max_body: 10}
  - {name: gone, match: {path: '/gone/*'}, upstream: gone}
  - {name: user, match: {host: api.example, path: '/users/{id}'}, respond: {status: 202, body: user}}
";

fn start() -> Gateway {
    Gateway::start(ROUTES)
}

fn problem(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&curl(args)).unwrap()
}

#[test]
fn three_per_hour_admits_three_and_says_when_to_come_back() {
    let gateway = start();
    let url = gateway.url("/three");
    for left in [2, 1, 0] {
        let head = curl(&["-o", "/dev/null", "-D", "-", &url]);
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(
            head.contains(&format!("\"three-per-hour\";r={left};t=")),
            "{head}"
        );
    }
    let head = curl(&["-o", "/dev/null", "-D", "-", &url]);
    assert!(head.starts_with("HTTP/1.1 429"), "{head}");
    assert!(
        head.contains("\"everyone\";q=1000;w=1, \"three-per-hour\";q=3;w=3600"),
        "{head}"
    );
    assert!(
        head.contains("retry-after: 1200\r\n") && head.contains("\"three-per-hour\";r=0;t=1200"),
        "{head}"
    );
    let problem = problem(&[&url]);
    assert_eq!(
        problem["type"],
        "https://iana.org/assignments/http-problem-types#quota-exceeded"
    );
    assert_eq!(
        problem["violated-policies"],
        serde_json::json!(["three-per-hour"])
    );
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["request-id"].as_str().unwrap().len(), 32);

    let count = |verdict, limit| {
        gateway.metric(&format!(
            "tollgate_ratelimit_decisions_total{{limit=\"{limit}\",verdict=\"{verdict}\",decided_by=\"local\"}}"
        ))
    };
    assert_eq!(
        (
            count("allowed", "three-per-hour"),
            count("denied", "three-per-hour")
        ),
        (3.0, 2.0)
    );
    // A request that one limit denies is not charged to the other.
    assert_eq!(
        (count("allowed", "everyone"), count("denied", "everyone")),
        (3.0, 0.0)
    );
    assert_eq!(
        gateway.metric("tollgate_requests_total{route=\"three\",method=\"GET\",status=\"429\"}"),
        2.0
    );
}

#[test]
fn a_request_that_one_limit_denies_charges_no_other() {
    let gateway = start();
    let both =
        |tenant: &str| status(&["-H", &format!("x-tenant: {tenant}"), &gateway.url("/both")]);
    assert_eq!(both("a"), 200);
    assert_eq!(both("b"), 429, "the dear one is spent");
    let head = curl(&[
        "-o",
        "/dev/null",
        "-D",
        "-",
        "-H",
        "x-tenant: b",
        &gateway.url("/both"),
    ]);
    assert!(head.contains("\"by-tenant\";r=1;"), "{head}");
}

#[test]
fn a_key_of_header_and_route_counts_each_pair_and_refuses_a_missing_header() {
    let gateway = start();
    let ask = |tenant: &str| {
        status(&[
            "-H",
            &format!("x-tenant: {tenant}"),
            &gateway.url("/tenant"),
        ])
    };
    assert_eq!((ask("a"), ask("a"), ask("b")), (200, 429, 200));
    let refused = problem(&[&gateway.url("/tenant")]);
    assert_eq!(
        (refused["status"].as_u64(), refused["type"].as_str()),
        (Some(400), Some("urn:tollgate:problem:key-missing"))
    );
    assert_eq!(
        (&refused["limit"], &refused["missing"]),
        (&"by-tenant".into(), &"header.x-tenant".into())
    );
    let detail = refused["detail"].as_str().unwrap();
    assert!(
        detail.contains("the header field x-tenant") && detail.contains("by-tenant"),
        "{detail}"
    );
}

#[test]
fn a_request_without_a_route_is_404_or_405() {
    let gateway = start();
    assert_eq!(
        problem(&[&gateway.url("/nothing")])["type"],
        "urn:tollgate:problem:no-route"
    );
    let head = curl(&["-o", "/dev/null", "-D", "-", &gateway.url("/posted")]);
    assert!(
        head.starts_with("HTTP/1.1 405") && head.contains("allow: POST\r\n"),
        "{head}"
    );
    assert_eq!(
        status(&["-H", "host: api.example", &gateway.url("/users/7")]),
        202
    );
    assert_eq!(
        status(&["-H", "host: API.Example:80", &gateway.url("//users/./%37")]),
        202
    );
    assert_eq!(status(&[&gateway.url("/users/7")]), 404);
}

#[test]
fn the_upstream_sees_the_path_that_routing_and_limits_saw() {
    let gateway = start();
    let seen = |path: &str| {
        let text = curl(&["--path-as-is", &gateway.url(path)]);
        let echoed: serde_json::Value = serde_json::from_str(&text).unwrap();
        (
            echoed["route"].as_str().map(str::to_owned),
            echoed["path"].as_str().map(str::to_owned),
        )
    };
    let open = |path: &str| (Some("open".to_owned()), Some(path.to_owned()));
    assert_eq!(seen("/open/x//y%2Fz;v=1"), open("/open/x//y%2Fz;v=1"));
    assert_eq!(seen("/three/../open/%2E/x"), open("/open/x"));
    assert_eq!(seen("/open/../three").0.as_deref(), Some("three"));
    for path in [
        "/open/..%2Fthree",
        "/open/..;/three",
        "/open/..\\three",
        "/open/%2e%2e%5Cthree",
    ] {
        assert_eq!(status(&["--path-as-is", &gateway.url(path)]), 400, "{path}");
    }
}

#[test]
fn a_listeners_limits_count_requests_without_a_route() {
    let gateway =
        Gateway::start(&ROUTES.replace("rate: 1000/s, burst: 1000", "rate: 4/h, burst: 4"));
    let statuses: Vec<u16> = (0..3)
        .map(|_| status(&[&gateway.url("/nothing")]))
        .collect();
    assert_eq!(statuses, [404, 404, 404]);
    assert_eq!(
        (
            status(&[&gateway.url("/posted")]),
            status(&[&gateway.url("/posted")])
        ),
        (405, 429)
    );
    assert_eq!(
        gateway.metric("tollgate_requests_total{route=\"none\",method=\"GET\",status=\"429\"}"),
        1.0
    );
}

#[test]
fn a_body_over_max_body_is_413() {
    let gateway = start();
    let url = gateway.url("/posted");
    assert_eq!(status(&["-d", "0123456789", &url]), 200);
    assert_eq!(status(&["-d", "0123456789a", &url]), 413);
}

#[test]
fn an_upstream_that_is_down_is_502_with_a_problem() {
    let gateway = start();
    let problem = problem(&[&gateway.url("/gone/x")]);
    assert_eq!(
        (problem["status"].as_u64(), problem["title"].as_str()),
        (Some(502), Some("Bad Gateway"))
    );
    assert_eq!(problem["type"], "urn:tollgate:problem:connect-failed");
}

#[test]
fn http2_without_tls_comes_through_the_same_port() {
    let gateway = start();
    let url = gateway.url("/three");
    let head = curl(&[
        "--http2-prior-knowledge",
        "-o",
        "/dev/null",
        "-D",
        "-",
        &url,
    ]);
    assert!(
        head.starts_with("HTTP/2 200") && head.contains("\"three-per-hour\";r=2;"),
        "{head}"
    );
    let head = curl(&[
        "--http2-prior-knowledge",
        "-o",
        "/dev/null",
        "-D",
        "-",
        &gateway.url("/nothing"),
    ]);
    assert!(head.starts_with("HTTP/2 404"), "{head}");
}

#[test]
fn one_route_takes_lists_of_hosts_and_paths_and_what_expressions_find() {
    let gateway = Gateway::start(
        "workers: 1
listeners: [{address: '127.0.0.1:0'}]
admin: {address: '127.0.0.1:0'}
limits: {by-id: {key: {path: id}, rate: 1/h}}
routes:
  - {name: mail, match: {path: /v1/users/me/mail}, respond: {body: mail}}
  - name: users
    match:
      host: [api.example.com, '*.example.org']
      path: ['/people/{id}', {regex: '^/v[0-9]+/users/(?<id>[^/]+)(/mail)?$'}]
    redirect: {to: 'https://users.example/{path.id}'}
    limits: [by-id]
  - {name: rest, match: {path: /v1/*}, respond: {body: rest}}
",
    );
    let asked = |host: &str, path: &str| {
        let host = format!("Host: {host}");
        let written = "%{http_code} %{redirect_url}";
        curl(&[
            "-o",
            "/dev/null",
            "-w",
            written,
            "-H",
            &host,
            "--path-as-is",
            &gateway.url(path),
        ])
    };
    assert_eq!(
        asked("api.example.com", "/people/7"),
        "302 https://users.example/7"
    );
    assert_eq!(
        asked("a.example.org", "/v2/users/8"),
        "302 https://users.example/8"
    );
    assert_eq!(
        asked("a.example.org", "/v2/./users/%38/mail"),
        "429 ",
        "one user is counted by any spelling and path"
    );
    assert_eq!(asked("a.example.org", "/v10/users/7"), "429 ");
    assert_eq!(asked("a.example.org", "/v2/users/8/9"), "404 ");
    assert_eq!(asked("example.org", "/people/9"), "404 ");
    assert_eq!(curl(&[&gateway.url("/v1/users/me/mail")]), "mail");
    assert_eq!(
        curl(&[&gateway.url("/v1/users/9")]),
        "rest",
        "another host has no expressions"
    );
}

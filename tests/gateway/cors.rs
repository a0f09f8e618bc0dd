//! Pages of other origins, as a client with curl sees what browsers are told.

use crate::process::{Gateway, curl};

const ROUTES: &str = "
workers: 1
listeners: [{address: '127.0.0.1:0'}]
admin: {address: '127.0.0.1:0'}
limits:
  one: {key: client_ip, rate: 1/h, burst: 1}
  none-left: {key: client_ip, rate: 1/h, burst: 1}
upstreams:
  gone: {endpoints: ['http://127.0.0.1:9']}
routes:
  - name: app
    match: {path: /app, methods: [GET, POST]}
    echo: true
    limits: [one]
    cors: {origins: ['https://app.example.com', 'https://*.example.org', 'HTTP://Local:80'], credentials: true, expose: [x-total], max_age: 90s}
  - {name: open, match: {path: /open}, echo: true, cors: {origins: ['*'], headers: [x-token], methods: [PUT]}}
  - {name: gone, match: {path: /gone}, upstream: gone, cors: {origins: ['https://app.example.com']}}
  - {name: shut, match: {path: /app2}, echo: true}
  - {name: below, match: {path: '/mixed/*'}, echo: true, cors: {origins: ['*']}}
  - {name: write, match: {path: /mixed/write, methods: [POST]}, echo: true}
  - name: own
    match: {path: /own}
    respond: {status: 200, headers: {access-control-allow-origin: 'https://evil.example', access-control-allow-credentials: 'true', vary: accept}, body: own}
    cors: {origins: ['https://app.example.com']}
";

const APP: &str = "https://app.example.com";

fn start() -> Gateway {
    Gateway::start(ROUTES)
}

/// The head of the answer, in lower case.
fn head(gateway: &Gateway, path: &str, fields: &[&str]) -> String {
    let url = gateway.url(path);
    let fields = fields.iter().flat_map(|field| ["-H", field]);
    let args: Vec<_> = ["-o", "/dev/null", "-D", "-"]
        .into_iter()
        .chain(fields)
        .chain([&*url])
        .collect();
    curl(&args).to_ascii_lowercase()
}

fn preflight(gateway: &Gateway, path: &str, origin: &str, method: &str) -> String {
    let url = gateway.url(path);
    let (origin, method) = (
        format!("origin: {origin}"),
        format!("access-control-request-method: {method}"),
    );
    let headers = "access-control-request-headers: content-type, x-any";
    let fields = ["-H", &origin, "-H", &method, "-H", headers];
    curl(
        &[
            &["-o", "/dev/null", "-D", "-", "-X", "OPTIONS"][..],
            &fields,
            &[&url],
        ]
        .concat(),
    )
    .to_ascii_lowercase()
}

fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[test]
fn a_preflight_is_answered_by_the_route_of_the_method_that_it_asks_for_and_costs_no_token() {
    let gateway = start();
    for _ in 0..3 {
        let head = preflight(&gateway, "/app", APP, "POST");
        assert!(head.starts_with("http/1.1 200 ok\r\n"), "{head}");
        assert_eq!(
            field(&head, "access-control-allow-origin"),
            Some(APP),
            "{head}"
        );
        assert_eq!(
            field(&head, "access-control-allow-credentials"),
            Some("true"),
            "{head}"
        );
        assert_eq!(
            field(&head, "access-control-allow-methods"),
            Some("get,post"),
            "{head}"
        );
        assert_eq!(
            field(&head, "access-control-allow-headers"),
            Some("content-type, x-any"),
            "{head}"
        );
        assert_eq!(field(&head, "access-control-max-age"), Some("90"), "{head}");
        assert!(
            field(&head, "x-request-id").is_some() && field(&head, "ratelimit").is_none(),
            "{head}"
        );
    }
    let answered = head(&gateway, "/app", &["origin: https://app.example.com"]);
    assert!(
        answered.starts_with("http/1.1 200") && answered.contains("\"one\";r=0"),
        "{answered}"
    );
    assert_eq!(
        gateway.metric("tollgate_requests_total{route=\"app\",method=\"OPTIONS\",status=\"200\"}"),
        3.0
    );
}

#[test]
fn denials_and_failures_may_be_read_with_their_fields() {
    let gateway = start();
    let fields = ["origin: https://app.example.com"];
    let (first, denied) = (
        head(&gateway, "/app", &fields),
        head(&gateway, "/app", &fields),
    );
    let gone = head(&gateway, "/gone", &fields);
    for (answer, status) in [(&first, "200"), (&denied, "429"), (&gone, "502")] {
        assert!(
            answer.starts_with(&format!("http/1.1 {status}")),
            "{answer}"
        );
        assert_eq!(
            field(answer, "access-control-allow-origin"),
            Some(APP),
            "{answer}"
        );
        assert_eq!(field(answer, "vary"), Some("origin"), "{answer}");
        let exposed = field(answer, "access-control-expose-headers").unwrap();
        assert!(
            exposed.starts_with("ratelimit,ratelimit-policy,retry-after,x-request-id"),
            "{exposed}"
        );
        assert_eq!(exposed.ends_with(",x-total"), status != "502", "{exposed}");
    }
}

#[test]
fn a_page_of_an_origin_that_is_not_listed_is_told_nothing() {
    let gateway = start();
    let others = [
        "https://evil.example",
        "http://app.example.com",
        "https://app.example.com.evil",
        "null",
        "https://example.org",
    ];
    for origin in others {
        for answer in [
            preflight(&gateway, "/app", origin, "GET"),
            head(&gateway, "/own", &[&format!("origin: {origin}")]),
        ] {
            assert!(!answer.contains("access-control-"), "{origin}: {answer}");
            assert!(answer.contains("origin"), "{answer}");
        }
    }
    for origin in [
        "https://a.example.org",
        "https://a.b.example.org",
        "http://local",
    ] {
        let answer = preflight(&gateway, "/app", origin, "GET");
        assert_eq!(
            field(&answer, "access-control-allow-origin"),
            Some(origin),
            "{answer}"
        );
    }
}

#[test]
fn the_fields_of_the_action_give_way_and_its_vary_stays() {
    let gateway = start();
    let answer = head(&gateway, "/own", &["origin: https://app.example.com"]);
    let allowed: Vec<_> = answer
        .lines()
        .filter(|line| line.starts_with("access-control-allow"))
        .collect();
    assert_eq!(
        allowed,
        ["access-control-allow-origin: https://app.example.com"]
    );
    let vary: Vec<_> = answer
        .lines()
        .filter(|line| line.starts_with("vary"))
        .collect();
    assert_eq!(vary, ["vary: accept", "vary: origin"]);
    let without = head(&gateway, "/own", &[]);
    assert!(
        !without.contains("access-control-") && without.contains("vary: origin"),
        "{without}"
    );
}

#[test]
fn a_route_that_is_open_says_the_same_to_all() {
    let gateway = start();
    let answer = head(&gateway, "/open", &["origin: https://anybody.example"]);
    assert_eq!(
        (
            field(&answer, "access-control-allow-origin"),
            field(&answer, "vary")
        ),
        (Some("*"), None),
        "{answer}"
    );
    let preflight = preflight(&gateway, "/open", "https://anybody.example", "PUT");
    assert_eq!(
        field(&preflight, "access-control-allow-methods"),
        Some("put")
    );
    assert_eq!(
        field(&preflight, "access-control-allow-headers"),
        Some("x-token")
    );
}

#[test]
fn no_route_answers_a_preflight_for_another() {
    let gateway = start();
    let other = preflight(&gateway, "/mixed/write", APP, "POST");
    assert!(!other.contains("access-control-allow"), "{other}");
    assert!(
        preflight(&gateway, "/mixed/write", APP, "GET")
            .contains("access-control-allow-methods: get\r\n")
    );
}

#[test]
fn an_options_that_is_no_preflight_is_an_ordinary_request() {
    let gateway = start();
    let url = gateway.url("/app");
    let options = |field: &str| {
        curl(&[
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-X",
            "OPTIONS",
            "-H",
            field,
            &url,
        ])
    };
    // Without a method, and with one that is none.
    assert_eq!(options("origin: https://app.example.com"), "405");
    let fields = [
        "-H",
        "origin: https://app.example.com",
        "-H",
        "access-control-request-method: G T",
    ];
    let args = [
        &["-o", "/dev/null", "-w", "%{http_code}", "-X", "OPTIONS"][..],
        &fields,
        &[&url],
    ]
    .concat();
    assert_eq!(curl(&args), "405");
    // A method that the route does not take, and a route without rules.
    assert!(preflight(&gateway, "/app", APP, "DELETE").starts_with("http/1.1 405"));
    assert!(!preflight(&gateway, "/app2", APP, "GET").contains("access-control-allow"));
}

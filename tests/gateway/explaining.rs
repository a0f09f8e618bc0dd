//! `tollgate explain` says what the gateway does: each case is explained, and then really asked
//! for.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::process::{Gateway, curl};

const ROUTES: &str = "
workers: 1
listeners:
  - {address: '127.0.0.1:0', limits: [everyone]}
  - {address: '127.0.0.1:0'}
admin: {address: '127.0.0.1:0'}
trusted_proxies: [127.0.0.0/8]
limits:
  everyone: {key: {constant: all}, rate: 1000/s}
  per-client: {key: client_ip, rate: 10/h, burst: 20}
  per-user: {key: [{path: id}, {header: x-lang}], rate: 3/90s, on_outage: deny}
  optional: {key: {header: x-opt}, rate: 1/d, on_missing: skip, on_outage: allow}
  strict: {key: {cookie: sid}, rate: 5/m, on_missing: refuse}
routes:
  - {name: user, match: {host: api.example, path: '/users/{id}', methods: [GET]}, echo: true, limits: [per-client, {limit: per-user, cost: 2}]}
  - {name: canary, match: {host: api.example, path: '/users/{id}', headers: {x-canary: secret-value}}, echo: true}
  - {name: wild, match: {host: '*.example', path: '/users/*'}, echo: true, limits: [optional]}
  - {name: strict, match: {path: /strict}, echo: true, limits: [strict]}
  - {name: posted, match: {path: /posted, methods: [POST]}, echo: true}
  - {name: pages, match: {path: '/pages/*'}, echo: true}
";

const FORWARDING: &str = "
listeners: [{address: '127.0.0.1:8080'}]
upstreams:
  orders: {endpoints: ['http://10.0.0.11:8080', 'http://10.0.0.12:8080']}
routes:
  - {name: kept, match: {path: '/kept/*'}, upstream: orders, timeout: 5s, max_body: 64KiB}
  - {name: stripped, match: {path: '/v1/*'}, upstream: orders, strip_prefix: /v1, host: endpoint}
  - {name: fixed, match: {path: '/old/*'}, upstream: orders, replace_prefix: {from: /old, to: /new}, host: internal}
  - {name: teapot, match: {path: /tea}, respond: {status: 418}}
";

fn explain(routes: &str, args: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("routes.yaml");
    std::fs::write(&path, routes).unwrap();
    Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["explain", "--config"])
        .arg(path)
        .args(args)
        .output()
        .unwrap()
}

fn explained(routes: &str, args: &[&str]) -> Value {
    let output = explain(routes, &[args, &["--json"]].concat());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn why<'v>(view: &'v Value, route: &str) -> &'v str {
    let routes = view["routes"].as_array().unwrap();
    routes.iter().find(|one| one["route"] == route).unwrap()["why"]
        .as_str()
        .unwrap()
}

#[test]
fn the_explanation_and_the_gateway_name_the_same_route_or_refusal() {
    let gateway = Gateway::start(ROUTES);
    for (method, host, path, header) in [
        ("GET", "api.example", "/users/7", "x-lang: de"),
        ("GET", "API.Example:8080", "/x/..//users/%37", "x-lang: fr"),
        ("GET", "api.example", "/users/7", "x-canary: secret-value"),
        ("GET", "api.example", "/users/7", "x-canary: other"),
        ("POST", "api.example", "/users/7", "x-lang: de"),
        ("GET", "b.example", "/users/7/x", "x-opt: 1"),
        ("GET", "else", "/users/7", "x-opt: 1"),
        ("GET", "else", "/posted", "x-opt: 1"),
        ("GET", "else", "/pages", "x-opt: 1"),
        ("GET", "else", "/strict", "x-opt: 1"),
        ("GET", "else", "/strict", "cookie: sid=1"),
        ("GET", "else", "/nowhere", "x-opt: 1"),
        ("GET", "else", "/pages/..%2Fstrict", "x-opt: 1"),
    ] {
        let url = format!("http://{host}{path}");
        let view = explained(ROUTES, &[method, &url, "-H", header]);
        let target = gateway.url(path);
        let asked = curl(&[
            "--path-as-is",
            "-X",
            method,
            "-H",
            &format!("host: {host}"),
            "-H",
            header,
            &target,
        ]);
        let answered: Value = serde_json::from_str(&asked).unwrap();
        let case = format!("{method} {url} {header}: {view:#} but {answered:#}");
        match view["refused"].as_object() {
            None => assert_eq!(view["route"], answered["route"], "{case}"),
            Some(refused) => {
                assert_eq!(refused["status"], answered["status"], "{case}");
                let kind = answered["type"].as_str().unwrap();
                assert_eq!(
                    kind.rsplit(':').next(),
                    refused["problem"].as_str(),
                    "{case}"
                );
            }
        }
    }
}

#[test]
fn every_route_says_why_it_does_not_apply() {
    let view = explained(ROUTES, &["http://api.example/users/7", "-H", "x-lang: de"]);
    assert_eq!(view["route"], "user");
    for (route, reason) in [
        ("user", "applies"),
        ("canary", "other_header"),
        ("wild", "less_specific"),
        ("strict", "other_path"),
        ("posted", "other_path"),
    ] {
        assert_eq!(why(&view, route), reason, "{route}");
    }
    let view = explained(ROUTES, &["POST", "http://else/users/7"]);
    assert_eq!(
        (why(&view, "user"), why(&view, "pages")),
        ("other_host", "other_path")
    );
    let view = explained(ROUTES, &["http://else/posted"]);
    assert_eq!(why(&view, "posted"), "other_method");
    assert_eq!(
        view["refused"],
        json!({"status": 405, "problem": "method-not-allowed", "allow": "POST"})
    );
    assert!(
        !view.to_string().contains("secret-value"),
        "what a route asks for may be a secret"
    );
}

#[test]
fn limits_are_explained_in_order_with_their_buckets_in_the_store() {
    let args = [
        "http://api.example/users/7",
        "-H",
        "x-lang: d e",
        "--client-ip",
        "2001:db8:1:2:3::9",
    ];
    let view = explained(ROUTES, &args);
    let limits: Vec<_> = view["limits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|limit| &limit["limit"])
        .collect();
    assert_eq!(limits, ["everyone", "per-client", "per-user"]);
    assert_eq!(view["limits"][1]["bucket"], "per-client:2001:db8:1:2::/64");
    assert_eq!(view["limits"][2]["bucket"], "per-user:7|d%20e");
    assert_eq!(
        view["limits"][2]["policy"],
        policy(json!({"rate": "3/90s", "burst": 3, "cost": 2, "on_outage": "deny"}))
    );
    assert_eq!(view["limits"][2]["outage"], "every request is denied");
    let fields = "\"everyone\";q=1000;w=1, \"per-client\";q=20;w=7200, \"per-user\";q=1;w=90";
    assert_eq!(view["ratelimit_policy"], fields);

    let second = explained(ROUTES, &[&args[..], &["--listener", "1"]].concat());
    assert_eq!(
        second["limits"].as_array().unwrap().len(),
        2,
        "the other listener has no limits of its own"
    );
    let behind = [
        "http://a/pages",
        "--client-ip",
        "127.0.0.1",
        "-H",
        "x-forwarded-for: 203.0.113.9",
    ];
    let believed = explained(ROUTES, &behind);
    assert_eq!(believed["request"]["client_ip"], "203.0.113.9");
    assert_eq!(believed["request"]["note"], Value::Null);
    let stranger = [
        "http://a/pages",
        "--client-ip",
        "192.0.2.7",
        behind[3],
        behind[4],
    ];
    let request = &explained(ROUTES, &stranger)["request"];
    assert_eq!(request["client_ip"], "192.0.2.7");
    assert_eq!(
        request["note"],
        "X-Forwarded-For is not believed: 192.0.2.7 is none of trusted_proxies"
    );
}

/// A token bucket's, with the rest of its view.
fn policy(mut view: Value) -> Value {
    view["algorithm"] = "token_bucket".into();
    view
}

#[test]
fn windows_are_shown_as_they_are_written() {
    let routes = "
listeners: [{address: '127.0.0.1:8080'}]
limits:
  monthly: {key: client_ip, algorithm: fixed_window, rate: 1000/month, time_zone: Europe/Berlin}
  slide: {key: client_ip, algorithm: sliding_window, rate: 5/90s, cost: 2}
routes: [{name: all, echo: true, limits: [monthly, slide]}]
";
    let view = explained(routes, &["http://a/"]);
    let shown: Vec<_> = view["limits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|limit| limit["policy"].clone())
        .collect();
    let fixed = json!({"algorithm": "fixed_window", "rate": "1000/month in Europe/Berlin", "burst": 1000, "cost": 1, "on_outage": "local"});
    let sliding = json!({"algorithm": "sliding_window", "rate": "5/90s", "burst": 5, "cost": 2, "on_outage": "local"});
    assert_eq!(shown, [fixed, sliding]);
    let policy = view["ratelimit_policy"].as_str().unwrap();
    let secs = policy
        .strip_prefix("\"monthly\";q=1000;w=")
        .and_then(|rest| rest.strip_suffix(", \"slide\";q=2;w=90"));
    // A month of Berlin has 28 to 31 days, and an hour more or less when the clocks change.
    let hours = secs.unwrap().parse::<u64>().unwrap() / 3_600;
    assert!((28 * 24..=31 * 24 + 1).contains(&hours), "{policy}");
}

const LENIENT: &str = "
listeners: [{address: '127.0.0.1:8080', limits: [everyone]}]
upstreams: {cheap: {endpoints: ['http://10.0.0.11:8080']}}
limits:
  everyone: {key: client_ip, rate: 10/s, exempt: {client: [10.0.0.0/8]}}
  planned: {key: {header: x-tenant}, rate: 10/s, plans: {table: {acme: {rate: 500/s, cost: 5}}}, on_limit: {queue: {max_wait: 2s}}}
  cheaper: {key: {constant: all}, rate: 100/s, on_limit: {degrade: {upstream: cheap}}, consistency: leased}
  tried: {key: client_ip, rate: 1/s, on_limit: shadow}
  priced: {key: client_ip, rate: 100/s, cost: {body: 1KiB}, on_limit: {reject: {status: 503}}}
  settled: {key: client_ip, rate: 100/s, cost: {response_json: usage.total_tokens, reserve: 20, max: 800}}
  logins: {key: client_ip, rate: 5/m, count: {status: [401, 5xx]}}
routes:
  - {name: all, match: {path: /all}, echo: true, limits: [planned, cheaper, tried, priced]}
  - {name: settled, match: {path: /settled}, echo: true, limits: [settled]}
  - {name: login, match: {path: /login}, echo: true, limits: [logins]}
";

#[test]
fn a_limit_is_explained_with_its_policy_and_its_on_limit_action() {
    let view = explained(
        LENIENT,
        &[
            "http://a/all",
            "-H",
            "x-tenant: acme",
            "-H",
            "content-length: 5000",
        ],
    );
    let limits = view["limits"].as_array().unwrap();
    let over: Vec<_> = limits
        .iter()
        .map(|limit| limit["on_limit"].as_str().unwrap())
        .collect();
    assert_eq!(
        over,
        [
            "refused with 429",
            "waits up to 2s, with at most 99 others on this node; then refused with 429",
            "passes, and goes to cheap",
            "refused with 429",
            "refused with 503"
        ]
    );
    let planned = policy(
        json!({"rate": "500/s", "burst": 500, "cost": 5, "on_outage": "local", "plan": "acme", "plan_from": "the file"}),
    );
    assert_eq!(
        (&limits[1]["policy"], &limits[1]["bucket"]),
        (&planned, &json!("planned:acme"))
    );
    assert_eq!(limits[2]["policy"]["leased_us"], 50_000);
    assert_eq!(
        limits[3]["enforced"],
        "not at all: it counts, and lets everything pass"
    );
    assert_eq!(limits[4]["policy"]["cost"], 5);
    let fields = "\"everyone\";q=10;w=1, \"planned\";q=100;w=1, \"cheaper\";q=100;w=1, \
        \"priced\";q=102400;w=1;qu=\"content-bytes\"";
    assert_eq!(view["ratelimit_policy"], fields);

    let other = explained(
        LENIENT,
        &[
            "http://a/all",
            "-H",
            "x-tenant: other",
            "--client-ip",
            "10.1.2.3",
        ],
    );
    assert_eq!(
        other["limits"][0]["enforced"],
        "not on this request, which is exempt"
    );
    assert_eq!(other["limits"][0].get("bucket"), None);
    assert_eq!(
        (
            &other["limits"][1]["policy"]["rate"],
            other["limits"][1]["policy"].get("plan")
        ),
        (&json!("10/s"), None)
    );
    let said =
        String::from_utf8(explain(LENIENT, &["http://a/all", "-H", "x-tenant: acme"]).stdout)
            .unwrap();
    assert!(
        said.contains("planned: 500/s by plan acme, burst 500, this request costs 5\n"),
        "{said}"
    );
    assert!(said.contains("           acts    not at all: "), "{said}");

    let nowhere = explained(LENIENT, &["http://a/nowhere"]);
    assert_eq!(
        (
            &nowhere["limits"][0]["limit"],
            &nowhere["refused"]["status"]
        ),
        (&json!("everyone"), &json!(404))
    );
}

#[test]
fn a_cost_settled_by_the_response_is_explained_with_its_reservation() {
    let view = explained(LENIENT, &["http://a/settled"]);
    let policy = &view["limits"][1]["policy"];
    assert_eq!(policy["cost"], 20);
    assert_eq!(
        policy["settled"],
        json!({"by": "response_json usage.total_tokens", "max": 800})
    );
    let said = String::from_utf8(explain(LENIENT, &["http://a/settled"]).stdout).unwrap();
    let line =
        "cost    20 are reserved; settled by response_json usage.total_tokens, 800 at most\n";
    assert!(said.contains(line), "{said}");
}

#[test]
fn a_limit_that_counts_by_status_is_explained_with_the_codes() {
    let policy = &explained(LENIENT, &["http://a/login"])["limits"][1]["policy"];
    assert_eq!(
        (&policy["counted"], policy.get("settled")),
        (&json!("401, 5xx"), None)
    );
    let said = String::from_utf8(explain(LENIENT, &["http://a/login"]).stdout).unwrap();
    let line = "           counts  responses with 401, 5xx; what others took is given back\n";
    assert!(said.contains(line), "{said}");
}

#[test]
fn a_missing_key_part_is_named_with_its_consequence() {
    let shared = explained(ROUTES, &["http://api.example/users/7"]);
    assert_eq!(shared["limits"][2]["lacking"], json!(["header.x-lang"]));
    assert_eq!(shared["limits"][2]["bucket"], "per-user:7|%");
    let skipped = explained(ROUTES, &["http://b.example/users/7"]);
    assert_eq!(skipped["limits"][1]["note"], "does not apply without it");
    assert_eq!(skipped["limits"][1].get("bucket"), None);
    let refused = explained(ROUTES, &["http://a/strict"]);
    assert_eq!(
        refused["refused"],
        json!({"status": 400, "problem": "key-missing"})
    );
    let hashed = explained(ROUTES, &["http://a/strict", "-H", "cookie: sid=sesame"]);
    let bucket = hashed["limits"][1]["bucket"].as_str().unwrap();
    assert!(
        bucket.starts_with("strict:#") && !hashed.to_string().contains("sesame"),
        "{hashed}"
    );
}

#[test]
fn the_upstream_request_is_explained_with_its_target_and_host() {
    for (url, target, host) in [
        (
            "http://api.example:81/kept/%2Fa?b=c",
            "/kept/%2Fa?b=c",
            "api.example:81",
        ),
        ("http://api.example/v1/x?q", "/x?q", "the endpoint's"),
        ("http://api.example/old/x", "/new/x", "internal"),
    ] {
        let action = &explained(FORWARDING, &[url])["action"];
        assert_eq!(
            (&action["target"], &action["host"]),
            (&json!(target), &json!(host)),
            "{url}"
        );
        assert_eq!(
            action["endpoints"],
            json!(["http://10.0.0.11:8080", "http://10.0.0.12:8080"])
        );
    }
    let kept = &explained(FORWARDING, &["http://a/kept"])["action"];
    assert_eq!(
        (&kept["timeout"], &kept["max_body"]),
        (&json!("5s"), &json!("64KiB"))
    );
    assert_eq!(
        explained(FORWARDING, &["http://a/tea"])["action"],
        json!({"kind": "respond", "status": 418})
    );
}

#[test]
fn the_explanation_reads_top_to_bottom() {
    let args = [
        "http://api.example/users/7",
        "-H",
        "x-lang: de",
        "--client-ip",
        "203.0.113.9",
    ];
    let said = String::from_utf8(explain(ROUTES, &args).stdout).unwrap();
    let expected = "\
request  GET api.example/users/7 from 203.0.113.9 through listener 0
route    user
         takes api.example/users/{id}, GET
         not, for a header field: canary (api.example/users/{id}, with a certain x-canary)
         also, but less specific: wild (*.example/users/*)
         not, for the path: strict (/strict)
         not, for the path: posted (/posted, POST)
         not, for the path: pages (/pages/*)
limits   everyone: 1000/s, burst 1000, this request costs 1
";
    assert!(said.starts_with(expected), "{said}");
    assert!(
        said.contains("           bucket  per-user:7|de\n"),
        "{said}"
    );
    assert!(
        said.ends_with("action   answers with a description of the request\n"),
        "{said}"
    );
}

/// A route for each of a hundred hosts, and one for all.
fn many_routes() -> String {
    let host = |n| {
        format!(
            "  - {{name: r{n}, match: {{host: h{n}.example, path: /x, methods: [POST]}}, echo: true}}\n"
        )
    };
    let routes: String = (0..100).map(host).collect();
    let rest = "  - {name: rest, match: {path: '/*', methods: [GET, POST]}, echo: true}\n";
    format!("listeners: [{{address: '127.0.0.1:8080'}}]\nroutes:\n{routes}{rest}")
}

#[test]
fn routes_that_are_far_off_do_not_bury_the_answer() {
    let routes = many_routes();
    let said = |args: &[&str]| String::from_utf8(explain(&routes, args).stdout).unwrap();
    let near = "\
route    rest
         takes /*, GET or POST
         not, for the method: r7 (h7.example/x, POST)
         … and 99 more, which --all shows
limits   none
";
    assert!(
        said(&["h7.example/x"]).contains(near),
        "{}",
        said(&["h7.example/x"])
    );
    assert_eq!(
        said(&["h7.example/x", "--all"])
            .matches("not, for the host")
            .count(),
        99
    );
    assert_eq!(
        explained(&routes, &["h7.example/x"])["routes"]
            .as_array()
            .unwrap()
            .len(),
        101,
        "machines get all"
    );
    let nowhere = said(&["PUT", "h7.example/y"]);
    assert!(
        nowhere.contains("route    none\n         not, for the method: rest (/*, GET or POST)\n"),
        "{nowhere}"
    );
    assert!(
        nowhere.contains("not, for the path: r7 ") && nowhere.contains("… and 96 more"),
        "{nowhere}"
    );
}

#[test]
fn a_request_is_taken_as_people_type_it() {
    let routes = many_routes();
    for typed in [
        &["post", "h7.example/x"][..],
        &["-X", "Post", "http://h7.example/x"],
        &["POST", "h7.example:80/x"],
    ] {
        let view = explained(&routes, typed);
        assert_eq!(
            (&view["route"], &view["request"]["method"]),
            (&json!("r7"), &json!("POST")),
            "{typed:?}"
        );
    }
    let own = explained(&routes, &["-X", "frobnicate", "h7.example/x"]);
    assert_eq!(
        own["request"]["method"], "frobnicate",
        "a method is case-sensitive where nobody registered it"
    );
    assert_eq!(
        explain(&routes, &["GET", "h7.example/x", "-X", "GET"])
            .status
            .code(),
        Some(2)
    );
}

#[test]
fn a_mistake_in_the_arguments_has_an_exit_code_of_its_own() {
    assert_eq!(
        explain("listeners: []", &["http://a/"]).status.code(),
        Some(1)
    );
    assert_eq!(
        explain(ROUTES, &["http://a/", "--listener", "2"])
            .status
            .code(),
        Some(1)
    );
    for mistake in [
        &[][..],
        &["get"],
        &["http://a/", "-H", "nothing"],
        &["http://a/", "--client-ip", "me"],
    ] {
        assert_eq!(
            explain(ROUTES, mistake).status.code(),
            Some(2),
            "{mistake:?}"
        );
    }
}

#[test]
fn a_client_whose_network_is_not_served_is_asked_no_limit() {
    let routes = "
listeners: [{address: '127.0.0.1:0', limits: [all]}, {address: '127.0.0.1:1', deny: [192.0.2.0/24]}]
limits: {all: {key: client_ip, rate: 1/s}}
routes: [{name: staff, match: {path: /staff}, echo: true, allow: [10.0.0.0/8]}]";
    let ask = |args: &[&str]| {
        let view = explained(routes, &[&["http://a/staff"], args].concat());
        (
            view["route"].clone(),
            view["refused"]["status"].clone(),
            view["limits"].as_array().map(Vec::len),
        )
    };
    let (staff, null) = (Value::from("staff"), Value::Null);
    assert_eq!(
        ask(&["--client-ip", "10.8.0.1"]),
        (staff.clone(), null.clone(), Some(1))
    );
    assert_eq!(
        ask(&["--client-ip", "192.0.2.1"]),
        (staff, 403.into(), Some(0))
    );
    let elsewhere = explained(
        routes,
        &["http://a/b", "--client-ip", "192.0.2.1", "--listener", "1"],
    );
    assert_eq!(
        (&elsewhere["route"], &elsewhere["refused"]["status"]),
        (&null, &403.into()),
        "{elsewhere}"
    );
    let said =
        String::from_utf8(explain(routes, &["http://a/staff", "--client-ip", "192.0.2.1"]).stdout)
            .unwrap();
    assert!(
        said.contains("route    staff\n") && said.contains("answer   403 network-refused\n"),
        "{said}"
    );
    assert!(!said.contains("limits   none"), "{said}");
}

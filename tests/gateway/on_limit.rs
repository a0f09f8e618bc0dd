//! Each `on_limit` action as clients see it, with exemptions, rollouts, plans and costs.

use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use crate::process::{Gateway, curl, eventually, status};

fn routes(limits: &str, rest: &str) -> String {
    format!(
        "workers: 2
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
limits: {{{limits}}}
{rest}"
    )
}

fn echo_behind(limit: &str) -> String {
    routes(
        &format!("l: {limit}"),
        "routes: [{name: all, echo: true, limits: [l]}]\n",
    )
}

fn head(args: &[&str]) -> String {
    let args: Vec<&str> = ["-o", "/dev/null", "-D", "-"]
        .into_iter()
        .chain(args.iter().copied())
        .collect();
    curl(&args).to_ascii_lowercase()
}

fn series(verdict: &str) -> String {
    format!(
        "tollgate_ratelimit_decisions_total{{limit=\"l\",verdict=\"{verdict}\",decided_by=\"local\"}}"
    )
}

fn decisions(gateway: &Gateway, verdict: &str) -> f64 {
    gateway.metric(&series(verdict))
}

/// Sends a request and leaves the answer unread.
fn send(gateway: &Gateway, tenant: &str) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.listeners[0]).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    write!(
        stream,
        "GET /{tenant} HTTP/1.1\r\nHost: a\r\nx-tenant: {tenant}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    stream
}

fn answer(stream: TcpStream) -> String {
    let mut text = String::new();
    BufReader::new(stream).read_to_string(&mut text).unwrap();
    text
}

/// An upstream that answers every request with its name.
fn upstream(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
                head.push(byte[0]);
            }
            let length = name.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{name}"
            );
        }
    });
    address
}

fn waiting(gateway: &Gateway) -> f64 {
    gateway.metric("tollgate_ratelimit_queue_waiting{limit=\"l\"}")
}

fn until_waiting(gateway: &Gateway, count: f64) {
    eventually(&format!("{count} wait"), || {
        (waiting(gateway) == count).then_some(())
    });
}

#[test]
fn a_hidden_limit_denies_and_its_clients_see_the_others_alone() {
    let gateway = Gateway::start(&routes(
        "shown: {key: client_ip, rate: 9/h}, secret: {key: client_ip, rate: 2/h, hidden: true},
        by-tenant: {key: {header: x-tenant}, rate: 5/h, on_missing: refuse, hidden: true},
        other: {key: client_ip, rate: 1/h}, lesser: {key: client_ip, rate: 1/h, hidden: true, on_limit: {degrade: {respond: {body: less}}}}",
        "headers: {legacy_ratelimit: true}
routes:
  - {name: all, match: {path: /all}, echo: true, limits: [shown, secret]}
  - {name: alone, match: {path: /alone}, echo: true, limits: [secret]}
  - {name: both, match: {path: /both}, echo: true, limits: [other, secret]}
  - {name: tenants, match: {path: /tenants}, echo: true, limits: [by-tenant]}
  - {name: lesser, match: {path: /lesser}, echo: true, limits: [lesser]}
",
    ));
    for left in [8, 7] {
        let passed = head(&[&gateway.url("/all")]);
        assert!(
            passed.starts_with("http/1.1 200 ") && !passed.contains("secret"),
            "{passed}"
        );
        assert!(
            passed.contains("ratelimit-policy: \"shown\";q=9;w=3600\r\n"),
            "{passed}"
        );
        assert!(
            passed.contains(&format!("ratelimit: \"shown\";r={left};t=")),
            "{passed}"
        );
        assert!(
            passed.contains(&format!(
                "x-ratelimit-limit: 9\r\nx-ratelimit-remaining: {left}\r\n"
            )),
            "{passed}"
        );
    }
    let denied = curl(&["-i", &gateway.url("/all")]).to_ascii_lowercase();
    assert!(
        denied.starts_with("http/1.1 429 ") && denied.contains("\r\nretry-after: "),
        "{denied}"
    );
    assert!(
        denied.contains("problem-types#quota-exceeded") && denied.contains("\"shown\";r=7;"),
        "{denied}"
    );
    assert!(
        !denied.contains("secret") && !denied.contains("violated-policies"),
        "{denied}"
    );

    let alone = curl(&["-i", &gateway.url("/alone")]).to_ascii_lowercase();
    assert!(
        alone.starts_with("http/1.1 429 ") && alone.contains("\r\nretry-after: "),
        "{alone}"
    );
    assert!(
        !alone.contains("ratelimit") && !alone.contains("secret"),
        "{alone}"
    );
    let call = [
        "--http2-prior-knowledge",
        "-i",
        "-X",
        "POST",
        "-H",
        "content-type: application/grpc",
    ];
    let call = curl(&[&call[..], &[&gateway.url("/alone")]].concat());
    assert!(
        call.contains("grpc-status: 8\r\n") && call.contains("grpc-retry-pushback-ms: "),
        "{call}"
    );
    let details = call
        .lines()
        .find_map(|line| line.strip_prefix("grpc-status-details-bin: "))
        .unwrap();
    let details = String::from_utf8_lossy(&STANDARD_NO_PAD.decode(details).unwrap()).into_owned();
    assert!(
        details.contains("RetryInfo") && !details.contains("QuotaFailure"),
        "{details}"
    );

    let refused = curl(&["-i", &gateway.url("/tenants")]);
    assert!(
        refused.starts_with("HTTP/1.1 400 ") && refused.contains("x-tenant"),
        "{refused}"
    );
    assert!(!refused.contains("by-tenant"), "{refused}");
    assert!(status(&[&gateway.url("/lesser")]) == 200);
    let lesser = curl(&["-i", &gateway.url("/lesser")]);
    assert!(
        lesser.ends_with("less") && !lesser.contains("degraded") && !lesser.contains("lesser"),
        "{lesser}"
    );

    let counted = |limit: &str, verdict: &str| {
        gateway.metric(&format!(
            "tollgate_ratelimit_decisions_total{{limit=\"{limit}\",verdict=\"{verdict}\",decided_by=\"local\"}}"
        ))
    };
    assert_eq!(
        (counted("secret", "allowed"), counted("secret", "denied")),
        (2.0, 3.0)
    );
    let listed = curl(&[&format!("http://{}/limits", gateway.admin)]);
    assert!(
        listed.contains("\"secret\"") && listed.contains("\"hidden\": true"),
        "{listed}"
    );
}

#[test]
fn a_refusal_is_worded_by_the_operator_and_still_tells_when_to_come_back() {
    let refusal = "{status: 503, headers: {x-why: busy}, body: '{\"busy\":true}', content_type: application/json}";
    let gateway = Gateway::start(&echo_behind(&format!(
        "{{key: client_ip, rate: 2/h, on_limit: {{reject: {refusal}}}}}"
    )));
    let url = gateway.url("/");
    assert_eq!((status(&[&url]), status(&[&url])), (200, 200));
    let head = head(&[&url]);
    for line in [
        "http/1.1 503",
        "x-why: busy\r\n",
        "content-type: application/json\r\n",
        "x-content-type-options: nosniff\r\n",
        "retry-after: 1800\r\n",
        "ratelimit: \"l\";r=0;t=1800\r\n",
        "ratelimit-policy: \"l\";q=2;w=3600\r\n",
        "x-request-id: ",
    ] {
        assert!(head.contains(line), "{line} is not in {head}");
    }
    assert_eq!(curl(&[&url]), "{\"busy\":true}");
    assert_eq!(decisions(&gateway, "denied"), 2.0);
}

#[test]
fn queued_requests_are_served_in_order_as_tokens_come() {
    let gateway = Gateway::start(&routes(
        "l: {key: {constant: all}, rate: 1/s, burst: 1, on_limit: {queue: {max_wait: 1m, max_waiting: 10}}}",
        "routes: [{name: all, echo: true, limits: [l]}]\naccess_log: json\n",
    ));
    assert_eq!(status(&[&gateway.url("/")]), 200);
    let started = Instant::now();
    let mut waiters = Vec::new();
    for count in 1..=4 {
        waiters.push(send(&gateway, &count.to_string()));
        // Those before it may have been served by now.
        let arrived =
            || decisions(&gateway, "allowed") - 1.0 + waiting(&gateway) >= f64::from(count);
        eventually("it waits", || arrived().then_some(()));
    }
    for waiter in waiters {
        let answer = answer(waiter);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let took = started.elapsed();
    // The first token may have been on its way already. A request that is forgotten is refused when
    // the queue's time is over.
    assert!(took >= Duration::from_millis(2_900), "{took:?}");
    let log = eventually("all are logged", || {
        Some(gateway.log()).filter(|log| log.contains("\"/4\""))
    });
    let places = [1, 2, 3, 4].map(|count| log.find(&format!("\"/{count}\"")));
    assert!(places.is_sorted(), "{log}");
    assert_eq!(waiting(&gateway), 0.0);
    assert_eq!(
        (
            decisions(&gateway, "allowed"),
            decisions(&gateway, "denied")
        ),
        (5.0, 0.0)
    );
    assert_eq!(
        gateway.metric("tollgate_ratelimit_queue_wait_seconds_count{limit=\"l\"}"),
        4.0
    );
}

#[test]
fn a_full_queue_and_a_wait_beyond_max_wait_are_refused_at_once() {
    let gateway = Gateway::start(&echo_behind(
        "{key: {header: x-tenant}, rate: 1/m, burst: 1, on_limit: {queue: {max_wait: 1m, max_waiting: 3}}}",
    ));
    for tenant in ["a", "b", "c", "d"] {
        assert_eq!(
            status(&["-H", &format!("x-tenant: {tenant}"), &gateway.url("/")]),
            200
        );
    }
    let _waiters = ["a", "b", "c"].map(|tenant| send(&gateway, tenant));
    until_waiting(&gateway, 3.0);
    let full = head(&["-H", "x-tenant: d", &gateway.url("/")]);
    assert!(
        full.starts_with("http/1.1 429") && full.contains("retry-after: "),
        "{full}"
    );
    let behind = head(&["-H", "x-tenant: a", &gateway.url("/")]);
    assert!(
        behind.starts_with("http/1.1 429") && behind.contains("\"l\";r=0;t="),
        "{behind}"
    );

    let gateway = Gateway::start(&echo_behind("{key: client_ip, rate: 1/h, on_limit: queue}"));
    assert_eq!(
        (status(&[&gateway.url("/")]), status(&[&gateway.url("/")])),
        (200, 429)
    );
    assert_eq!(decisions(&gateway, "denied"), 1.0);
}

#[test]
fn a_client_that_fills_the_queue_does_not_keep_others_out() {
    let gateway = Gateway::start(&echo_behind(
        "{key: {header: x-tenant}, rate: 4/m, burst: 1, on_limit: {queue: {max_wait: 1m, max_waiting: 3}}}",
    ));
    for tenant in ["greedy", "other"] {
        assert_eq!(
            status(&["-H", &format!("x-tenant: {tenant}"), &gateway.url("/")]),
            200
        );
    }
    let mut greedy = Vec::new();
    for count in 1..=3 {
        greedy.push(send(&gateway, "greedy"));
        until_waiting(&gateway, f64::from(count));
    }
    let _other = send(&gateway, "other");
    let gave_way = answer(greedy.pop().unwrap());
    assert!(gave_way.starts_with("HTTP/1.1 429"), "{gave_way}");
    assert_eq!(waiting(&gateway), 3.0, "the other one has its place");
}

#[test]
fn a_client_that_leaves_the_queue_makes_room_at_once() {
    let gateway = Gateway::start(&echo_behind(
        "{key: {header: x-tenant}, rate: 2/m, burst: 1, on_limit: {queue: {max_wait: 1m, max_waiting: 2}}}",
    ));
    assert_eq!(status(&["-H", "x-tenant: a", &gateway.url("/")]), 200);
    let [first, second] = ["a", "a"].map(|tenant| send(&gateway, tenant));
    until_waiting(&gateway, 2.0);
    first.shutdown(Shutdown::Both).unwrap();
    until_waiting(&gateway, 1.0);
    drop(second);
    until_waiting(&gateway, 0.0);
    assert_eq!(
        decisions(&gateway, "allowed"),
        1.0,
        "those who left took nothing"
    );
}

#[test]
fn a_degraded_request_goes_to_another_upstream_and_says_so() {
    let (dear, cheap) = (upstream("dear"), upstream("cheap"));
    let gateway = Gateway::start(&routes(
        "l: {key: client_ip, rate: 1/h, on_limit: {degrade: {upstream: cheap}}},
         m: {key: {header: x-tenant}, rate: 1/h, on_limit: {degrade: {respond: {status: 202, body: later}}}, on_missing: skip},
         all: {key: {constant: all}, rate: 4/h}",
        &format!(
            "upstreams: {{dear: {{endpoints: ['http://{dear}']}}, cheap: {{endpoints: ['http://{cheap}']}}}}
routes: [{{name: all, upstream: dear, limits: [l, m, all]}}]
"
        ),
    ));
    let url = gateway.url("/");
    assert_eq!(
        (curl(&[&url]).as_str(), curl(&[&url]).as_str()),
        ("dear", "cheap")
    );
    assert_eq!(decisions(&gateway, "degraded"), 1.0);
    let degraded = head(&["-H", "x-tenant: a", &url]);
    assert!(
        degraded.starts_with("http/1.1 200") && degraded.contains("tollgate-degraded: l\r\n"),
        "{degraded}"
    );
    assert!(
        degraded.contains("\"all\";r=1;") && degraded.contains("\"l\";r=0;"),
        "{degraded}"
    );
    // Two limits degrade it: the first one says how. And it still counts.
    assert_eq!(curl(&["-H", "x-tenant: a", &url]), "cheap");
    assert_eq!(
        status(&[&url]),
        429,
        "whoever is degraded still takes from the limit of all"
    );
}

#[test]
fn a_degraded_request_may_get_a_fixed_answer() {
    let gateway = Gateway::start(&echo_behind(
        "{key: client_ip, rate: 1/h, on_limit: {degrade: {respond: {status: 202, headers: {x-a: b}, body: later}}}}",
    ));
    let url = gateway.url("/");
    assert_eq!(status(&[&url]), 200);
    let head = head(&[&url]);
    assert!(
        head.starts_with("http/1.1 202") && head.contains("x-a: b\r\n"),
        "{head}"
    );
    assert!(
        head.contains("tollgate-degraded: l\r\n") && head.contains("\"l\";r=0;t=3600"),
        "{head}"
    );
    assert!(!head.contains("retry-after"), "{head}");
    assert_eq!(curl(&[&url]), "later");
}

#[test]
fn a_shadow_limit_counts_and_shows_nothing_to_clients() {
    let gateway = Gateway::start(&echo_behind(
        "{key: client_ip, rate: 2/h, on_limit: shadow}",
    ));
    for _ in 0..5 {
        let head = head(&[&gateway.url("/")]);
        assert!(
            head.starts_with("http/1.1 200") && !head.contains("ratelimit"),
            "{head}"
        );
    }
    assert_eq!(
        (
            decisions(&gateway, "shadow_allowed"),
            decisions(&gateway, "shadow_denied")
        ),
        (2.0, 3.0)
    );
    assert_eq!(
        (
            gateway.find_metric(&series("allowed")),
            gateway.find_metric(&series("denied"))
        ),
        (None, None)
    );
}

#[test]
fn a_partial_rollout_enforces_the_limit_on_the_same_clients_on_every_node() {
    let of = |share: &str| {
        echo_behind(&format!(
            "{{key: {{header: x-tenant}}, rate: 1/h, enforce: {share}}}"
        ))
    };
    let held = |gateway: &Gateway| -> Vec<bool> {
        let ask = |n| status(&["-H", &format!("x-tenant: {n}"), &gateway.url("/")]);
        (0..24).map(|n| (ask(n), ask(n)) == (200, 429)).collect()
    };
    let (half, again, most) = (
        Gateway::start(&of("50%")),
        Gateway::start(&of("50%")),
        Gateway::start(&of("90%")),
    );
    let (in_half, in_most) = (held(&half), held(&most));
    assert_eq!(in_half, held(&again), "on every node");
    assert!(
        in_half.contains(&true) && in_half.contains(&false),
        "{in_half:?}"
    );
    assert!(
        in_half
            .iter()
            .zip(&in_most)
            .all(|(half, most)| *most || !half),
        "{in_half:?} {in_most:?}"
    );
    let shadows = in_half.iter().filter(|held| !**held).count() as f64;
    assert_eq!(
        (
            decisions(&half, "shadow_allowed"),
            decisions(&half, "shadow_denied")
        ),
        (shadows, shadows)
    );
}

#[test]
fn an_exempt_request_is_not_charged_and_gets_no_ratelimit_fields() {
    let gateway = Gateway::start(&echo_behind(
        "{key: {constant: all}, rate: 1/h, exempt: {client: [192.0.2.0/24], headers: {x-internal: 'yes'}}}",
    ));
    let url = gateway.url("/");
    for _ in 0..2 {
        let head = head(&["-H", "x-internal: yes", &url]);
        assert!(
            head.starts_with("http/1.1 200") && !head.contains("ratelimit"),
            "{head}"
        );
    }
    assert_eq!(
        (
            status(&[&url]),
            status(&[&url]),
            status(&["-H", "x-internal: no", &url])
        ),
        (200, 429, 429)
    );
    assert_eq!(decisions(&gateway, "exempt"), 2.0);

    let gateway = Gateway::start(&echo_behind(
        "{key: {constant: all}, rate: 1/h, exempt: {client: [127.0.0.0/8]}}",
    ));
    assert_eq!(
        (status(&[&gateway.url("/")]), status(&[&gateway.url("/")])),
        (200, 200)
    );
}

#[test]
fn a_client_has_the_rate_of_its_plan_and_keeps_its_bucket() {
    let gateway = Gateway::start(&echo_behind(
        "{key: {header: x-tenant}, rate: 2/h, plans: {by: {header: x-plan}, table: {gold: {rate: 6/h, cost: 2}}}}",
    ));
    let ask = |tenant: &str, plan: &str| {
        head(&[
            "-H",
            &format!("x-tenant: {tenant}"),
            "-H",
            &format!("x-plan: {plan}"),
            &gateway.url("/"),
        ])
    };
    let plain = ask("a", "none");
    assert!(
        plain.contains("\"l\";q=2;w=3600\r\n") && plain.contains("\"l\";r=1;"),
        "{plain}"
    );
    let gold = ask("a", "gold");
    assert!(
        gold.contains("\"l\";q=3;w=3600\r\n") && gold.contains("\"l\";r=1;"),
        "one and two of six are used: {gold}"
    );
    assert!(ask("a", "gold").starts_with("http/1.1 200"));
    assert!(ask("a", "gold").starts_with("http/1.1 429"));
    assert!(
        ask("a", "none").starts_with("http/1.1 429"),
        "no refill for who leaves a plan"
    );
    assert!(ask("b", "none").starts_with("http/1.1 200"));
}

#[test]
fn a_request_costs_what_a_header_says() {
    let gateway = Gateway::start(&echo_behind(
        "{key: client_ip, rate: 100/h, cost: {header: x-cost, default: 2, max: 40}}",
    ));
    let url = gateway.url("/");
    let costing = |said: &str| head(&["-H", &format!("x-cost: {said}"), &url]);
    let thirty = costing("30");
    assert!(
        thirty.contains("\"l\";q=100;w=3600;qu=\"tokens\"\r\n") && thirty.contains("\"l\";r=70;"),
        "{thirty}"
    );
    assert!(head(&[&url]).contains("\"l\";r=68;"));
    assert!(costing("lots").contains("\"l\";r=28;"));
    assert!(costing("29").starts_with("http/1.1 429"));
    assert!(costing("28").starts_with("http/1.1 200"));
}

#[test]
fn a_request_costs_by_its_content_length_and_the_maximum_without_one() {
    let gateway = Gateway::start(&echo_behind(
        "{key: client_ip, rate: 20/h, cost: {body: 10B, max: 8}}",
    ));
    let url = gateway.url("/");
    let bare = head(&[&url]);
    assert!(
        bare.contains("\"l\";q=200;w=3600;qu=\"content-bytes\"\r\n"),
        "twenty tokens of ten bytes: {bare}"
    );
    assert!(
        bare.contains("\"l\";r=190;"),
        "a request without a body is one token: {bare}"
    );
    assert!(head(&["-d", "0123456789", &url]).contains("\"l\";r=180;"));
    assert!(head(&["-d", "0123456789a", &url]).contains("\"l\";r=160;"));
    assert!(head(&["--http2-prior-knowledge", &url]).contains("\"l\";r=150;"));
    let chunked = head(&["-H", "transfer-encoding: chunked", "-d", "0", &url]);
    assert!(chunked.contains("\"l\";r=70;"), "{chunked}");
}

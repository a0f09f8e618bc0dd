//! The operator's look into a running gateway: buckets, changes that reach the fleet, explanations.

use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value, json};

use crate::load::Load;
use crate::process::{Gateway, curl, eventually, status};
use tollgate_testing::redis::RedisServer;
use tollgate_testing::turns;

const OPERATOR: &str = "X-Tollgate-Operator: ada";

fn routes(store: &str) -> String {
    format!(
        "workers: 2
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
{store}
limits:
  per-client: {{key: client_ip, rate: 10/h, burst: 20}}
  per-tenant: {{key: [{{header: x-api-key}}, route], rate: 2/h, burst: 2, on_missing: refuse}}
routes:
  - {{name: all, match: {{path: '/*'}}, respond: {{status: 200, body: ok}}, limits: [per-client]}}
  - {{name: tenant, match: {{path: /tenant}}, respond: {{status: 200, body: ok}}, limits: [per-tenant]}}
"
    )
}

fn with_redis(redis: &RedisServer) -> String {
    routes(&format!(
        "store: {{redis: 'redis://127.0.0.1:{}', timeout: 1s}}",
        redis.port()
    ))
}

fn admin(gateway: &Gateway, target: &str) -> String {
    format!("http://{}{target}", gateway.admin)
}

fn get(gateway: &Gateway, target: &str) -> Value {
    serde_json::from_str(&curl(&["-g", &admin(gateway, target)])).unwrap()
}

fn change(gateway: &Gateway, method: &str, target: &str) -> Value {
    serde_json::from_str(&curl(&[
        "-g",
        "-X",
        method,
        "-H",
        OPERATOR,
        &admin(gateway, target),
    ]))
    .unwrap()
}

/// Sends so many requests. Returns how many of them passed.
fn spend(gateway: &Gateway, requests: usize) -> usize {
    (0..requests)
        .filter(|_| status(&[&gateway.url("/")]) == 200)
        .count()
}

const BUCKET: &str = "/buckets/per-client?client_ip=127.0.0.1";
const GRANT: &str = "/buckets/per-client/grant?client_ip=127.0.0.1";

fn remaining(gateway: &Gateway, target: &str) -> u64 {
    gateway.bucket(target)["remaining"].as_u64().unwrap()
}

fn cli(gateway: &Gateway, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command
        .args(args)
        .env("TOLLGATE_ADMIN", format!("http://{}", gateway.admin))
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn reading_a_bucket_changes_nothing_and_shows_what_requests_see() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&with_redis(&redis));
    assert_eq!(gateway.bucket(BUCKET)["full"], true);
    assert_eq!(spend(&gateway, 3), 3);
    let stored = || redis.command(&["GET", "tollgate:per-client:127.0.0.1"]);
    let before = stored();
    assert!(before.starts_with('b'), "a bucket: {before}");
    let seen = gateway.bucket(BUCKET);
    assert_eq!(
        (seen["remaining"].as_u64(), seen["full"].as_bool()),
        (Some(17), Some(false))
    );
    assert_eq!(
        (&seen["source"], &seen["key"]),
        (&json!("redis"), &json!("per-client:127.0.0.1"))
    );
    assert_eq!(
        seen["policy"],
        json!({"algorithm": "token_bucket", "rate": "10/h", "burst": 20, "cost": 1, "on_outage": "local"})
    );
    assert_eq!(seen["retry_after"], 0.0);
    let reset = seen["reset_after"].as_f64().unwrap();
    assert!(reset > 1_000.0 && reset <= 1_080.0, "{reset}");
    get(&gateway, "/explain?url=http://a/&client_ip=127.0.0.1");
    get(&gateway, "/buckets/per-client?key=per-client:127.0.0.1");
    change(&gateway, "DELETE", &format!("{BUCKET}&dry_run=true"));
    change(&gateway, "POST", &format!("{GRANT}&tokens=1&dry_run=true"));
    assert_eq!(stored(), before, "byte for byte");
    assert_eq!(
        remaining(&gateway, &format!("{BUCKET}&local=true")),
        17,
        "nor is what the node holds"
    );
}

#[test]
fn secrets_are_shown_as_a_hash_and_a_hash_finds_its_bucket() {
    let gateway = Gateway::start(&routes(""));
    assert_eq!(
        status(&["-H", "x-api-key: sesame", &gateway.url("/tenant")]),
        200
    );
    let seen = get(
        &gateway,
        "/buckets/per-tenant?header.x-api-key=sesame&route=tenant",
    );
    let key = seen["key"].as_str().unwrap();
    assert!(
        key.starts_with("per-tenant:#") && key.ends_with("|tenant") && !key.contains("sesame"),
        "{key}"
    );
    assert_eq!(seen["remaining"], 1);
    assert_eq!(
        remaining(
            &gateway,
            &format!("/buckets/per-tenant?key={}", key.replace('#', "%23"))
        ),
        1
    );
}

#[test]
fn a_reset_reaches_the_caches_of_another_node() {
    let mut redis = RedisServer::start();
    let [here, there] = [(); 2].map(|()| Gateway::start(&with_redis(&redis)));
    for gateway in [&here, &there] {
        eventually("both nodes are known", || {
            (gateway.metric("tollgate_fleet_nodes") == 2.0).then_some(())
        });
    }
    assert_eq!(spend(&there, 21), 20);
    let held = format!("{BUCKET}&local=true");
    assert_eq!(
        remaining(&there, &held),
        0,
        "the other node holds that the bucket is empty"
    );

    let done = change(&here, "DELETE", BUCKET);
    assert_eq!(
        (&done["before"]["remaining"], &done["after"]["remaining"]),
        (&json!(0), &json!(20))
    );
    assert_eq!(
        (&done["after"]["full"], done.get("not_told")),
        (&json!(true), None)
    );
    assert_eq!(remaining(&there, BUCKET), 20, "redis knows at once");
    eventually("the other node lets go", || {
        (remaining(&there, &held) == 10).then_some(())
    });

    redis.kill9();
    eventually("the store is away", || {
        status(&["-H", "x-api-key: k", &there.url("/tenant")]);
        (there.metric("tollgate_store_up") == 0.0).then_some(())
    });
    assert_eq!(spend(&there, 11), 10, "its share of a full bucket");
}

#[test]
fn a_reset_clears_the_denial_cache_of_every_node() {
    let redis = RedisServer::start();
    let nodes = [(); 2].map(|()| Gateway::start(&with_redis(&redis)));
    assert_eq!(spend(&nodes[0], 20), 20);
    for node in &nodes {
        let cached = "tollgate_ratelimit_decisions_total{limit=\"per-client\",verdict=\"denied\",decided_by=\"denial_cache\"}";
        assert_eq!(spend(node, 3), 0);
        assert!(
            node.metric(cached) >= 2.0,
            "the node keeps the denial for minutes"
        );
    }
    change(&nodes[0], "DELETE", BUCKET);
    assert_eq!(spend(&nodes[0], 1), 1, "at once where it was asked for");
    eventually("the other node asks again", || {
        (spend(&nodes[1], 1) == 1).then_some(())
    });
    change(&nodes[1], "POST", &format!("{GRANT}&tokens=20"));
    assert_eq!(
        (0..2)
            .map(|_| spend(&nodes[0], 1) + spend(&nodes[1], 9))
            .sum::<usize>(),
        20
    );
    assert_eq!(spend(&nodes[0], 1) + spend(&nodes[1], 1), 0);
}

#[test]
fn a_reset_of_a_leased_limit_admits_one_burst() {
    let _turn = turns::among_few();
    let redis = RedisServer::start();
    let leased = with_redis(&redis).replace(
        "rate: 10/h, burst: 20}",
        "rate: 200/h, burst: 200, consistency: leased}",
    );
    let nodes = [(); 2].map(|()| Gateway::start(&leased));
    let targets = [nodes[0].listeners[0], nodes[1].listeners[0]];
    let flat_out = || {
        let load = Load::start(&targets, 4, Duration::ZERO);
        let denied = |target: usize| {
            load.samples()
                .iter()
                .filter(|sample| sample.target == target && sample.status == 429)
                .count()
        };
        eventually("both nodes deny", || {
            (denied(0) > 50 && denied(1) > 50).then_some(())
        });
        load.stop()
            .iter()
            .filter(|sample| sample.status == 200)
            .count()
    };
    // A node that the machine holds up loses what it has leased and not used within 50 ms. Without
    // the reset, a token comes in eighteen seconds.
    let one_burst = 20..=201;
    let first = flat_out();
    assert!(one_burst.contains(&first), "{first}");
    change(&nodes[0], "DELETE", BUCKET);
    eventually("the other node has heard of it", || {
        // On a busy machine an answer of before may come only now.
        status(&[&nodes[1].url("/")]);
        (remaining(&nodes[1], &format!("{BUCKET}&local=true")) > 50).then_some(())
    });
    let second = flat_out();
    assert!(one_burst.contains(&second), "{second}");
}

#[test]
fn a_bucket_is_shown_and_changed_by_its_clients_plan() {
    let redis = RedisServer::start();
    let plans = "burst: 20, plans: {by: {header: x-plan}, table: {gold: {rate: 100/h}}}}";
    let routes = with_redis(&redis).replace("burst: 20}", plans);
    let [here, there] = [(); 2].map(|()| Gateway::start(&routes));
    for gateway in [&here, &there] {
        eventually("both nodes are known", || {
            (gateway.metric("tollgate_fleet_nodes") == 2.0).then_some(())
        });
    }
    let spend_gold = |gateway: &Gateway, requests: usize| {
        let asked = (0..requests).map(|_| status(&["-H", "x-plan: gold", &gateway.url("/")]));
        asked.filter(|status| *status == 200).count()
    };
    assert_eq!(spend_gold(&there, 80), 80);
    let gold = format!("{BUCKET}&header.x-plan=gold");
    let seen = here.bucket(&gold);
    assert_eq!(
        (
            &seen["remaining"],
            &seen["policy"]["plan"],
            seen.get("note")
        ),
        (&json!(20), &json!("gold"), None)
    );
    assert_eq!(
        (&seen["policy"]["rate"], &seen["policy"]["burst"]),
        (&json!("100/h"), &json!(100))
    );
    assert_eq!(
        here.bucket(BUCKET)["note"],
        "as without a plan: plans go by header.x-plan"
    );
    let by_key = "/buckets/per-client?key=per-client:127.0.0.1&header.x-plan=gold";
    assert_eq!(remaining(&here, by_key), 20);

    let unsaid = change(&here, "POST", &format!("{GRANT}&tokens=10"));
    assert_eq!(unsaid["status"], 400, "{unsaid}");
    assert!(
        unsaid["hint"]
            .as_str()
            .unwrap()
            .starts_with("add header.x-plan=…"),
        "{unsaid}"
    );
    let given = change(
        &here,
        "POST",
        &format!("{GRANT}&tokens=10&header.x-plan=gold"),
    );
    assert_eq!(
        (&given["before"]["remaining"], &given["after"]["remaining"]),
        (&json!(20), &json!(30))
    );
    let held = format!("{gold}&local=true");
    eventually("the other node has heard of it", || {
        (remaining(&there, &held) == 15).then_some(())
    });
    assert_eq!(spend_gold(&there, 31), 30);

    let explained = get(
        &here,
        "/explain?url=http://a/&client_ip=127.0.0.1&header.x-plan=gold",
    );
    assert_eq!(
        explained["limits"][0]["policy"]["plan"], "gold",
        "{explained}"
    );
    assert_eq!(
        explained["limits"][0]["level"]["remaining"], 0,
        "{explained}"
    );
    assert_eq!(explained["ratelimit_policy"], "\"per-client\";q=100;w=3600");
}

#[test]
fn a_grant_gives_back_what_it_says_and_never_more_than_full() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&with_redis(&redis));
    assert_eq!(spend(&gateway, 21), 20);
    let done = change(&gateway, "POST", &format!("{GRANT}&tokens=5"));
    assert_eq!(
        (&done["before"]["remaining"], &done["after"]["remaining"]),
        (&json!(0), &json!(5))
    );
    assert_eq!(spend(&gateway, 7), 5);
    let done = change(&gateway, "POST", &format!("{GRANT}&tokens=1000000000000"));
    assert_eq!(
        (&done["after"]["remaining"], &done["after"]["full"]),
        (&json!(20), &json!(true))
    );
    assert_eq!(spend(&gateway, 21), 20);
    for tokens in ["&tokens=0", "&tokens=-1", "&tokens=x", "&tokens=1.5", ""] {
        let refused = change(&gateway, "POST", &format!("{GRANT}{tokens}"));
        assert_eq!(refused["status"], 400, "{tokens}: {refused}");
    }
    assert_eq!(remaining(&gateway, BUCKET), 0);
    let count = |action| {
        gateway.metric(&format!(
            "tollgate_admin_changes_total{{action=\"{action}\"}}"
        ))
    };
    assert_eq!((count("grant"), count("reset")), (2.0, 0.0));
}

#[test]
fn without_a_store_the_nodes_own_buckets_are_shown_and_changed() {
    let gateway = Gateway::start(&routes(""));
    assert_eq!(spend(&gateway, 21), 20);
    let seen = gateway.bucket(BUCKET);
    assert_eq!(
        (&seen["source"], &seen["remaining"], seen.get("store")),
        (&json!("local"), &json!(0), None)
    );
    let wait = seen["retry_after"].as_f64().unwrap();
    assert!(wait > 300.0 && wait <= 360.0, "{wait}");
    change(&gateway, "POST", &format!("{GRANT}&tokens=3"));
    assert_eq!(spend(&gateway, 4), 3);
    change(
        &gateway,
        "DELETE",
        "/buckets/per-client?key=per-client:127.0.0.1",
    );
    assert_eq!(spend(&gateway, 21), 20);
}

#[test]
fn while_the_store_is_away_reads_are_local_and_changes_are_refused() {
    let mut redis = RedisServer::start();
    let gateway = Gateway::start(&with_redis(&redis));
    assert_eq!(spend(&gateway, 4), 4);
    redis.kill9();
    let seen = get(&gateway, BUCKET);
    assert_eq!(
        (&seen["source"], &seen["remaining"]),
        (&json!("local"), &json!(16))
    );
    assert!(
        seen["store"]
            .as_str()
            .unwrap()
            .starts_with("the store is away"),
        "{seen}"
    );
    for (method, target) in [
        ("DELETE", BUCKET.to_owned()),
        ("POST", format!("{GRANT}&tokens=1")),
    ] {
        let refused = change(&gateway, method, &target);
        assert_eq!(
            (&refused["status"], &refused["type"]),
            (&json!(503), &json!("urn:tollgate:problem:store-away"))
        );
    }
    assert_eq!(get(&gateway, BUCKET)["remaining"], 16);
    assert_eq!(
        gateway.metric("tollgate_admin_changes_total{action=\"reset\"}"),
        0.0
    );
}

#[test]
fn while_the_store_is_away_a_bucket_reads_as_its_limit_decides() {
    let mut redis = RedisServer::start();
    for (on_outage, remaining, decision) in [
        ("deny", 0, "every request is denied"),
        ("allow", 20, "every request passes"),
    ] {
        let file = with_redis(&redis).replacen(
            "burst: 20",
            &format!("burst: 20, on_outage: {on_outage}"),
            1,
        );
        let gateway = Gateway::start(&file);
        redis.kill9();
        let seen = get(&gateway, BUCKET);
        assert_eq!(seen["remaining"], json!(remaining), "{on_outage}: {seen}");
        assert!(
            seen["store"].as_str().unwrap().ends_with(decision),
            "{seen}"
        );
        redis.restart();
    }
}

#[test]
fn every_change_is_logged_with_who_asked_and_without_the_key() {
    let gateway = Gateway::start(&routes(""));
    let target = admin(&gateway, "/buckets/per-client?client_ip=203.0.113.9");
    curl(&[
        "-X",
        "DELETE",
        "-H",
        OPERATOR,
        "-H",
        "X-Tollgate-Reason: ticket 4711",
        &target,
    ]);
    let line = eventually("it is logged", || {
        let log = gateway.log();
        log.lines()
            .find(|line| line.contains("an operator changed a bucket"))
            .map(str::to_owned)
    });
    let entry: Value = serde_json::from_str(&line).unwrap();
    for (field, said) in [
        ("action", "reset"),
        ("limit", "per-client"),
        ("operator", "ada"),
        ("reason", "ticket 4711"),
    ] {
        assert_eq!(entry[field], said, "{line}");
    }
    assert!(
        entry["bucket"]
            .as_str()
            .unwrap()
            .starts_with("per-client:#"),
        "{line}"
    );
    assert!(
        entry["peer"].as_str().unwrap().starts_with("127.0.0.1:"),
        "{line}"
    );
    assert_eq!(
        (&entry["before"], &entry["after"]),
        (&json!(20), &json!(20))
    );
    assert!(!gateway.log().contains("203.0.113.9"), "{line}");
}

#[test]
fn cross_site_requests_change_nothing() {
    let gateway = Gateway::start(&routes(""));
    assert_eq!(spend(&gateway, 5), 5);
    let (bucket, grant) = (
        admin(&gateway, BUCKET),
        admin(&gateway, &format!("{GRANT}&tokens=5")),
    );
    let page = |args: &[&str]| serde_json::from_str::<Value>(&curl(args)).unwrap()["type"].clone();
    let refused = json!("urn:tollgate:problem:cross-site");
    assert_eq!(page(&["-d", "a=b", &grant]), refused, "a form");
    assert_eq!(
        page(&["-X", "POST", "-H", "content-type: text/plain", &grant]),
        refused
    );
    assert_eq!(
        page(&["-X", "DELETE", &bucket]),
        refused,
        "nobody says who asks"
    );
    for header in [
        "origin: http://evil.example",
        "origin: null",
        "host: evil.example",
        "sec-fetch-site: cross-site",
    ] {
        assert_eq!(
            page(&["-X", "DELETE", "-H", OPERATOR, "-H", header, &bucket]),
            refused,
            "{header}"
        );
    }
    let preflight = curl(&[
        "-D",
        "-",
        "-X",
        "OPTIONS",
        "-H",
        "origin: http://evil.example",
        "-H",
        "access-control-request-method: DELETE",
        "-H",
        "access-control-request-headers: x-tollgate-operator",
        &bucket,
    ]);
    assert!(
        !preflight.starts_with("HTTP/1.1 2") && !preflight.contains("access-control-allow"),
        "{preflight}"
    );
    assert_eq!(status(&[&grant]), 405, "reading never changes");
    assert_eq!(remaining(&gateway, BUCKET), 15);
    let own = format!("origin: http://{}", gateway.admin);
    curl(&[
        "-X",
        "DELETE",
        "-H",
        "content-type: application/json",
        "-H",
        &own,
        &bucket,
    ]);
    assert_eq!(remaining(&gateway, BUCKET), 20);
}

#[test]
fn a_wrong_request_is_refused_with_a_hint() {
    let gateway = Gateway::start(&routes(""));
    for (target, status, hint) in [
        (
            "/buckets/per-clint?client_ip=1.2.3.4",
            404,
            "did you mean \"per-client\"?",
        ),
        ("/buckets/per-client", 400, "add client_ip=…"),
        (
            "/buckets/per-tenant?route=all",
            400,
            "add header.x-api-key=…",
        ),
        (
            "/buckets/per-client?clientip=1.2.3.4",
            400,
            "did you mean \"client_ip\"?",
        ),
        ("/buckets/per-client?key=per-tenant:x", 400, "per-client:…"),
        (
            "/buckets/per-client?key=per-client:x&client_ip=1.2.3.4",
            400,
            "not both",
        ),
        ("/explain", 400, "add url="),
        ("/explain?url=http://a/&listener=1", 400, "from 0 to 0"),
        ("/nothing", 404, "GET / lists"),
    ] {
        let head = curl(&["-D", "-", "-o", "/dev/null", &admin(&gateway, target)]);
        assert!(
            head.contains("content-type: application/problem+json\r\n"),
            "{target}: {head}"
        );
        let problem = get(&gateway, target);
        assert_eq!(problem["status"], status, "{target}: {problem}");
        assert!(
            problem["hint"].as_str().unwrap().contains(hint),
            "{target}: {problem}"
        );
    }
    let index = curl(&[&admin(&gateway, "/")]);
    for page in [
        "/livez",
        "/readyz",
        "/metrics",
        "/limits",
        "/buckets/{limit}",
        "/grant",
        "/explain",
    ] {
        assert!(index.contains(page), "{index}");
    }
    let limits = get(&gateway, "/limits");
    assert_eq!(limits[1]["key"], json!(["header.x-api-key", "route"]));
    assert_eq!(
        (&limits[1]["limit"], &limits[1]["on_missing"]),
        (&json!("per-tenant"), &json!("refuse"))
    );
}

#[test]
fn the_command_line_reads_changes_and_explains_buckets() {
    let gateway = Gateway::start(&routes(""));
    spend(&gateway, 20);
    let which = ["per-client", "--client-ip", "127.0.0.1"];
    let run = |args: &[&str]| cli(&gateway, &[&["bucket"], args].concat());
    let said = |args: &[&str]| {
        let output = run(args);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let looked = said(&[&["peek"], &which[..]].concat());
    assert!(
        looked.starts_with("per-client:127.0.0.1\n  level    0 of 20 tokens\n"),
        "{looked}"
    );
    assert!(
        looked.contains("passes in ") && looked.contains("policy   10/h, burst 20, cost 1"),
        "{looked}"
    );
    let dry = said(&[&["grant", "--tokens", "3", "--dry-run"], &which[..]].concat());
    assert!(
        dry.starts_with(
            "would give tokens back to per-client:127.0.0.1\n  tokens   0 before, 3 after\n"
        ),
        "{dry}"
    );
    let given = said(&[&["grant", "--tokens", "3"], &which[..]].concat());
    assert!(
        given.starts_with("gave tokens back to ") && given.contains("0 before, 3 after"),
        "{given}"
    );
    let reset = said(&[
        "reset",
        "per-client",
        "--key",
        "per-client:127.0.0.1",
        "--operator",
        "eve",
        "--reason",
        "why",
    ]);
    assert!(
        reset.starts_with("reset per-client:127.0.0.1\n  tokens   3 before, 20 after, full\n"),
        "{reset}"
    );
    eventually("it is logged", || {
        gateway
            .log()
            .contains("\"operator\":\"eve\",\"reason\":\"why\"")
            .then_some(())
    });
    let looked: Value =
        serde_json::from_str(&said(&[&["peek", "--json"], &which[..]].concat())).unwrap();
    assert_eq!(looked["remaining"], 20);
    let explained = cli(
        &gateway,
        &["explain", "http://a/x", "--admin", &admin(&gateway, "")],
    );
    assert!(
        text(&explained.stdout).contains("level   20 of 20 tokens"),
        "{}",
        text(&explained.stdout)
    );

    let unknown = run(&["peek", "per-clint", "--client-ip", "127.0.0.1"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(
        text(&unknown.stderr).contains("hint: did you mean \"per-client\"?"),
        "{}",
        text(&unknown.stderr)
    );
    for mistake in [
        &["grant", "per-client", "--client-ip", "127.0.0.1"][..],
        &[
            "grant",
            "per-client",
            "--tokens",
            "0",
            "--client-ip",
            "127.0.0.1",
        ],
        &[
            "peek",
            "per-client",
            "--key",
            "a",
            "--client-ip",
            "127.0.0.1",
        ],
        &["peek", "per-client", "--client-ip", "localhost"],
        &["peek", "per-client", "--header", "x-tenant"],
        &["peek", "per-client", "--admin", "ftp://127.0.0.1:1"],
    ] {
        assert_eq!(run(mistake).status.code(), Some(2), "{mistake:?}");
    }
    let nobody = run(&[
        "peek",
        "per-client",
        "--client-ip",
        "127.0.0.1",
        "--admin",
        "http://127.0.0.1:9",
    ]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(
        text(&nobody.stderr).contains("cannot ask the admin port at http://127.0.0.1:9"),
        "{}",
        text(&nobody.stderr)
    );
}

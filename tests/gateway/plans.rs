//! Plans in Redis: set, changed and removed with `redis-cli`, without a reload, by thousands of
//! tenants and through an outage.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process::{Gateway, curl, eventually};
use tollgate_testing::redis::RedisServer;

pub const HASH: &str = "tollgate:plans";

/// 5 an hour for everyone without a plan.
pub fn routes(redis: &RedisServer, cache: &str) -> String {
    format!(
        "workers: 1
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
store: {{redis: 'redis://127.0.0.1:{}', timeout: 2s}}
limits:
  tenant: {{key: {{header: x-tenant}}, rate: 5/h, plans: {{redis: {{hash: plans, cache: {cache}}}}}}}
  login: {{key: client_ip, rate: 5/h, plans: {{by: {{header: x-api-key}}, redis: {{hash: plans, cache: {cache}}}}}}}
routes:
  - {{name: all, match: {{path: '/*'}}, respond: {{status: 204}}, limits: [tenant]}}
  - {{name: login, match: {{path: /login}}, respond: {{status: 204}}, limits: [login]}}
",
        redis.port()
    )
}

/// A client that keeps its connection.
pub struct TenantClient {
    stream: BufReader<TcpStream>,
}

impl TenantClient {
    pub fn of(gateway: &Gateway) -> Self {
        let stream = TcpStream::connect(gateway.listeners[0]).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// The quota that an answer tells, and what is left of it.
    fn quota(&mut self, path: &str, field: &str) -> (u64, u64) {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n{field}\r\n\r\n");
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
        self.answer()
    }

    /// The quotas of so many tenants, asked for a few at a time, so that neither side waits for
    /// each single answer.
    pub fn quotas_of(&mut self, name: &str, count: u64) -> Vec<u64> {
        let tenants: Vec<u64> = (0..count).collect();
        let mut quotas = Vec::new();
        for some in tenants.chunks(32) {
            let ask =
                |n: &u64| format!("GET / HTTP/1.1\r\nhost: a\r\nx-tenant: {name}-{n}\r\n\r\n");
            self.stream
                .get_mut()
                .write_all(some.iter().map(ask).collect::<String>().as_bytes())
                .unwrap();
            quotas.extend(some.iter().map(|_| self.answer().0));
        }
        quotas
    }

    fn answer(&mut self) -> (u64, u64) {
        let (mut told, mut line) = ((None, None), String::new());
        while line != "\r\n" {
            line.clear();
            assert!(
                self.stream.read_line(&mut line).unwrap() > 0,
                "the gateway closed the connection"
            );
            let item = |name: &str, item: &str| {
                let (_, rest) = line.strip_prefix(name)?.split_once(item)?;
                rest.split(';').next()?.trim().parse().ok()
            };
            told.0 = told.0.or_else(|| item("ratelimit-policy: ", ";q="));
            told.1 = told.1.or_else(|| item("ratelimit: ", ";r="));
        }
        (told.0.unwrap(), told.1.unwrap())
    }

    fn quota_of(&mut self, tenant: &str) -> u64 {
        self.quota("/", &format!("x-tenant: {tenant}")).0
    }
}

pub fn lookups(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric(&format!(
        "tollgate_plan_lookups_total{{outcome=\"{outcome}\"}}"
    ))
}

fn get(gateway: &Gateway, target: &str) -> Value {
    serde_json::from_str(&curl(&["-g", &format!("http://{}{target}", gateway.admin)])).unwrap()
}

#[test]
fn a_plan_is_set_changed_and_removed_without_a_reload() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&routes(&redis, "200ms"));
    let mut client = TenantClient::of(&gateway);
    redis.command(&["HSET", HASH, "acme", "1000/h burst=40 cost=2"]);
    assert_eq!(
        client.quota("/", "x-tenant: acme"),
        (20, 19),
        "in requests: the first one has the plan already"
    );
    assert_eq!(client.quota("/", "x-tenant: other"), (5, 4));
    assert_eq!(
        client.quota("/login", "x-none: 1"),
        (5, 4),
        "a request that does not say"
    );

    redis.command(&["HSET", HASH, "acme", "1000/h burst=70"]);
    eventually("the change shows", || {
        (client.quota_of("acme") == 70).then_some(())
    });
    let (quota, left) = client.quota("/", "x-tenant: acme");
    assert!(
        quota == 70 && left < 70 - 2,
        "what was used stays used: {left}"
    );

    redis.command(&["HSET", HASH, "other", "7/h"]);
    eventually("who had none has one", || {
        (client.quota_of("other") == 7).then_some(())
    });
    redis.command(&["HDEL", HASH, "acme"]);
    eventually("the limit's own rate holds", || {
        (client.quota_of("acme") == 5).then_some(())
    });
    assert!(lookups(&gateway, "found") >= 2.0 && lookups(&gateway, "none") >= 2.0);
    assert!(!gateway.log().contains("reloaded"));
}

#[test]
fn an_invalid_plan_is_logged_once_and_denies_nobody() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&routes(&redis, "100ms"));
    let mut client = TenantClient::of(&gateway);
    redis.command(&["HSET", HASH, "acme", "lots"]);
    assert_eq!(client.quota_of("acme"), 5);
    let counted = || {
        client.quota_of("acme");
        (lookups(&gateway, "invalid") >= 3.0).then_some(())
    };
    eventually("it was read again", counted);
    let told = "a plan cannot be read, the limit's own rate holds: it does not begin with a rate";
    eventually("it is told", || gateway.log().contains(told).then_some(()));
    assert_eq!(
        gateway.log().matches("a plan cannot be read").count(),
        1,
        "{}",
        gateway.log()
    );
    redis.command(&["HSET", HASH, "acme", "9/h"]);
    eventually("it is mended", || {
        (client.quota_of("acme") == 9).then_some(())
    });

    redis.command(&["DEL", HASH]);
    redis.command(&["SET", HASH, "no hash"]);
    eventually("it cannot be read at all", || {
        client.quota_of("acme");
        gateway.log().contains("plans cannot be read").then_some(())
    });
    assert_eq!(client.quota_of("acme"), 9, "the last one that was known");
    assert_eq!(client.quota_of("new"), 5);
    assert_eq!(
        gateway.metric("tollgate_store_up"),
        1.0,
        "buckets are not concerned"
    );
    redis.command(&["DEL", HASH]);
    eventually("it can be read", || {
        client.quota_of("acme");
        gateway
            .log()
            .contains("plans can be read again")
            .then_some(())
    });
    eventually("there is none", || {
        (client.quota_of("acme") == 5).then_some(())
    });
}

#[test]
fn limits_of_every_algorithm_share_a_hash_of_plans() {
    let redis = RedisServer::start();
    let plans = "plans: {redis: {hash: plans, cache: 100ms}}";
    let limits = format!(
        "limits:
  bucket: {{key: {{header: x-tenant}}, rate: 5/h, {plans}}}
  fixed: {{key: {{header: x-tenant}}, algorithm: fixed_window, time_zone: Europe/Berlin, rate: 6/month, {plans}}}
  sliding: {{key: {{header: x-tenant}}, algorithm: sliding_window, rate: 7/h, {plans}}}
routes:
"
    );
    let route = |name| {
        format!(
            "  - {{name: {name}, match: {{path: /{name}}}, respond: {{status: 204}}, limits: [{name}]}}\n"
        )
    };
    let all = routes(&redis, "100ms");
    let head = all.split_once("limits:\n").unwrap().0;
    let gateway = Gateway::start(
        &(head.to_owned() + &limits + &["bucket", "fixed", "sliding"].map(route).concat()),
    );
    let (acme, bursty) = ("20/d cost=2", "30/h burst=60");
    redis.command(&[
        "HSET",
        HASH,
        "acme",
        acme,
        "monthly",
        "100/month",
        "bursty",
        bursty,
        "odd",
        "8/90s",
    ]);
    let mut client = TenantClient::of(&gateway);
    let mut quotas = |tenant: &str| {
        ["/bucket", "/fixed", "/sliding"]
            .map(|path| client.quota(path, &format!("x-tenant: {tenant}")).0)
    };
    assert_eq!(quotas("other"), [5, 6, 7]);
    assert_eq!(quotas("acme"), [10, 10, 10], "in requests of its cost");
    assert_eq!(quotas("monthly"), [5, 100, 7]);
    assert_eq!(quotas("bursty"), [60, 6, 7]);
    assert_eq!(quotas("odd"), [8, 6, 8], "no unit of a calendar");
    for told in [
        "a token_bucket counts no months",
        "a fixed_window has no burst",
        "a sliding_window has no burst",
    ] {
        eventually("it is told", || {
            quotas("monthly");
            quotas("bursty");
            gateway
                .log()
                .contains(&format!("the limit's own rate holds: {told}"))
                .then_some(())
        });
    }

    let status = |path: &str| {
        let url = format!("http://{}{path}", gateway.listeners[0]);
        curl(&[
            "-H",
            "x-tenant: acme",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            &url,
        ])
    };
    for path in ["/fixed", "/sliding"] {
        let statuses: Vec<_> = (0..10).map(|_| status(path)).collect();
        assert_eq!(
            statuses.iter().filter(|status| *status == "204").count(),
            9,
            "{path}: {statuses:?}"
        );
        assert_eq!(statuses[9], "429", "one was taken before");
    }
    redis.command(&["HSET", HASH, "acme", "40/d"]);
    eventually("a window grows", || {
        (quotas("acme")[1..] == [40, 40]).then_some(())
    });
    let (quota, left) = client.quota("/sliding", "x-tenant: acme");
    assert!(
        quota == 40 && left < 40 - 20,
        "what was used stays used: {left}"
    );

    let seen = get(
        &gateway,
        "/explain?url=http://a/fixed&header.x-tenant=monthly",
    );
    assert_eq!(
        seen["limits"][0]["policy"]["rate"],
        json!("100/month in Europe/Berlin")
    );
    let seen = get(
        &gateway,
        "/explain?url=http://a/fixed&header.x-tenant=bursty",
    );
    let from = seen["limits"][0]["policy"]["plan_from"].as_str().unwrap();
    assert!(
        from.starts_with(
            "the hash plans, which has none that can be read: a fixed_window has no burst"
        ),
        "{from}"
    );
}

#[test]
fn while_redis_is_away_known_plans_hold_and_no_request_waits_for_unknown_ones() {
    let mut redis = RedisServer::start();
    redis.command(&["HSET", HASH, "acme", "1000/h burst=40"]);
    let gateway = Gateway::start(&routes(&redis, "100ms"));
    let mut client = TenantClient::of(&gateway);
    assert_eq!(client.quota_of("acme"), 40);
    redis.kill9();
    eventually("the breaker opens", || {
        client.quota_of("nobody");
        (gateway.metric("tollgate_store_up") == 0.0).then_some(())
    });
    let opened = Instant::now();
    let mut requests = 0;
    // Beyond the age at which a plan is waited for.
    while requests < 40 || opened.elapsed() < Duration::from_millis(1_500) {
        assert_eq!(client.quota_of("acme"), 40);
        requests += 1;
        assert_eq!(client.quota_of(&format!("new-{requests}")), 5);
    }
    gateway.rewrite(&routes(&redis, "100ms").replace("rate: 5/h", "rate: 6/h"));
    eventually("it is reloaded", || {
        (client.quota_of("nobody") == 6).then_some(())
    });
    assert_eq!(client.quota_of("acme"), 40, "a reload forgets no plan");
    // A request that waits for its plan has it looked up.
    assert!(lookups(&gateway, "skipped") >= f64::from(requests));
    redis.restart();
    redis.command(&["HSET", HASH, "new-1", "8/h"]);
    eventually("redis decides again", || {
        (gateway.metric("tollgate_store_up") == 1.0).then_some(())
    });
    eventually("plans are read again", || {
        (client.quota_of("new-1") == 8).then_some(())
    });
    eventually("what is gone is gone", || {
        (client.quota_of("acme") == 6).then_some(())
    });
}

#[test]
fn an_operator_sees_the_plan_and_its_source() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&routes(&redis, "1h"));
    // The command is from docs/configuration/limits/plans.md.
    let hashed = Command::new("sh")
        .args(["-c", "printf %s sesame | sha256sum | cut -c -32"])
        .output()
        .unwrap();
    let field = format!("#{}", String::from_utf8(hashed.stdout).unwrap().trim());
    redis.command(&[
        "HSET",
        HASH,
        "acme",
        "1000/h burst=40 cost=2",
        &field,
        "30/h",
        "odd",
        "1/s burst",
    ]);

    let seen = gateway.bucket("/buckets/tenant?header.x-tenant=acme");
    let policy = &seen["policy"];
    assert_eq!(
        (&policy["rate"], &policy["burst"], &policy["cost"]),
        (&json!("1000/h"), &json!(40), &json!(2))
    );
    assert_eq!(
        (&policy["plan"], seen["remaining"].as_u64()),
        (&json!("acme"), Some(40))
    );
    assert!(
        policy["plan_from"]
            .as_str()
            .unwrap()
            .starts_with("the hash plans; read 0."),
        "{policy}"
    );

    let explained = get(
        &gateway,
        "/explain?url=http://a/login&header.x-api-key=sesame",
    );
    assert_eq!(
        (
            &explained["limits"][0]["policy"]["rate"],
            &explained["ratelimit_policy"]
        ),
        (&json!("30/h"), &json!("\"login\";q=30;w=3600"))
    );
    assert_eq!(explained["limits"][0]["policy"]["plan"], json!(field));
    assert!(!explained.to_string().contains("sesame"));

    let from = |tenant: &str| {
        let seen = get(
            &gateway,
            &format!("/explain?url=http://a/&header.x-tenant={tenant}"),
        );
        seen["limits"][0]["policy"]["plan_from"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(
        from("other").starts_with("the hash plans, which has none; read "),
        "{}",
        from("other")
    );
    let odd = from("odd");
    assert!(
        odd.starts_with(
            "the hash plans, which has none that can be read: behind the rate stand burst=N"
        ),
        "{odd}"
    );
    let none = get(&gateway, "/explain?url=http://a/");
    assert_eq!(
        none["limits"][0]["policy"].get("plan_from"),
        None,
        "the request does not say"
    );

    let told = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args([
            "explain",
            "http://a/",
            "-H",
            "x-tenant: acme",
            "--admin",
            &format!("http://{}", gateway.admin),
        ])
        .output()
        .unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(
        told.contains("tenant: 1000/h by plan acme, burst 40, this request costs 2\n"),
        "{told}"
    );
    assert!(
        told.contains("           plan    from the hash plans; read "),
        "{told}"
    );
}

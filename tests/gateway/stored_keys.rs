//! API keys in a hash of a real Redis, and that Redis away.

use std::process::Command;

use tollgate_testing::redis::RedisServer;

use crate::authenticators::key_hash;
use crate::process::{Gateway, curl, eventually, status};

const ROUTES: &str = "
workers: 2
listeners: [{address: '127.0.0.1:0'}]
admin: {address: '127.0.0.1:0'}
trusted_proxies: [127.0.0.1]
store: {redis: 'REDIS', timeout: 1s}
authenticators:
  partners: {api_key: {header: x-api-key, redis: {hash: keys, remember: 1s, failed_attempts: {rate: 5/h}}}}
  strict: {api_key: {header: x-api-key, redis: {hash: keys, remember: 1s, grace: 0s}}}
routes:
  - name: closed
    match: {path: /closed}
    echo: true
    authenticate: [partners]
    request_headers: {set: {x-user: '{identity}', x-plan: '{identity.plan}', x-team: '{identity.label.team}'}}
  - {name: strict, match: {path: /strict}, echo: true, authenticate: [strict]}
";

fn start(redis: &RedisServer) -> Gateway {
    start_with(redis, "remember: 1s")
}

/// A gateway that remembers keys as `remember` says.
fn start_with(redis: &RedisServer, remember: &str) -> Gateway {
    let routes = ROUTES.replace("REDIS", &redis.url());
    Gateway::start(&routes.replace("remember: 1s", remember))
}

fn add(redis: &RedisServer, key: &str, client: &str) {
    redis.command(&["HSET", "tollgate:keys", &key_hash(key), client]);
}

/// The status of a request with `key` from a client at `ip`.
fn by(gateway: &Gateway, path: &str, key: &str, ip: &str) -> u16 {
    let (key, ip) = (
        format!("x-api-key: {key}"),
        format!("x-forwarded-for: {ip}"),
    );
    status(&["-H", &key, "-H", &ip, &gateway.url(path)])
}

fn lookups(gateway: &Gateway, outcome: &str) -> f64 {
    let labels = format!("authenticator=\"partners\",outcome=\"{outcome}\"");
    gateway.metric(&format!("tollgate_api_key_lookups_total{{{labels}}}"))
}

#[test]
fn a_key_in_redis_says_who_the_client_is_and_is_read_once_in_a_while() {
    let redis = RedisServer::start();
    let gateway = start(&redis);
    add(
        &redis,
        "ada-secret",
        r#"{"id":"ada","plan":"gold","labels":{"team":"web"}}"#,
    );
    let answer = curl(&["-H", "x-api-key: ada-secret", &gateway.url("/closed")]);
    for value in ["\"ada\"", "\"gold\"", "\"web\""] {
        assert!(
            answer.contains(value) && !answer.contains("ada-secret"),
            "{answer}"
        );
    }
    redis.command(&["HDEL", "tollgate:keys", &key_hash("ada-secret")]);
    eventually("the key is taken back", || {
        (by(&gateway, "/closed", "ada-secret", "192.0.2.1") == 401).then_some(())
    });
    assert!(lookups(&gateway, "found") >= 1.0);
    eventually("what is nobody's is remembered too", || {
        let before = lookups(&gateway, "none");
        let refused = by(&gateway, "/closed", "ada-secret", "192.0.2.1");
        (refused == 401 && lookups(&gateway, "none") == before).then_some(())
    });
    assert!(
        !gateway.log().contains("ada-secret") && !gateway.log().contains(&key_hash("ada-secret"))
    );
}

#[test]
fn keys_that_a_client_makes_up_are_looked_up_a_few_times_only() {
    let redis = RedisServer::start();
    let gateway = start_with(&redis, "remember: 1h");
    add(&redis, "ada-secret", r#"{"id":"ada"}"#);
    let guesses: Vec<u16> = (0..7)
        .map(|n| by(&gateway, "/closed", &format!("guess-{n}"), "192.0.2.1"))
        .collect();
    assert_eq!(guesses, [401, 401, 401, 401, 401, 429, 429]);
    assert_eq!(lookups(&gateway, "none"), 5.0);
    assert_eq!(
        by(&gateway, "/closed", "guess-0", "192.0.2.1"),
        401,
        "one that was looked up costs nothing"
    );
    for _ in 0..8 {
        assert_eq!(by(&gateway, "/closed", "ada-secret", "192.0.2.2"), 200);
    }
}

#[test]
fn an_entry_that_cannot_be_read_lets_nobody_pass_and_is_logged_without_the_key() {
    let redis = RedisServer::start();
    let gateway = start(&redis);
    for (key, client) in [
        ("a-secret", "ada"),
        ("b-secret", "{\"id\":\"\"}"),
        ("c-secret", "{\"id\":\"a\",\"admin\":true}"),
    ] {
        add(&redis, key, client);
        assert_eq!(by(&gateway, "/closed", key, "192.0.2.1"), 503, "{client}");
    }
    assert_eq!(lookups(&gateway, "invalid"), 3.0);
    let log = eventually("the line", || {
        Some(gateway.log()).filter(|log| log.contains("an entry of API keys cannot be read"))
    });
    assert!(
        !log.contains("-secret") && !log.contains(&key_hash("a-secret")),
        "{log}"
    );
}

#[test]
fn keys_that_were_read_hold_on_while_redis_is_away_and_others_get_503() {
    let mut redis = RedisServer::start();
    let gateway = start(&redis);
    add(&redis, "ada-secret", r#"{"id":"ada"}"#);
    add(&redis, "bob-secret", r#"{"id":"bob"}"#);
    assert_eq!(
        [
            by(&gateway, "/closed", "ada-secret", "192.0.2.1"),
            by(&gateway, "/strict", "ada-secret", "192.0.2.1")
        ],
        [200; 2]
    );
    redis.kill9();
    eventually("a key without grace is refused", || {
        assert_eq!(
            by(&gateway, "/closed", "ada-secret", "192.0.2.1"),
            200,
            "within the grace"
        );
        (by(&gateway, "/strict", "ada-secret", "192.0.2.1") == 503).then_some(())
    });
    let answer = curl(&["-i", "-H", "x-api-key: bob-secret", &gateway.url("/closed")]);
    assert!(
        answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 1\r\n"),
        "{answer}"
    );
    assert!(
        answer.contains("urn:tollgate:problem:authentication-unavailable"),
        "{answer}"
    );
    redis.restart();
    add(&redis, "bob-secret", r#"{"id":"bob"}"#);
    eventually("Redis is back", || {
        (by(&gateway, "/closed", "bob-secret", "192.0.2.1") == 200).then_some(())
    });
}

#[test]
fn the_command_that_was_printed_adds_the_key() {
    let redis = RedisServer::start();
    let gateway = start(&redis);
    let made = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args([
            "key",
            "new",
            "--id",
            "o'hara",
            "--plan",
            "gold",
            "--redis",
            "tollgate:keys",
        ])
        .output()
        .unwrap();
    let made = String::from_utf8(made.stdout).unwrap();
    let key = made
        .lines()
        .find(|line| line.starts_with("tg_"))
        .unwrap()
        .to_owned();
    let command = made
        .lines()
        .find(|line| line.starts_with("redis-cli HSET "))
        .unwrap();
    assert!(!command.contains(&key), "{made}");
    let command = command.replace("redis-cli", &format!("redis-cli -p {}", redis.port()));
    let ran = Command::new("sh").args(["-c", &command]).output().unwrap();
    assert_eq!(
        String::from_utf8(ran.stdout).unwrap().trim(),
        "1",
        "{command}"
    );
    let answer = curl(&["-H", &format!("x-api-key: {key}"), &gateway.url("/closed")]);
    assert!(
        answer.contains("\"o'hara\"") && answer.contains("\"gold\""),
        "{answer}"
    );
}

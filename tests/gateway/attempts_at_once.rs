//! Many attempts to authenticate at once, from one client address, over sockets of their own.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tollgate_testing::redis::RedisServer;

use crate::authenticators::key_hash;
use crate::process::{Gateway, eventually};

const BOUND: usize = 5;

const KEYS: &str = "
workers: 2
listeners: [{address: '127.0.0.1:0'}]
admin: {address: '127.0.0.1:0'}
store: {redis: 'REDIS', timeout: 10s}
authenticators:
  partners: {api_key: {header: x-api-key, redis: {hash: keys, failed_attempts: {rate: 5/h}}}}
routes:
  - {name: closed, match: {path: /closed}, respond: {status: 200}, authenticate: [partners]}
";

const PASSWORDS: &str = "
workers: 2
listeners: [{address: '127.0.0.1:0'}]
admin: {address: '127.0.0.1:0'}
authenticators:
  staff: {basic: {users: 'USERS', failed_attempts: {rate: 5/h}}}
routes:
  - {name: closed, match: {path: /closed}, respond: {status: 200}, authenticate: [staff]}
";

/// A request with this field, on a connection of its own.
fn send(address: SocketAddr, field: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
        .write_all(
            format!("GET /closed HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{field}\r\n\r\n")
                .as_bytes(),
        )
        .unwrap();
    stream
}

/// The status of the answer. One of 429 says when to come back.
fn status(mut stream: TcpStream) -> u16 {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer
        .get(9..12)
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("{answer:?}"));
    if status == 429 {
        let retry_after = answer
            .lines()
            .find_map(|line| line.strip_prefix("retry-after: "))
            .unwrap();
        assert!(
            (1..=3_600).contains(&retry_after.parse::<u64>().unwrap()),
            "{answer}"
        );
        assert!(
            answer.contains("urn:tollgate:problem:attempts-limited"),
            "{answer}"
        );
    }
    status
}

/// How many requests get which status, if all are sent before any answer is read.
fn at_once(gateway: &Gateway, fields: impl IntoIterator<Item = String>) -> BTreeMap<u16, usize> {
    let sent: Vec<TcpStream> = fields
        .into_iter()
        .map(|field| send(gateway.listeners[0], &field))
        .collect();
    let mut statuses = BTreeMap::new();
    for stream in sent {
        *statuses.entry(status(stream)).or_default() += 1;
    }
    statuses
}

fn with_keys() -> (RedisServer, Gateway) {
    keys_of(KEYS)
}

fn keys_of(routes: &str) -> (RedisServer, Gateway) {
    let redis = RedisServer::start();
    for number in 0..200 {
        redis.command(&[
            "HSET",
            "tollgate:keys",
            &key_hash(&format!("good-{number}")),
            &format!("{{\"id\":\"c{number}\"}}"),
        ]);
    }
    let gateway = Gateway::start(&routes.replace("REDIS", &redis.url()));
    (redis, gateway)
}

fn keys(kind: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers
        .map(|number| format!("x-api-key: {kind}-{number}"))
        .collect()
}

fn lookups(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric(&format!(
        "tollgate_api_key_lookups_total{{authenticator=\"partners\",outcome=\"{outcome}\"}}"
    ))
}

#[test]
fn good_keys_that_come_at_once_are_all_taken() {
    let (_redis, gateway) = with_keys();
    assert_eq!(
        at_once(&gateway, keys("good", 0..200)),
        BTreeMap::from([(200, 200)])
    );
    assert_eq!(lookups(&gateway, "found"), 200.0);
}

#[test]
fn of_bad_keys_that_come_at_once_no_more_than_the_bound_are_looked_up() {
    let (_redis, gateway) = with_keys();
    assert_eq!(
        at_once(&gateway, keys("bad", 0..200)),
        BTreeMap::from([(401, BOUND), (429, 200 - BOUND)])
    );
    assert_eq!(lookups(&gateway, "none"), BOUND as f64);
}

#[test]
fn bad_keys_below_the_bound_keep_no_good_one_out_and_those_over_it_are_not_looked_up() {
    let (_redis, gateway) = with_keys();
    let mut mixed = keys("good", 0..100);
    for (place, bad) in keys("bad", 0..BOUND - 1).into_iter().enumerate() {
        mixed.insert(place * 20, bad);
    }
    assert_eq!(
        at_once(&gateway, mixed),
        BTreeMap::from([(200, 100), (401, BOUND - 1)])
    );
    let more: Vec<String> = keys("bad", 100..150)
        .into_iter()
        .zip(keys("good", 100..150))
        .flat_map(|(bad, good)| [bad, good])
        .collect();
    let statuses = at_once(&gateway, more);
    assert_eq!(statuses.get(&401), Some(&1), "{statuses:?}");
    assert!(
        statuses
            .keys()
            .all(|status| [200, 401, 429].contains(status)),
        "{statuses:?}"
    );
    assert_eq!(lookups(&gateway, "none"), BOUND as f64);
}

#[test]
fn clients_that_go_away_leave_their_places() {
    // A single worker takes the requests in their order.
    let (redis, gateway) = keys_of(&KEYS.replace("workers: 2", "workers: 1"));
    let mut good = keys("good", 0..200).into_iter();
    let mut send =
        |key: Option<String>| send(gateway.listeners[0], &key.or_else(|| good.next()).unwrap());
    let open = |count: usize| {
        let connections = || gateway.metric("tollgate_connections");
        eventually("these connections are open", || {
            (connections() == count as f64).then_some(())
        });
    };
    // An attempt waits for five seconds. If the machine stands still for so long, the first that
    // waits is refused.
    eventually("the first that waits has got its place", || {
        redis.stop();
        let mut staying: Vec<TcpStream> = (0..=BOUND).map(|_| send(None)).collect();
        open(BOUND + 1);
        let leaving: Vec<TcpStream> = keys("bad", 0..BOUND)
            .into_iter()
            .map(|key| send(Some(key)))
            .collect();
        open(2 * BOUND + 1);
        staying.push(send(None));
        open(2 * BOUND + 2);
        drop(leaving);
        open(BOUND + 2);
        redis.cont();
        let statuses: Vec<u16> = staying.into_iter().map(status).collect();
        open(0);
        // They wait longer than the first, and come after it: if that has its place, their time is
        // not over either.
        assert_eq!(
            lookups(&gateway, "none"),
            0.0,
            "those that have gone away are not looked up"
        );
        statuses.iter().all(|status| *status == 200).then_some(())
    });
}

fn with_users(count: usize, hash: &str) -> (Gateway, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("htpasswd");
    let users: String = (0..count)
        .map(|number| format!("user{number}:{hash}\n"))
        .collect();
    fs::write(&file, users).unwrap();
    (
        Gateway::start(&PASSWORDS.replace("USERS", &file.display().to_string())),
        folder,
    )
}

/// A single hash for all users: it matters how many are hashed.
fn fast_hash() -> String {
    bcrypt::hash("secret", 4)
        .unwrap()
        .replacen("$2b$", "$2y$", 1)
}

fn passwords(password: &str, users: std::ops::Range<usize>) -> Vec<String> {
    let field = |user: usize| STANDARD.encode(format!("user{user}:{password}"));
    users
        .map(|user| format!("authorization: Basic {}", field(user)))
        .collect()
}

fn hashes(gateway: &Gateway) -> f64 {
    gateway.metric("tollgate_password_hashes_total{authenticator=\"staff\"}")
}

#[test]
fn users_who_come_at_once_from_one_address_are_all_taken() {
    let (gateway, _folder) = with_users(60, &fast_hash());
    assert_eq!(
        at_once(&gateway, passwords("secret", 0..60)),
        BTreeMap::from([(200, 60)])
    );
    assert_eq!(hashes(&gateway), 60.0);
}

#[test]
fn of_wrong_passwords_that_come_at_once_no_more_than_the_bound_are_hashed() {
    let (gateway, _folder) = with_users(60, &fast_hash());
    let mut tried = passwords("guess", 0..60);
    tried.extend(passwords("another", 0..60));
    assert_eq!(
        at_once(&gateway, tried),
        BTreeMap::from([(401, BOUND), (429, 120 - BOUND)])
    );
    assert_eq!(hashes(&gateway), BOUND as f64);
}

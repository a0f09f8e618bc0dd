//! Many attempts to authenticate at once, from one client address, over sockets of their own.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tollgate_test_support::redis::RedisServer;
use tollgate_test_support::turns;

use crate::authenticators::key_hash;
use crate::process::{Gateway, eventually};

const BOUND: usize = 5;

const KEYS: &str = "
workers: 2
listeners: [{address: '127.0.0.1:0'}]
admin: {address: '127.0.0.1:0'}
store: {redis: 'REDIS', timeout: 1s}
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
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
        .write_all(format!("GET /closed HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{field}\r\n\r\n").as_bytes())
        .unwrap();
    stream
}

/// The status of the answer. One of 429 says when to come back.
fn status(mut stream: TcpStream) -> u16 {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.get(9..12).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"));
    if status == 429 {
        let retry_after = answer.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap();
        assert!((1..=3_600).contains(&retry_after.parse::<u64>().unwrap()), "{answer}");
        assert!(answer.contains("urn:tollgate:problem:attempts-limited"), "{answer}");
    }
    status
}

/// How many requests get which status, if all are sent before any answer is read.
fn at_once(gateway: &Gateway, fields: impl IntoIterator<Item = String>) -> BTreeMap<u16, usize> {
    let sent: Vec<TcpStream> = fields.into_iter().map(|field| send(gateway.listeners[0], &field)).collect();
    let mut statuses = BTreeMap::new();
    for stream in sent {
        *statuses.entry(status(stream)).or_default() += 1;
    }
    statuses
}

fn with_keys() -> (RedisServer, Gateway) {
    let redis = RedisServer::start();
    for number in 0..200 {
        redis.command(&[
            "HSET",
            "tollgate:keys",
            &key_hash(&format!("good-{number}")),
            &format!("{{\"id\":\"c{number}\"}}"),
        ]);
    }
    let gateway = Gateway::start(&KEYS.replace("REDIS", &redis.url()));
    (redis, gateway)
}

fn keys(kind: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("x-api-key: {kind}-{number}")).collect()
}

fn lookups(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric(&format!("tollgate_api_key_lookups_total{{authenticator=\"partners\",outcome=\"{outcome}\"}}"))
}

#[test]
fn good_keys_that_come_at_once_are_all_taken() {
    let _turn = turns::beside_others();
    let (_redis, gateway) = with_keys();
    assert_eq!(at_once(&gateway, keys("good", 0..200)), BTreeMap::from([(200, 200)]));
    assert_eq!(lookups(&gateway, "found"), 200.0);
}

#[test]
fn of_bad_keys_that_come_at_once_no_more_than_the_bound_are_looked_up() {
    let _turn = turns::beside_others();
    let (_redis, gateway) = with_keys();
    assert_eq!(at_once(&gateway, keys("bad", 0..200)), BTreeMap::from([(401, BOUND), (429, 200 - BOUND)]));
    assert_eq!(lookups(&gateway, "none"), BOUND as f64);
}

#[test]
fn bad_keys_below_the_bound_keep_no_good_one_out_and_those_over_it_are_not_looked_up() {
    let _turn = turns::beside_others();
    let (_redis, gateway) = with_keys();
    let mut mixed = keys("good", 0..100);
    for (place, bad) in keys("bad", 0..BOUND - 1).into_iter().enumerate() {
        mixed.insert(place * 20, bad);
    }
    assert_eq!(at_once(&gateway, mixed), BTreeMap::from([(200, 100), (401, BOUND - 1)]));
    let more: Vec<String> =
        keys("bad", 100..150).into_iter().zip(keys("good", 100..150)).flat_map(|(bad, good)| [bad, good]).collect();
    let statuses = at_once(&gateway, more);
    assert_eq!(statuses.get(&401), Some(&1), "{statuses:?}");
    assert!(statuses.keys().all(|status| [200, 401, 429].contains(status)), "{statuses:?}");
    assert_eq!(lookups(&gateway, "none"), BOUND as f64);
}

#[test]
fn clients_that_go_away_leave_their_places() {
    /// Those that wait at most, from one address.
    const WAITING: usize = 512;
    /// It takes seconds.
    const SLOW: &str = "$2y$15$92IXUNpkjO0rOQ5byMi.Ye4oKoEa3Ro9llC/.og/at2.uheWG/igi";
    let _turn = turns::beside_others();
    let (gateway, _folder) = with_users(1, SLOW);
    let send = |field: &String| send(gateway.listeners[0], field);
    let begun = Instant::now();
    let under_way: Vec<TcpStream> = passwords("a", 0..BOUND).iter().map(send).collect();
    eventually("one is hashed", || (hashes(&gateway) == 1.0).then_some(()));
    let waiting: Vec<TcpStream> = passwords("b", 100..100 + WAITING).iter().map(send).collect();
    let [other, last] = [700, 701].map(|user| passwords("c", user..user + 1).remove(0));
    // An attempt waits for five seconds. On a machine that is held up for so long there is no full queue to see.
    let in_time = || begun.elapsed() < Duration::from_secs(4);
    let mut is_full = false;
    while !is_full && in_time() {
        is_full = status_soon(send(&other)) == Some(503);
    }
    if !is_full {
        return;
    }
    drop(waiting);
    let last = eventually("there is room again", || {
        let stream = send(&last);
        status_soon(stream.try_clone().unwrap()).is_none().then_some(stream)
    });
    let unanswered = under_way.into_iter().chain([last]).all(|stream| status_soon(stream).is_none());
    assert!(unanswered || !in_time());
}

/// The status of an answer that comes at once.
fn status_soon(stream: TcpStream) -> Option<u16> {
    let mut beginning = [0; 1];
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let peeked = stream.peek(&mut beginning);
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    match peeked {
        Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => None,
        peeked => {
            peeked.unwrap();
            Some(status(stream))
        }
    }
}

fn with_users(count: usize, hash: &str) -> (Gateway, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("htpasswd");
    let users: String = (0..count).map(|number| format!("user{number}:{hash}\n")).collect();
    fs::write(&file, users).unwrap();
    (Gateway::start(&PASSWORDS.replace("USERS", &file.display().to_string())), folder)
}

/// One for all users: it matters how many are hashed.
fn fast_hash() -> String {
    bcrypt::hash("secret", 4).unwrap().replacen("$2b$", "$2y$", 1)
}

fn passwords(password: &str, users: std::ops::Range<usize>) -> Vec<String> {
    let field = |user: usize| STANDARD.encode(format!("user{user}:{password}"));
    users.map(|user| format!("authorization: Basic {}", field(user))).collect()
}

fn hashes(gateway: &Gateway) -> f64 {
    gateway.metric("tollgate_password_hashes_total{authenticator=\"staff\"}")
}

#[test]
fn users_who_come_at_once_from_one_address_are_all_taken() {
    let _turn = turns::beside_others();
    let (gateway, _folder) = with_users(60, &fast_hash());
    assert_eq!(at_once(&gateway, passwords("secret", 0..60)), BTreeMap::from([(200, 60)]));
    assert_eq!(hashes(&gateway), 60.0);
}

#[test]
fn of_wrong_passwords_that_come_at_once_no_more_than_the_bound_are_hashed() {
    let _turn = turns::beside_others();
    let (gateway, _folder) = with_users(60, &fast_hash());
    let mut tried = passwords("guess", 0..60);
    tried.extend(passwords("another", 0..60));
    assert_eq!(at_once(&gateway, tried), BTreeMap::from([(401, BOUND), (429, 120 - BOUND)]));
    assert_eq!(hashes(&gateway), BOUND as f64);
}

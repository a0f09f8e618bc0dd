//! Everything that can be wrong with a Redis, one after the other, under load: each is lived
//! through alike.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::faulty_proxy::FaultyProxy;
use crate::fleet::{
    BURST, PATIENT, RATE, admitted, assert_never_over, assert_spent_between_denials, routes,
    seconds,
};
use crate::load::{Load, run_for};
use crate::outage::live_through;
use crate::process::{Gateway, eventually, status};
use tollgate_testing::redis::{RedisServer, free_port};
use tollgate_testing::turns;

/// Outcomes of a call that gets no answer, or finds no connection.
const NO_ANSWER: [&str; 2] = ["timeout", "io"];

#[test]
fn a_server_that_is_killed_and_started_again() {
    let redis = RedisServer::start();
    live_through(
        &redis.url(),
        redis,
        &NO_ANSWER,
        RedisServer::kill9,
        RedisServer::restart,
    );
}

#[test]
fn a_server_that_is_stopped_and_continued() {
    let redis = RedisServer::start();
    live_through(
        &redis.url(),
        redis,
        &NO_ANSWER,
        |redis| redis.stop(),
        |redis| redis.cont(),
    );
}

#[test]
fn a_network_that_drops_every_packet() {
    let redis = RedisServer::start();
    let wire = FaultyProxy::to(redis.port());
    let url = format!("redis://127.0.0.1:{}", wire.port());
    live_through(
        &url,
        wire,
        &NO_ANSWER,
        |wire| wire.swallow(),
        |wire| wire.mend(),
    );
}

#[test]
fn a_primary_that_became_a_replica() {
    let redis = RedisServer::start();
    let demote = |redis: &mut RedisServer| ok(redis, &["REPLICAOF", "127.0.0.1", "1"]);
    let promote = |redis: &mut RedisServer| ok(redis, &["REPLICAOF", "NO", "ONE"]);
    live_through(&redis.url(), redis, &["read_only"], demote, promote);
}

#[test]
fn a_server_without_memory_that_evicts_nothing() {
    let redis = RedisServer::start();
    let fill = |redis: &mut RedisServer| ok(redis, &["CONFIG", "SET", "maxmemory", "1"]);
    let free = |redis: &mut RedisServer| ok(redis, &["CONFIG", "SET", "maxmemory", "0"]);
    live_through(&redis.url(), redis, &["out_of_memory"], fill, free);
}

#[test]
fn a_server_that_loads_its_data() {
    refusing("LOADING Redis is loading the dataset in memory", "loading");
}

#[test]
fn a_server_that_is_busy_with_a_script() {
    let redis = RedisServer::start();
    ok(&redis, &["CONFIG", "SET", "lua-time-limit", "1"]);
    let occupy = |(redis, script): &mut (RedisServer, Option<TcpStream>)| {
        let mut stream = TcpStream::connect(("127.0.0.1", redis.port())).unwrap();
        stream.write_all(b"EVAL 'while true do end' 0\r\n").unwrap();
        *script = Some(stream);
    };
    let kill = |(redis, _): &mut (RedisServer, Option<TcpStream>)| ok(redis, &["SCRIPT", "KILL"]);
    live_through(&redis.url(), (redis, None), &["busy"], occupy, kill);
}

#[test]
fn a_password_that_is_changed_while_running() {
    let (redis, url) = with_login("hunter2");
    let change = |redis: &mut RedisServer| {
        ok(redis, &["ACL", "SETUSER", "gate", "resetpass", ">another"]);
        redis.command(&["CLIENT", "KILL", "USER", "gate"]);
    };
    let change_back = |redis: &mut RedisServer| ok(redis, &["ACL", "SETUSER", "gate", ">hunter2"]);
    live_through(&url, redis, &["timeout", "io", "auth"], change, change_back);
}

#[test]
fn a_permission_that_is_taken_away() {
    let (redis, url) = with_login("hunter2");
    let take = |redis: &mut RedisServer| ok(redis, &["ACL", "SETUSER", "gate", "-evalsha"]);
    let give = |redis: &mut RedisServer| ok(redis, &["ACL", "SETUSER", "gate", "+evalsha"]);
    live_through(&url, redis, &["auth"], take, give);
}

#[test]
fn a_cluster_that_lost_its_slots() {
    let redis = cluster_of_one(None);
    let url = format!("redis-cluster://127.0.0.1:{}", redis.port());
    let lose = |redis: &mut RedisServer| ok(redis, &with_all_slots("DELSLOTS"));
    live_through(&url, redis, &["moved"], lose, |redis| take_all_slots(redis));
}

#[test]
fn a_cluster_that_redirects_without_end() {
    let wire = FaultyProxy::open();
    let port = wire.port();
    let redis = cluster_of_one(Some(port));
    wire.lead_to(redis.port());
    let url = format!("redis-cluster://127.0.0.1:{port}");
    let redirect = |wire: &mut FaultyProxy| wire.refuse(&format!("MOVED 1 127.0.0.1:{port}"));
    live_through(&url, wire, &["moved"], redirect, |wire| wire.mend());
    drop(redis);
}

/// Redis answers everything but greetings with this error.
fn refusing(error: &str, outcome: &str) {
    let redis = RedisServer::start();
    let wire = FaultyProxy::to(redis.port());
    let url = format!("redis://127.0.0.1:{}", wire.port());
    live_through(
        &url,
        wire,
        &[outcome],
        |wire| wire.refuse(error),
        |wire| wire.mend(),
    );
}

#[track_caller]
fn ok(redis: &RedisServer, command: &[&str]) {
    assert_eq!(
        redis.command(command),
        "+OK",
        "{:?}",
        &command[..command.len().min(4)]
    );
}

/// A server that knows `gate` by this password, and its URL for that user.
fn with_login(password: &str) -> (RedisServer, String) {
    let redis = RedisServer::start();
    ok(
        &redis,
        &[
            "ACL",
            "SETUSER",
            "gate",
            "on",
            &format!(">{password}"),
            "~*",
            "+@all",
        ],
    );
    let url = format!("redis://gate:hunter2@127.0.0.1:{}", redis.port());
    (redis, url)
}

/// A cluster of one node, which says that it is on `port`.
fn cluster_of_one(port: Option<u16>) -> RedisServer {
    let announced = port.map(|port| vec!["--cluster-announce-port".to_owned(), port.to_string()]);
    let redis = RedisServer::start_with(&|_, _| {
        let cluster = [
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            "500",
            "--cluster-announce-ip",
            "127.0.0.1",
        ];
        cluster
            .map(str::to_owned)
            .into_iter()
            .chain(announced.clone().into_iter().flatten())
            .collect()
    });
    take_all_slots(&redis);
    redis
}

fn take_all_slots(redis: &RedisServer) {
    ok(redis, &with_all_slots("ADDSLOTS"));
    let is_up = || {
        redis
            .command(&["CLUSTER", "INFO"])
            .contains("cluster_state:ok")
            .then_some(())
    };
    eventually("the cluster is up", is_up);
}

fn with_all_slots(what: &'static str) -> Vec<&'static str> {
    let slots = (0..16_384).map(|slot: u32| &*slot.to_string().leak());
    ["CLUSTER", what].into_iter().chain(slots).collect()
}

#[test]
fn flushed_scripts_fail_no_request_under_load() {
    let _turn = turns::among_few();
    let redis = RedisServer::start();
    let routes = routes(&redis.url(), PATIENT);
    let gateways = [Gateway::start(&routes), Gateway::start(&routes)];
    let targets: Vec<_> = gateways
        .iter()
        .map(|gateway| gateway.listeners[0])
        .collect();
    let load = Load::start(&targets, 4, Duration::from_millis(5));
    for _ in 0..800 {
        ok(&redis, &["SCRIPT", "FLUSH"]);
        run_for(Duration::from_millis(2));
    }
    let samples = load.stop();
    println!("{} answers while scripts were flushed", samples.len());
    assert!(
        samples
            .iter()
            .all(|sample| matches!(sample.status, 200 | 429))
    );
    assert_never_over(&samples);
    assert_spent_between_denials(&samples, RATE, 0.97);
    for gateway in &gateways {
        assert!(gateway.metric("tollgate_store_calls_total{outcome=\"ok\"}") > 0.0);
        let text = gateway.metrics();
        let failed = |line: &&str| {
            line.starts_with("tollgate_store_calls_total{") && !line.contains("\"ok\"")
        };
        let failed: Vec<&str> = text
            .lines()
            .filter(failed)
            .filter(|line| !line.ends_with(" 0"))
            .collect();
        assert!(failed.is_empty(), "{failed:?}");
        assert!(
            !text
                .lines()
                .any(|line| line.contains("decided_by=\"local\"") && !line.ends_with(" 0"))
        );
    }
}

#[test]
fn a_limit_that_is_local_for_seconds_denies_after_them_until_redis_is_back() {
    let mut redis = RedisServer::start();
    let gateway = Gateway::start(&format!(
        "workers: 1
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
store: {{redis: '{}', timeout: 100ms}}
limits: {{timed: {{key: {{constant: all}}, rate: 1000000/s, on_outage: {{local: 3s, then: deny}}}}}}
routes: [{{name: all, respond: {{status: 200}}, limits: [timed]}}]
",
        redis.url()
    ));
    let ask = || status(&[&gateway.url("/")]);
    eventually("Redis is reached", || {
        (gateway.metric("tollgate_fleet_nodes") == 1.0 && ask() == 200).then_some(())
    });
    redis.kill9();
    let killed = Instant::now();
    eventually("its time is over", || (ask() == 429).then_some(()));
    // The time counts from the last heartbeat, and there is one every half a second, or later on a
    // busy machine.
    assert!(
        killed.elapsed() >= Duration::from_secs(1),
        "{:?}: its share passes at first",
        killed.elapsed()
    );
    assert!((0..20).all(|_| ask() == 429), "and nothing after that");
    redis.restart();
    eventually("Redis decides again", || (ask() == 200).then_some(()));
}

#[test]
fn a_gateway_starts_without_redis_and_finds_it_later() {
    let port = free_port();
    let mut redis = None;
    finds_it_later(&format!("redis://127.0.0.1:{port}"), || {
        redis = Some(RedisServer::start_at(port))
    });
}

#[test]
fn a_gateway_starts_with_a_wrong_password_and_says_so() {
    let (redis, url) = with_login("another");
    let log = finds_it_later(&url, || ok(&redis, &["ACL", "SETUSER", "gate", ">hunter2"]));
    assert!(
        log.contains("WRONGPASS") && !log.contains("hunter2"),
        "{log}"
    );
}

/// The log of a gateway that cannot use Redis at start, until it is mended.
fn finds_it_later(url: &str, mend_it: impl FnOnce()) -> String {
    let _turn = turns::among_few();
    let gateway = Gateway::start(&routes(url, "200ms"));
    let load = Load::start(&[gateway.listeners[0]], 4, Duration::from_millis(10));
    eventually("the breaker opens", || {
        (gateway.metric("tollgate_store_up") == 0.0).then_some(())
    });
    run_for(Duration::from_secs(1));
    mend_it();
    eventually("redis decides", || {
        (gateway.metric("tollgate_store_up") == 1.0).then_some(())
    });
    let samples = load.stop();
    assert!(
        samples
            .iter()
            .all(|sample| matches!(sample.status, 200 | 429))
    );
    // What the gateway may admit alone; at most a burst more for the outage.
    assert_spent_between_denials(&samples, RATE, 0.9);
    let (admitted, due) = (admitted(&samples) as f64, BURST + RATE * seconds(&samples));
    assert!(admitted <= due + BURST, "{admitted} of {due}");
    gateway.log()
}

/// Answers that no script gives: too many units, other kinds of values, values within values, and
/// halves of some.
fn nonsense() -> Vec<Vec<u8>> {
    let now = ":1700000000000000\r\n";
    let text = |digits: &str| format!("${}\r\n{digits}\r\n", digits.len());
    let texts = ["1", "1700000000000000", "9", "0", "0"].map(text).concat();
    let in_lists = format!("*1\r\n:1\r\n*1\r\n{now}").repeat(3);
    let mut all = vec![
        format!("*5\r\n:4\r\n{now}:9\r\n:0\r\n:0\r\n"),
        format!("*5\r\n{texts}"),
        format!("*5\r\n{}", &in_lists[..in_lists.len() - now.len() - 4]),
        format!("{}:1\r\n", "*1\r\n".repeat(64)),
        format!("*5\r\n:1\r\n{now}:-7\r\n:0\r\n:0\r\n"),
        format!("*5\r\n:1\r\n{now}:99999999999999999999\r\n:0\r\n:0\r\n"),
        format!("*5\r\n:1\r\n{now}"),
    ];
    let short = [
        "*0\r\n",
        "*-1\r\n",
        "$-1\r\n",
        ":1\r\n",
        "+OK\r\n",
        "?what\r\n",
        "*2147483647\r\n",
        "$536870912\r\nhalf",
        "*5\r\n:1",
    ];
    all.extend(short.map(str::to_owned));
    let mut all: Vec<_> = all.into_iter().map(String::into_bytes).collect();
    let mut long = format!("${}\r\n", 4 << 20).into_bytes();
    long.extend(vec![b'x'; 4 << 20]);
    long.extend(b"\r\n");
    all.push(long);
    all
}

#[test]
fn a_server_that_answers_nonsense_is_away_and_grants_nothing() {
    let _turn = turns::among_few();
    let redis = RedisServer::start();
    let wire = FaultyProxy::to(redis.port());
    let gateway = Gateway::start(&format!(
        "
workers: 1
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
store: {{redis: 'redis://127.0.0.1:{}', timeout: 200ms}}
limits:
  few: {{key: {{constant: all}}, rate: 10000/d, burst: 10000, on_outage: deny}}
routes: [{{name: all, echo: true, limits: [few]}}]
",
        wire.port()
    ));
    let url = gateway.url("/");
    let ask = || status(&[&url]);
    for answer in nonsense() {
        eventually("Redis decides", || (ask() == 200).then_some(()));
        wire.answer(&answer);
        let shown = answer.escape_ascii().to_string();
        let shown = &shown[..shown.len().min(80)];
        eventually("the breaker opens", || {
            assert_ne!(ask(), 200, "{shown}");
            (gateway.metric("tollgate_store_up") == 0.0).then_some(())
        });
        assert!((0..5).all(|_| ask() != 200), "{shown}");
        wire.mend();
    }
    eventually("Redis decides", || (ask() == 200).then_some(()));
}

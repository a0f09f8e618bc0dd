//! The store in Redis: what is stored, for how long, and what happens when Redis misbehaves.

use std::sync::Arc;
use std::time::Duration;

use tollgate_limiter::algorithm::concurrency::PermitRequest;
use tollgate_limiter::algorithm::share::Share;
use tollgate_limiter::clock;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::store::fleet_share::FleetShare;
use tollgate_limiter::store::hash_reader::HashReader;
use tollgate_limiter::store::inspect::Inspect as _;
use tollgate_limiter::store::redis::heartbeat::Heartbeat;
use tollgate_limiter::store::redis::inspect::RedisInspector;
use tollgate_limiter::store::redis::spec::RedisSpec;
use tollgate_limiter::store::redis::tls::TlsError;
use tollgate_limiter::store::redis::{ConnectError, RedisStore};
use tollgate_limiter::store::{PermitClaim, Store, StoreError};
use tollgate_testing::node::connected;
use tollgate_testing::redis::{RedisServer, free_port, spec_at};
use tollgate_testing::{HOUR, PATIENCE, SECOND, charge, eventually, in_time, shape};

async fn error_of(store: &RedisStore, key: &str) -> StoreError {
    store
        .take(&[charge(key, shape(5, HOUR, 5), 1)], 1)
        .await
        .unwrap_err()
        .error
}

#[tokio::test]
async fn a_bucket_is_one_string_that_expires_when_it_is_full() {
    let server = RedisServer::start();
    let store = connected(&server.spec()).await;
    store
        .take(&[charge("k", shape(3, HOUR, 3), 1)], 2)
        .await
        .unwrap();
    let numbers =
        "return table.concat({struct.unpack('<c1ddddd', redis.call('GET', KEYS[1]))}, ':')";
    let value = server.command(&["EVAL", numbers, "1", "t:k"]);
    let parts: Vec<&str> = value.split(':').collect();
    assert_eq!(
        (parts[0], &parts[2..6]),
        ("b", &["0", "1200000000", "1", "2400000000"][..]),
        "{value}"
    );
    let ttl_ms: u64 = server
        .command(&["PTTL", "t:k"])
        .trim_start_matches(':')
        .parse()
        .unwrap();
    assert!((2_340_000..=2_400_001).contains(&ttl_ms), "{ttl_ms}");
}

#[tokio::test]
async fn even_the_fastest_bucket_has_an_expiry() {
    let server = RedisServer::start();
    let store = connected(&server.spec()).await;
    for _ in 0..100 {
        let grant = store
            .take(&[charge("k", shape(10_000_000, SECOND, 10), 1)], 1)
            .await
            .unwrap();
        assert_eq!(grant.units, 1);
        assert_ne!(server.command(&["PTTL", "t:k"]), ":-1");
    }
}

/// During an upgrade of the fleet, older versions write values without demands.
#[tokio::test]
async fn permits_that_an_older_version_claimed_count() {
    let server = RedisServer::start();
    let store = connected(&server.spec()).await;
    let until_us = clock::unix_micros() + 60 * SECOND;
    let value = format!("11=3:7:{until_us},12=4:1:{until_us}");
    assert_eq!(server.command(&["SET", "t:!in-flight:k", &value]), "+OK");
    let claim = PermitRequest {
        wanted: 5,
        demand: 5,
        kept: 0,
        needed: 0,
        largest_cost: 1,
        turn: 1,
    };
    let claim = PermitClaim {
        key: Key::from("k"),
        most: 10,
        node: 13,
        claim,
    };
    let granted = store.claim(&[claim]).await.unwrap();
    assert_eq!((granted[0].own, granted[0].others), (3, 7));
    let stored = server.command(&["GET", "t:!in-flight:k"]);
    assert!(
        stored.starts_with("11=3:7:")
            && stored.contains(",12=4:1:")
            && stored.contains(",13=3:1:")
            && stored.ends_with(":5"),
        "{stored}"
    );
}

#[tokio::test]
async fn flushed_scripts_are_loaded_again_without_a_failure() {
    let server = RedisServer::start();
    let store = connected(&server.spec()).await;
    for left in (0..5).rev() {
        assert_eq!(server.command(&["SCRIPT", "FLUSH"]), "+OK");
        let grant = store
            .take(&[charge("k", shape(5, HOUR, 5), 1)], 1)
            .await
            .unwrap();
        assert_eq!((grant.units, grant.levels[0].remaining), (1, left));
    }
}

#[tokio::test]
async fn a_hash_is_read_field_by_field_and_changes_nothing() {
    let server = RedisServer::start();
    let store = connected(&server.spec()).await;
    let many: Vec<Key> = (0..1_024).map(|n| Key::from(&*n.to_string())).collect();
    assert_eq!(
        store.read("plans", &many).await,
        Ok(vec![None; 1_024]),
        "a hash that is not there"
    );
    assert_eq!(server.command(&["EXISTS", "t:plans"]), ":0");
    server.command(&["HSET", "t:plans", "7", "5/s", "\u{e9} |{}", "", "1023", "x"]);
    let read = store.read("plans", &many).await.unwrap();
    let held: Vec<_> = read
        .iter()
        .enumerate()
        .filter_map(|(n, text)| Some((n, text.clone()?)))
        .collect();
    assert_eq!(held, [(7, b"5/s".to_vec()), (1_023, b"x".to_vec())]);
    assert_eq!(server.command(&["SCRIPT", "FLUSH"]), "+OK");
    assert_eq!(
        store.read("plans", &[Key::from("\u{e9} |{}")]).await,
        Ok(vec![Some(Vec::new())])
    );
    server.command(&["SET", "t:text", "5/s"]);
    let error = store.read("text", &many[..1]).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Script(why) if why.contains("WRONGTYPE")),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_read_that_gets_no_answer_ends_in_time() {
    let server = RedisServer::start();
    let store = connected(&RedisSpec {
        timeout: Duration::from_millis(50),
        ..server.spec()
    })
    .await;
    server.stop();
    let fields = [Key::from("acme")];
    let read = tokio::time::timeout(PATIENCE, store.read("plans", &fields)).await;
    let error = read.expect("the server stays silent").unwrap_err();
    server.cont();
    assert!(
        matches!(error, StoreError::Timeout | StoreError::Io),
        "{error:?}"
    );
}

#[tokio::test]
async fn two_nodes_never_exceed_the_limit_together() {
    let server = RedisServer::start();
    let nodes = [
        connected(&server.spec()).await,
        connected(&server.spec()).await,
    ];
    // The burst outlasts what a busy machine holds both up for: a bucket that is full meanwhile
    // would lose what it earns.
    const BURST: u32 = 20_000;
    let limit = shape(1_000, SECOND, BURST.into());
    let (started, started_us) = (clock::now(), server.clock_us());
    // Until the bucket is found empty: when it was first answered, when it asked for the last time,
    // and what it got.
    let greedy = |store: RedisStore| async move {
        let charges = [charge("k", limit, 1)];
        let mut admitted = store.take(&charges, BURST).await.unwrap().units;
        let first = clock::now();
        loop {
            let asked = clock::now();
            let units = store.take(&charges, 3).await.unwrap().units;
            admitted += units;
            if units == 0 && started.elapsed() > Duration::from_millis(500) {
                return (first, asked, admitted);
            }
        }
    };
    let [a, b] = nodes.map(|store| tokio::spawn(greedy(store)));
    let a = a.await.unwrap();
    let b = b.await.unwrap();
    let of = |time: Duration| f64::from(BURST) + 1_000.0 * time.as_secs_f64();
    let least = of(a.1.max(b.1) - a.0.min(b.0));
    let most = of(Duration::from_micros(server.clock_us() - started_us));
    let admitted = f64::from(a.2 + b.2);
    assert!(
        admitted <= most && admitted >= 0.97 * least,
        "{admitted} of {least} to {most}"
    );
}

#[tokio::test]
async fn connecting_neither_waits_nor_fails_when_redis_is_absent() {
    let mut spec = spec_at(free_port());
    spec.timeout = Duration::from_millis(20);
    let store = RedisStore::connect(&spec).unwrap();
    let error = tokio::time::timeout(PATIENCE, error_of(&store, "k"));
    let error = error.await.expect("a call has an end");
    assert!(
        matches!(error, StoreError::Timeout | StoreError::Io),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_bad_url_is_refused_without_showing_it() {
    for url in [
        "http://user:hunter2@h/",
        "redis://user:hunter2@:99999999",
        "redis://user:hunter2@h/not-a-db",
        "hunter2",
    ] {
        let spec = RedisSpec {
            url: url.into(),
            ..spec_at(1)
        };
        let error = RedisStore::connect(&spec)
            .err()
            .unwrap_or_else(|| panic!("{url} is accepted"));
        assert_eq!(error, ConnectError::Url);
        let printed = format!("Error: {error:?}");
        assert!(
            printed.contains("redis://[user:password@]host"),
            "{printed}"
        );
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }
}

#[tokio::test]
async fn tls_is_set_up_from_the_url_and_a_server_without_it_is_an_outage() {
    let server = RedisServer::start();
    let url = format!("rediss://127.0.0.1:{}", server.port()).into();
    let spec = RedisSpec {
        url,
        timeout: Duration::from_millis(50),
        ..server.spec()
    };
    match RedisStore::connect(&spec) {
        Ok(store) => {
            let error = error_of(&store, "k").await;
            assert!(
                matches!(error, StoreError::Timeout | StoreError::Io),
                "{error:?}"
            );
        }
        Err(error) => {
            let none = ConnectError::Certificates(TlsError::System);
            assert_eq!(error, none, "a machine without root certificates");
        }
    }
    assert_eq!(server.script_calls(), 0, "nothing may go out in the clear");
}

#[tokio::test]
async fn the_database_and_the_password_of_the_url_are_used() {
    let server = RedisServer::start();
    server.command(&["ACL", "SETUSER", "gate", "on", ">hunter2", "~*", "+@all"]);
    server.command(&["CONFIG", "SET", "requirepass", "other"]);
    let right = |database: u8| {
        let url = format!(
            "redis://gate:hunter2@127.0.0.1:{}/{database}",
            server.port()
        );
        RedisSpec {
            url: url.into(),
            ..server.spec()
        }
    };
    for (database, left) in [(3, 4), (3, 3), (0, 4)] {
        let grant = connected(&right(database))
            .await
            .take(&[charge("k", shape(5, HOUR, 5), 1)], 1)
            .await
            .unwrap();
        assert_eq!(
            grant.levels[0].remaining, left,
            "a bucket is in its database alone: {database}"
        );
    }
    let wrong = RedisSpec {
        url: format!("redis://gate:wrong@127.0.0.1:{}", server.port()).into(),
        ..server.spec()
    };
    let store = RedisStore::connect(&RedisSpec {
        timeout: Duration::from_millis(50),
        ..wrong
    })
    .unwrap();
    let error = error_of(&store, "k").await;
    assert!(
        matches!(
            error,
            StoreError::Timeout | StoreError::Io | StoreError::Auth
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn each_kind_of_refusal_by_redis_has_an_error_of_its_own() {
    let server = RedisServer::start();
    let store = connected(&server.spec()).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(error_of(&store, "a").await, StoreError::OutOfMemory);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(error_of(&store, "a").await, StoreError::ReadOnly);
    server.command(&["REPLICAOF", "NO", "ONE"]);
}

#[tokio::test]
async fn a_foreign_value_is_marked_and_only_the_other_keys_are_charged() {
    let server = RedisServer::start();
    let store = connected(&server.spec()).await;
    server.command(&["SET", "t:text", "foreign"]);
    server.command(&["RPUSH", "t:list", "1"]);
    let keys = ["text", "a", "list", "b", "text"];
    let charges = keys.map(|key| charge(key, shape(5, HOUR, 5), 1));
    let grant = store.take(&charges, 9).await.unwrap();
    assert_eq!((grant.units, &grant.foreign[..]), (5, &[0, 2, 4][..]));
    assert_eq!(
        grant
            .levels
            .iter()
            .map(|level| level.remaining)
            .collect::<Vec<_>>(),
        [0; 5]
    );
    assert_eq!(
        store.take(&charges[1..2], 0).await.unwrap().foreign.len(),
        0
    );
    assert_eq!(
        (
            server.command(&["GET", "t:text"]).as_str(),
            server.command(&["LLEN", "t:list"]).as_str()
        ),
        ("foreign", ":1")
    );
}

#[tokio::test]
async fn a_call_that_timed_out_charges_nothing_later() {
    let server = RedisServer::start();
    let spec = RedisSpec {
        timeout: Duration::from_millis(500),
        ..server.spec()
    };
    let store = connected(&spec).await;
    let charges = [charge("k", shape(100, HOUR, 100), 1)];
    assert_eq!(
        store.take(&charges, 1).await.unwrap().levels[0].remaining,
        99
    );
    let before = server.script_calls();
    server.stop();
    let started = clock::now();
    let many = (0..100).map(|n| [charge(&format!("k{n}"), shape(100, HOUR, 100), 1)]);
    let many: Vec<_> = many.chain([charges.clone()]).collect();
    let late = many.iter().map(|charges| store.take(charges, 1));
    for answer in futures_util::future::join_all(late).await {
        assert!(
            matches!(
                answer.as_ref().map_err(|failure| &failure.error),
                Err(StoreError::Timeout | StoreError::Io)
            ),
            "{answer:?}"
        );
    }
    eventually("the calls are late", || async {
        started.elapsed() > 3 * spec.timeout
    })
    .await;
    server.cont();
    // They reached Redis in three calls, each of which was refused.
    eventually("the late calls have run", || async {
        server.script_calls() >= before + 3
    })
    .await;
    eventually("the store answers again", || async {
        store.take(&charges, 0).await.is_ok()
    })
    .await;
    assert_eq!(server.command(&["KEYS", "t:k?*"]), "*0");
    assert_eq!(
        store.take(&charges, 0).await.unwrap().levels[0].remaining,
        99
    );
}

#[tokio::test]
async fn a_call_that_never_left_is_not_made_after_the_reconnect() {
    let port = free_port();
    let spec = RedisSpec {
        timeout: Duration::from_millis(500),
        ..spec_at(port)
    };
    let store = RedisStore::connect(&spec).unwrap();
    let charges = [charge("k", shape(100, HOUR, 100), 1)];
    let early = std::iter::repeat_with(|| store.take(&charges, 1)).take(20);
    assert!(
        futures_util::future::join_all(early)
            .await
            .iter()
            .all(Result::is_err)
    );
    let server = RedisServer::start_at(port);
    eventually("the store connects", || async {
        store.take(&charges, 0).await.is_ok()
    })
    .await;
    assert_eq!(
        store.take(&charges, 0).await.unwrap().levels[0].remaining,
        100
    );
    drop(server);
}

#[tokio::test]
async fn nodes_count_each_other_and_notice_who_left() {
    let server = RedisServer::start();
    let shares: Vec<Arc<FleetShare>> = (0..3).map(|_| Arc::new(FleetShare::expecting(1))).collect();
    let mut running = Vec::new();
    for share in &shares {
        let fleet = Arc::new(Heartbeat::join(&server.spec(), share.clone()).unwrap());
        let beats = fleet.clone();
        running.push((fleet, tokio::spawn(async move { beats.run().await })));
    }
    eventually("each counts three", || async {
        shares.iter().all(|share| share.get().nodes() == 3)
    })
    .await;
    let ranks: std::collections::BTreeSet<String> = shares
        .iter()
        .map(|share| format!("{:?}", share.get()))
        .collect();
    assert_eq!(ranks.len(), 3, "{ranks:?}");
    let (leaving, beats) = running.remove(0);
    beats.abort();
    leaving.leave().await;
    assert_eq!(server.command(&["ZCARD", "t:!nodes"]), ":2");
    let two = || async { shares[1..].iter().all(|share| share.get().nodes() == 2) };
    eventually("the others count two", two).await;
    assert_ne!(shares[1].get(), shares[2].get());
}

#[tokio::test]
async fn the_count_of_nodes_survives_a_restart_of_redis() {
    let mut server = RedisServer::start();
    let share = Arc::new(FleetShare::expecting(3));
    let fleet = Heartbeat::join(&server.spec(), share.clone()).unwrap();
    let beats = tokio::spawn(async move { fleet.run().await });
    eventually("the node is announced", || async {
        server.command(&["ZCARD", "t:!nodes"]) == ":1"
    })
    .await;
    assert_eq!(share.get(), Share::unplaced(3));
    server.kill9();
    server.restart();
    eventually("the node is announced again", || async {
        server.command(&["ZCARD", "t:!nodes"]) == ":1"
    })
    .await;
    assert_eq!(share.get().nodes(), 3);
    let believed = || async { share.get() == Share::new(1, 0) };
    eventually("a lasting count is believed", believed).await;
    beats.abort();
}

#[tokio::test]
async fn a_node_announced_in_the_future_is_forgotten_like_any_other() {
    let server = RedisServer::start();
    // Redis's clock has stepped back since.
    server.command(&["ZADD", "t:!nodes", "9999999999999", "ghost:3000:0"]);
    let share = Arc::new(FleetShare::expecting(1));
    let spec = RedisSpec {
        autonomy: Duration::from_secs(3),
        ..server.spec()
    };
    let fleet = Heartbeat::join(&spec, share.clone()).unwrap();
    let beats = tokio::spawn(async move { fleet.run().await });
    eventually("it counts at first", || async { share.get().nodes() == 2 }).await;
    let alone = || async { share.get() == Share::new(1, 0) };
    eventually("it is forgotten", alone).await;
    beats.abort();
}

#[tokio::test]
async fn what_a_node_says_of_itself_goes_when_it_does() {
    let server = RedisServer::start();
    // Of a process that was killed, and of one that is out of the set for another reason.
    server.command(&["HSET", "t:{t:!nodes}", "ghost", "boo"]);
    let join = |says: &'static [u8]| {
        let share = Arc::new(FleetShare::expecting(1));
        Arc::new(
            Heartbeat::join(&server.spec(), share)
                .unwrap()
                .stating(Arc::new(move || says.to_vec())),
        )
    };
    let nodes = [join(b"one"), join(&[b'x'; 5_000])];
    let beating = nodes.each_ref().map(|node| {
        let node = node.clone();
        tokio::spawn(async move { node.run().await })
    });
    let inspector = RedisInspector::connect(&server.spec()).unwrap();
    let both = in_time("both are there", async {
        loop {
            match inspector.nodes().await {
                Ok(nodes) if nodes.len() == 2 => return nodes,
                _ => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    });
    let said: std::collections::BTreeMap<String, Vec<u8>> = both
        .await
        .into_iter()
        .map(|node| (node.id, node.statement))
        .collect();
    assert_eq!(said[nodes[0].id()], b"one");
    assert!(
        said[nodes[1].id()].is_empty(),
        "more than a node may say was sent"
    );
    eventually("nothing is left of others", || async {
        server.command(&["HLEN", "t:{t:!nodes}"]) == ":2"
    })
    .await;
    beating.iter().for_each(tokio::task::JoinHandle::abort);
    nodes[0].leave().await;
    assert_eq!(server.command(&["HLEN", "t:{t:!nodes}"]), ":1");
    assert_ne!(server.command(&["PTTL", "t:{t:!nodes}"]), ":-1");
}

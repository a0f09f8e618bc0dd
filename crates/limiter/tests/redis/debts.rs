//! Corrections are made once, per key, whatever happens to calls, servers and keys beside them.

use std::sync::Arc;
use std::time::Duration;

use tollgate_limiter::algorithm::token_bucket::TokenBucket;
use tollgate_limiter::clock;
use tollgate_limiter::decide::decision::DecidedBy;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::store::adjustment::{
    Adjustment, AdjustmentBatch, AdjustmentOutcome, AdjustmentResult, BatchId, Change,
};
use tollgate_limiter::store::redis::RedisStore;
use tollgate_limiter::store::redis::spec::RedisSpec;
use tollgate_limiter::store::{BucketCharge, Store, StoreError};
use tollgate_testing::node::{LimiterNode, connected};
use tollgate_testing::redis::{RedisServer, spec_at};
use tollgate_testing::topology::delaying_proxy::DelayingProxy;
use tollgate_testing::topology::{RedisCluster, patient};
use tollgate_testing::{HOUR, charge, decide, eventually, shape};

const APPLIED: AdjustmentResult = Ok(AdjustmentOutcome::Applied);

fn hundred() -> TokenBucket {
    shape(100, 24 * HOUR, 100)
}

/// A batch of debts of 3 tokens to each of these.
fn batch(number: u64, names: &[String]) -> AdjustmentBatch {
    let quota = hundred().into();
    let change = Change::Charge {
        charge: 3 * hundred().emission(),
        since_us: clock::monotonic_micros(),
    };
    AdjustmentBatch::new(
        BatchId { node: 7, number },
        names
            .iter()
            .map(|name: &String| Adjustment {
                key: Key::from(name.as_str()),
                quota,
                change,
            })
            .collect(),
    )
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("k{n}")).collect()
}

async fn left(store: &RedisStore, name: &str) -> u64 {
    store
        .take(&[charge(name, hundred(), 1)], 0)
        .await
        .unwrap()
        .levels[0]
        .remaining
}

async fn all_left(store: &RedisStore, names: &[String]) -> Vec<u64> {
    let mut all = Vec::new();
    for name in names {
        all.push(left(store, name).await);
    }
    all
}

/// A server that does not have a script changes nothing, and the reply that says so is late as
/// well.
async fn knows_the_script(store: &RedisStore) {
    assert_eq!(
        store
            .adjust(&AdjustmentBatch::once(
                batch(1, &["warm-up".to_owned()]).iter().cloned().collect()
            ))
            .await,
        [APPLIED]
    );
}

#[tokio::test]
async fn a_batch_whose_reply_was_lost_is_charged_once() {
    let server = RedisServer::start();
    let wire = DelayingProxy::to(server.port()).await;
    let spec = RedisSpec {
        timeout: Duration::from_millis(50),
        ..spec_at(wire.address.port())
    };
    let store = connected(&spec).await;
    let direct = connected(&server.spec()).await;
    knows_the_script(&direct).await;
    let names = names(3);
    let owed = batch(1, &names);
    wire.replies_take(Duration::from_millis(180));
    // A busy machine may deliver it too late to be made.
    let sent = async || store.adjust(&owed).await.iter().all(Result::is_err);
    eventually("it was made all the same", || async {
        sent().await && left(&direct, "k2").await == 97
    })
    .await;
    wire.replies_take(Duration::ZERO);
    eventually("it is answered", || async {
        store.adjust(&owed).await == vec![APPLIED; 3]
    })
    .await;
    assert_eq!(all_left(&direct, &names).await, [97; 3]);
    assert_eq!(
        server.command(&["HGETALL", "t:!charged:0000000000000007"]),
        "*2",
        "until the node has said it knows"
    );
    eventually("the next is answered", || async {
        store.adjust(&batch(2, &names[..1])).await == [APPLIED]
    })
    .await;
    assert_eq!(
        server.command(&["HEXISTS", "t:!charged:0000000000000007", "1"]),
        ":0"
    );
    let ttl_ms: u64 = server
        .command(&["PTTL", "t:!charged:0000000000000007"])
        .trim_start_matches(':')
        .parse()
        .unwrap();
    assert!((3_540_000..=3_600_000).contains(&ttl_ms), "{ttl_ms}");
}

#[tokio::test]
async fn a_redis_that_always_answers_a_little_late_drains_nobody() {
    let server = RedisServer::start();
    let wire = DelayingProxy::to(server.port()).await;
    let spec = RedisSpec {
        timeout: Duration::from_millis(100),
        ..spec_at(wire.address.port())
    };
    let node = LimiterNode::started(&spec).await;
    let direct = connected(&server.spec()).await;
    knows_the_script(&direct).await;
    let request = [charge("k", hundred(), 1)];
    assert_eq!(
        decide(&node.limiter, &request).await.levels[0].remaining,
        99
    );
    // It answers at once, and nothing is charged.
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    for _ in 0..2 {
        let decision = decide(&node.limiter, &request).await;
        assert!(decision.granted && decision.decided_by == DecidedBy::Local);
    }
    assert!(!node.breaker.is_open());
    wire.replies_take(Duration::from_millis(120));
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    eventually("both are charged", || async {
        left(&direct, "k").await == 97
    })
    .await;
    let mut last = (0, clock::now());
    eventually("they are confirmed and sent no more", || {
        let calls = server.script_calls();
        if calls != last.0 {
            last = (calls, clock::now());
        }
        std::future::ready(last.1.elapsed() > Duration::from_millis(300))
    })
    .await;
    assert_eq!(left(&direct, "k").await, 97);
}

/// Later than the time limit by so much that each connection looks dead before its answer comes: no
/// charge is confirmed, and none is made twice.
#[tokio::test]
async fn debts_whose_answers_are_all_lost_are_charged_once_when_answers_come_again() {
    let server = RedisServer::start();
    let wire = DelayingProxy::to(server.port()).await;
    let spec = RedisSpec {
        timeout: Duration::from_millis(100),
        ..spec_at(wire.address.port())
    };
    let node = LimiterNode::started(&spec).await;
    let direct = connected(&server.spec()).await;
    knows_the_script(&direct).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let request = [charge("k", hundred(), 1)];
    for _ in 0..2 {
        let decision = decide(&node.limiter, &request).await;
        assert!(decision.granted && decision.decided_by == DecidedBy::Local);
    }
    wire.replies_take(Duration::from_millis(400));
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    eventually("one is charged, or both together", async || {
        left(&direct, "k").await < 100
    })
    .await;
    wire.replies_take(Duration::ZERO);
    eventually("the other one is, too", async || {
        left(&direct, "k").await == 98
    })
    .await;
    node.recovers().await;
    assert_eq!(left(&direct, "k").await, 98);
}

fn marks_any(server: &RedisServer, pattern: &str) -> bool {
    server.command(&["KEYS", pattern]) != "*0"
}

#[tokio::test]
async fn a_foreign_value_among_many_keys_keeps_none_of_them_from_its_charge() {
    let server = RedisServer::start();
    let store = connected(&server.spec()).await;
    let names = names(64);
    server.command(&["SET", "t:k7", "foreign"]);
    server.command(&["RPUSH", "t:k9", "foreign"]);
    for number in [1, 1, 1] {
        let results = store.adjust(&batch(number, &names)).await;
        for (name, result) in names.iter().zip(results) {
            let outcome = if ["k7", "k9"].contains(&name.as_str()) {
                AdjustmentOutcome::Foreign
            } else {
                AdjustmentOutcome::Applied
            };
            assert_eq!(result, Ok(outcome), "{name}");
        }
    }
    let healthy: Vec<String> = names
        .into_iter()
        .filter(|name| !["k7", "k9"].contains(&name.as_str()))
        .collect();
    assert_eq!(all_left(&store, &healthy).await, [97; 62]);
    assert_eq!(
        (
            server.command(&["GET", "t:k7"]).as_str(),
            server.command(&["LLEN", "t:k9"]).as_str()
        ),
        ("foreign", ":1")
    );
}

#[tokio::test]
async fn a_limit_whose_key_is_foreign_is_enforced_by_the_node_and_the_others_by_redis() {
    let server = RedisServer::start();
    let node = LimiterNode::started(&patient(server.spec())).await;
    server.command(&["SET", "t:foreign", "value"]);
    let request = [
        charge("foreign", shape(3, HOUR, 3), 1),
        charge("k", hundred(), 1),
    ];
    let mut granted = 0;
    for _ in 0..10 {
        let decision = decide(&node.limiter, &request).await;
        granted += u32::from(decision.granted);
        assert_eq!(decision.source(0).decided_by, DecidedBy::Local);
        if decision.granted {
            assert_eq!(decision.source(1).decided_by, DecidedBy::Redis);
        }
    }
    assert_eq!(granted, 3);
    eventually("only what was granted is charged", || async {
        left(&node.store.store, "k").await == 97
    })
    .await;
    assert!(!node.breaker.is_open());
    server.command(&["DEL", "t:foreign"]);
    eventually("Redis decides again", || async {
        decide(&node.limiter, &request[..1]).await.decided_by == DecidedBy::Redis
    })
    .await;
}

/// Names of two keys on each node of the cluster, by the node.
fn spread(cluster: &RedisCluster) -> [[String; 2]; 3] {
    [0, 1, 2].map(|node| {
        let mut names = (0..)
            .map(|n| format!("k{n}"))
            .filter(|name| cluster.owner(&format!("t:{name}")) == node);
        [names.next().unwrap(), names.next().unwrap()]
    })
}

#[tokio::test]
async fn in_a_cluster_each_hash_slot_has_results_and_a_marker_of_its_own() {
    let cluster = RedisCluster::start().await;
    let store = connected(&patient(cluster.spec())).await;
    let names: Vec<String> = spread(&cluster)
        .into_iter()
        .flatten()
        .chain(["{t}a", "{t}b"].map(str::to_owned))
        .collect();
    let owed = batch(1, &names);
    for _ in 0..3 {
        eventually("every hash slot answers", || async {
            store.adjust(&owed).await == vec![APPLIED; 8]
        })
        .await;
    }
    assert_eq!(all_left(&store, &names).await, [97; 8]);
    assert!(
        cluster
            .nodes
            .iter()
            .all(|node| marks_any(node, "t:!charged:{*}:0000000000000007"))
    );
}

#[tokio::test]
async fn a_hash_slot_that_is_moving_is_charged_once_in_the_end() {
    let cluster = RedisCluster::start().await;
    let store = connected(&patient(cluster.spec())).await;
    let names = ["{t}a", "{t}b"].map(str::to_owned);
    let home = cluster.owner("t:{t}a");
    let source = &cluster.nodes[home];
    let target = &cluster.nodes[(home + 1) % 3];
    let [source_id, target_id] = [source, target].map(|node| node.command(&["CLUSTER", "MYID"]));
    let slot = source
        .command(&["CLUSTER", "KEYSLOT", "{t}"])
        .trim_start_matches(':')
        .to_owned();
    let first = batch(1, &names);
    assert_eq!(store.adjust(&first).await, [APPLIED; 2]);
    assert_eq!(
        target.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]),
        "+OK"
    );
    assert_eq!(
        source.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]),
        "+OK"
    );
    let port = target.port().to_string();
    assert_eq!(
        source.command(&["MIGRATE", "127.0.0.1", &port, "t:{t}a", "0", "1000"]),
        "+OK"
    );
    // The first key has moved; the second, and the marker, have not.
    let second = batch(2, &names);
    let results = store.adjust(&second).await;
    assert_eq!(results, [Err(StoreError::Moved), APPLIED]);
    assert_eq!(store.adjust(&second).await, results);
    let marker = (0..).map(|n| format!("t:!charged:{{{n}}}:0000000000000007"));
    let marker = marker
        .take(1 << 20)
        .find(|name| source.command(&["CLUSTER", "KEYSLOT", name])[1..] == slot)
        .unwrap();
    for key in ["t:{t}b", &marker] {
        assert_eq!(
            source.command(&["MIGRATE", "127.0.0.1", &port, key, "0", "1000"]),
            "+OK",
            "{key}"
        );
    }
    for node in [target, source] {
        assert_eq!(
            node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]),
            "+OK"
        );
    }
    assert_eq!(store.adjust(&second).await, [APPLIED; 2]);
    assert_eq!(all_left(&store, &names).await, [94; 2]);
}

#[tokio::test]
async fn a_dead_server_of_a_cluster_costs_the_keys_of_the_others_nothing() {
    let cluster = RedisCluster::start().await;
    for server in &cluster.nodes {
        assert_eq!(
            server.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]),
            "+OK"
        );
    }
    let names = spread(&cluster);
    let node = Arc::new(LimiterNode::started(&cluster.spec()).await);
    let request = |name: &str| [charge(name, shape(1_000, 1_000 * HOUR, 1_000), 1)];
    let dead = (cluster.owner("t:!probe") + 1) % 3;
    let healthy: Vec<&String> = (0..3)
        .filter(|owner| *owner != dead)
        .flat_map(|owner| &names[owner])
        .collect();
    let direct = connected(&cluster.spec()).await;
    let asked = |name: &str| -> Vec<BucketCharge> { request(name).to_vec() };
    for name in &healthy {
        eventually("it is connected", || async {
            direct.take(&asked(name), 0).await.is_ok()
        })
        .await;
    }
    cluster.nodes[dead].stop();
    let started = clock::now();
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    let mut granted = vec![0; healthy.len()];
    let mut decided_here = 0;
    while started.elapsed() < Duration::from_secs(4) {
        // Without the store, all of them are owed to it.
        for name in &healthy {
            let server = node.store.server_of(&Key::from(name.as_str()));
            node.breaker.failed(server, &StoreError::Io, 5, String::new);
        }
        decide(&node.limiter, &request(&names[dead][0])).await;
        for (granted, name) in granted.iter_mut().zip(&healthy) {
            let decision = decide(&node.limiter, &request(name)).await;
            *granted += u64::from(decision.granted);
            decided_here += u32::from(decision.decided_by == DecidedBy::Local);
        }
        pace.tick().await;
    }
    assert!(decided_here > 0, "nothing was owed");
    let exact = || async {
        for (granted, name) in granted.iter().zip(&healthy) {
            let Ok(grant) = direct.take(&asked(name), 0).await else {
                return false;
            };
            let left = grant.levels[0].remaining;
            // A token comes back every hour.
            assert!(
                left >= 1_000 - granted,
                "{name} lacks {} of {granted} granted",
                1_000 - left
            );
            if left > 1_000 - granted + 3 {
                return false;
            }
        }
        true
    };
    eventually("all that was granted is charged", exact).await;
    let later = clock::now();
    eventually("nothing is charged again", || async {
        exact().await && later.elapsed() > Duration::from_secs(1)
    })
    .await;
    cluster.nodes[dead].cont();
}

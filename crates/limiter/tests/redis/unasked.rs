//! The state of its store, which a node finds out without any request.

use std::sync::Arc;

use tollgate_limiter::store::redis::inspect::RedisInspector;
use tollgate_testing::node::LimiterNode;
use tollgate_testing::redis::RedisServer;
use tollgate_testing::topology::{CapturedLog, spec};
use tollgate_testing::{HOUR, charge, decide, eventually, shape};

#[tokio::test]
async fn a_node_without_requests_notices_that_the_store_is_away_and_back() {
    let server = RedisServer::start();
    server.command(&["ACL", "SETUSER", "gate", "on", ">secret", "~*", "+@all"]);
    let url = format!("redis://gate:secret@127.0.0.1:{}", server.port());
    let (log, _guard) = CapturedLog::start();
    let node = LimiterNode::started(&spec(url)).await;
    let calls = node.store.calls();

    server.command(&["ACL", "SETUSER", "gate", "-evalsha", "-eval"]);
    eventually("it notices a refusal", || async { node.breaker.is_open() }).await;
    eventually("it says so", || async {
        log.text().contains("the fleet does not hear of this node")
    })
    .await;
    server.command(&["ACL", "SETUSER", "gate", "+@all"]);
    eventually("it is back", || async { !node.breaker.is_open() }).await;

    server.stop();
    eventually("it notices silence", || async { node.breaker.is_open() }).await;
    server.cont();
    eventually("it is back again", || async { !node.breaker.is_open() }).await;

    assert_eq!(node.store.calls(), calls, "no request has asked");
    assert_eq!(log.text().matches("the store is reached").count(), 1);
}

/// Nothing tells a node that somebody else emptied Redis, and its clients wait for an hour.
#[tokio::test]
async fn a_denial_is_forgotten_soon_though_the_store_was_emptied_by_somebody_else() {
    let server = RedisServer::start();
    let node = LimiterNode::started(&server.spec()).await;
    let request = [charge("k", shape(1, HOUR, 1), 1)];
    eventually("the client is denied", || async {
        !decide(&node.limiter, &request).await.granted
    })
    .await;
    server.command(&["FLUSHALL"]);
    eventually("the client passes", || async {
        decide(&node.limiter, &request).await.granted
    })
    .await;
}

#[tokio::test]
async fn evictions_are_said_once() {
    let server = RedisServer::start_with(&|_, _| {
        ["--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru"]
            .map(str::to_owned)
            .to_vec()
    });
    let (log, _guard) = CapturedLog::start();
    let inspector = Arc::new(RedisInspector::connect(&server.spec()).unwrap());
    let watching = inspector.clone();
    let watch = tokio::spawn(async move { watching.watch_evictions().await });
    let mut key = 0_u64;
    for round in 0..2 {
        let warnings = || log.text().matches("Redis evicts keys").count();
        let evicted = || {
            let stats = server.command(&["INFO", "stats"]);
            let line = stats
                .lines()
                .find_map(|line| line.strip_prefix("evicted_keys:"));
            line.unwrap().trim().parse::<u64>().unwrap()
        };
        let before = evicted();
        eventually("it says so, and Redis evicts more", || {
            for _ in 0..20 {
                key += 1;
                server.command(&["SETRANGE", &format!("k{key}"), "100000", "x"]);
            }
            let is_done = warnings() == 1 && evicted() > before + 100 * round;
            async move { is_done }
        })
        .await;
    }
    watch.abort();
}

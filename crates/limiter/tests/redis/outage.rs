//! Redis dies, stalls, falls silent, refuses, forgets and comes back. Limits hold, requests do not
//! wait, and Redis decides again soon.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tollgate_limiter::algorithm::token_bucket::TokenBucket;
use tollgate_limiter::clock;
use tollgate_limiter::decide::decision::DecidedBy;
use tollgate_limiter::store::Store;
use tollgate_testing::node::{LimiterNode, connected, layer_that_asks_four_times, waiting_time};
use tollgate_testing::redis::{RedisServer, free_port, spec_at};
use tollgate_testing::topology::patient;
use tollgate_testing::{HOUR, charge, decide, decide_locally, eventually, in_time, shape};

/// A thousand decisions that neither wait nor ask the store.
fn decides_without_the_store(node: &LimiterNode) {
    let calls = node.store.calls();
    let request = [charge("k", shape(500, HOUR, 500), 1)];
    let mut granted = 0;
    for _ in 0..1_000 {
        let decision =
            decide_locally(&node.limiter, &request).expect("an open breaker decides now");
        assert_eq!(decision.decided_by, DecidedBy::Local);
        granted += u32::from(decision.granted);
    }
    assert_eq!(granted, 500);
    assert_eq!(node.store.calls(), calls);
}

#[tokio::test]
async fn a_server_that_crashes_and_restarts() {
    let mut server = RedisServer::start();
    let spec = server.spec();
    let node = LimiterNode::started(&spec).await;
    server.kill9();
    node.notices_the_outage().await;
    decides_without_the_store(&node);
    server.restart();
    node.recovers().await;
}

#[tokio::test]
async fn a_server_that_is_stopped_and_continued() {
    let server = RedisServer::start();
    let spec = server.spec();
    let node = LimiterNode::started(&spec).await;
    for stopped in [Duration::ZERO, Duration::from_millis(1_700)] {
        server.stop();
        let since = clock::now();
        node.notices_the_outage().await;
        eventually("it was stopped for long enough", || async {
            since.elapsed() >= stopped
        })
        .await;
        server.cont();
        node.recovers().await;
    }
}

#[tokio::test]
async fn a_server_that_is_absent_at_start() {
    let port = free_port();
    let spec = spec_at(port);
    let node = LimiterNode::start(&spec);
    node.notices_the_outage().await;
    decides_without_the_store(&node);
    let _server = RedisServer::start_at(port);
    node.recovers().await;
}

#[tokio::test]
async fn a_network_that_swallows_everything() {
    let server = RedisServer::start();
    let wire = SwallowingProxy::to(server.port()).await;
    let spec = spec_at(wire.address.port());
    let node = LimiterNode::started(&spec).await;
    wire.swallow.send_replace(true);
    node.notices_the_outage().await;
    decides_without_the_store(&node);
    wire.swallow.send_replace(false);
    node.recovers().await;
}

#[tokio::test]
async fn a_swallowed_request_is_decided_without_plan_permits_and_tokens() {
    let server = RedisServer::start();
    let wire = SwallowingProxy::to(server.port()).await;
    let spec = spec_at(wire.address.port());
    let node = LimiterNode::started(&spec).await;
    let plans = Arc::new(connected(&spec).await);
    let layer = layer_that_asks_four_times(node.limiter.clone().reading_plans(plans));
    waiting_time(&layer, "known").await;
    wire.swallow.send_replace(true);
    in_time("it is decided", waiting_time(&layer, "unknown")).await;
}

#[tokio::test]
async fn a_server_that_answers_ping_but_takes_no_writes() {
    let server = RedisServer::start();
    let spec = server.spec();
    let node = LimiterNode::started(&spec).await;
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    node.notices_the_outage().await;
    assert_eq!(server.command(&["PING"]), "+PONG");
    decides_without_the_store(&node);
    let probes = server.script_calls();
    eventually("it is probed", || async {
        server.script_calls() >= probes + 4
    })
    .await;
    assert!(
        node.breaker.is_open(),
        "a probe that cannot write does not close the breaker"
    );
    server.command(&["REPLICAOF", "NO", "ONE"]);
    node.recovers().await;
}

#[tokio::test]
async fn flushed_scripts_fail_no_decision() {
    let server = RedisServer::start();
    let node = LimiterNode::started(&patient(server.spec())).await;
    for _ in 0..20 {
        assert_eq!(server.command(&["SCRIPT", "FLUSH"]), "+OK");
        assert!(node.asks_redis().await);
    }
}

#[tokio::test]
async fn two_nodes_enforce_one_limit_through_an_outage() {
    let mut server = RedisServer::start();
    let spec = server.spec();
    let nodes = [
        LimiterNode::started(&spec).await,
        LimiterNode::started(&spec).await,
    ];
    eventually("they count each other", || async {
        nodes.iter().all(|node| node.share.get().nodes() == 2)
    })
    .await;
    let limit = shape(100, HOUR, 100);
    let before = flat_out(&nodes, limit, 15).await;
    assert_eq!(before, 30);
    server.kill9();
    for node in &nodes {
        node.notices_the_outage().await;
    }
    let during = flat_out(&nodes, limit, 200).await;
    // Both start from what Redis last told each of them: one knows of all 30 requests, the other of
    // 29.
    assert!((68..=70).contains(&during), "{during}");
    server.restart();
    for node in &nodes {
        node.recovers().await;
    }
    eventually("both are heard of again", || async { are_heard(&nodes) }).await;
    // Redis forgot what it knew itself, but not what was admitted without it.
    let direct = connected(&server.spec()).await;
    eventually("all of it is charged", || async {
        let grant = direct.take(&[charge("shared", limit, 1)], 0).await;
        grant.is_ok_and(|grant| grant.levels[0].remaining <= u64::from(100 - during))
    })
    .await;
    let after = flat_out(&nodes, limit, 60).await;
    assert!(after <= 100 - during, "{after} after {during}");
    let least = if are_heard(&nodes) { 90 - during } else { 1 };
    assert!(after >= least, "{after} after {during}");
}

#[tokio::test]
async fn requests_decided_locally_after_failed_calls_are_charged_later() {
    let server = RedisServer::start();
    let spec = server.spec();
    let node = LimiterNode::started(&spec).await;
    let request = [charge("k", shape(100, HOUR, 100), 1)];
    assert_eq!(
        decide(&node.limiter, &request).await.levels[0].remaining,
        99
    );
    server.stop();
    for _ in 0..2 {
        let decision = decide(&node.limiter, &request).await;
        assert!(decision.granted && decision.decided_by == DecidedBy::Local);
    }
    assert!(!node.breaker.is_open());
    server.cont();
    let left = || async {
        node.store
            .store
            .take(&request, 0)
            .await
            .ok()
            .map(|grant| grant.levels[0].remaining)
    };
    // More, if a call that settled them was taken for lost.
    eventually("both are charged", || async {
        left().await.is_some_and(|left| left <= 97)
    })
    .await;
}

/// Whether nothing is held back for a node whose beats a busy machine makes late.
fn are_heard(nodes: &[LimiterNode]) -> bool {
    nodes
        .iter()
        .all(|node| node.share.get().nodes() == 2 && node.share.silent_ranks().is_empty())
}

/// Requests that passed, of `each` that every node gets in turn.
async fn flat_out(nodes: &[LimiterNode], limit: TokenBucket, each: u32) -> u32 {
    let mut granted = 0;
    for _ in 0..each {
        for node in nodes {
            granted += u32::from(
                decide(&node.limiter, &[charge("shared", limit, 1)])
                    .await
                    .granted,
            );
        }
    }
    granted
}

/// A connection to a server that can start to swallow what is sent, both ways, and still accepts.
pub struct SwallowingProxy {
    pub address: SocketAddr,
    swallow: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl SwallowingProxy {
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (swallow, swallowing) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(carry(client, port, swallowing.clone()));
            }
        });
        Self {
            address,
            swallow,
            _tasks: tasks,
        }
    }
}

/// A connection that once swallowed something is lost for good, as the bytes are; it is not even
/// closed.
async fn carry(mut client: TcpStream, port: u16, mut swallowing: watch::Receiver<bool>) {
    let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let swallowed = tokio::select! {
        biased;
        swallowed = async { swallowing.wait_for(|swallow| *swallow).await.is_ok() } => swallowed,
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => false,
    };
    if swallowed {
        std::future::pending().await
    }
}

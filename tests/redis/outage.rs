//! Redis dies, stalls, falls silent, refuses, forgets and comes back. Limits hold, requests do not wait, and Redis
//! decides again soon.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tollgate::clock;
use tollgate_limiter::algorithm::concurrency::GrantedPermits;
use tollgate_limiter::algorithm::token_bucket::TokenBucket;
use tollgate_limiter::decide::decision::DecidedBy;
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::node::Node;
use tollgate_limiter::node::breaker::Breaker;
use tollgate_limiter::node::fleet_share::FleetShare;
use tollgate_limiter::node::recovery::run_control;
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::redis::RedisStore;
use tollgate_limiter::store::redis::heartbeat::Heartbeat;
use tollgate_limiter::store::redis::spec::RedisSpec;
use tollgate_limiter::store::{Adjustment, Ask, Grant, PermitClaim, Store, StoreError};
use tollgate_test_support::redis::{RedisServer, free_port, spec_at};
use tollgate_test_support::{HOUR, SECOND, ask, eventually, eventually_within, shape};

/// Redis must decide again this soon after its return.
const RECOVERY: Duration = Duration::from_secs(2);

/// A worker's store that counts the calls of requests; the prober's go past it.
struct CountingStore {
    store: RedisStore,
    calls: AtomicU64,
}

impl Store for CountingStore {
    fn take<'a>(&'a self, asks: &'a [Ask], units: u32) -> BoxFuture<'a, Result<Grant, StoreError>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.store.take(asks, units)
    }

    fn adjust<'a>(&'a self, adjustments: &'a [Adjustment]) -> BoxFuture<'a, Result<(), StoreError>> {
        self.store.adjust(adjustments)
    }

    fn claim<'a>(&'a self, claims: &'a [PermitClaim]) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>> {
        self.store.claim(claims)
    }

    fn timeout(&self) -> Duration {
        self.store.timeout()
    }
}

/// A gateway's limiter as it is put together: two workers, one control task, a place in the fleet.
struct TwoWorkerNode {
    limiter: Limiter,
    counted: Arc<CountingStore>,
    breaker: Arc<Breaker>,
    share: Arc<FleetShare>,
    _tasks: JoinSet<()>,
}

impl TwoWorkerNode {
    fn start(spec: &RedisSpec) -> Self {
        let (breaker, share) = (Arc::new(Breaker::new()), Arc::new(FleetShare::expecting(spec.expected_nodes)));
        let workers = [RedisStore::connect(spec).unwrap(), RedisStore::connect(spec).unwrap()];
        let counted = Arc::new(CountingStore { store: workers[0].clone(), calls: AtomicU64::new(0) });
        let memory = Arc::new(MemoryStore::new(10_000));
        let state = Arc::new(Node::new(memory, breaker.clone(), share.clone()));
        let limiter = Limiter::of_node(state.clone(), counted.clone());
        let mut tasks = JoinSet::new();
        let stores = workers.into_iter().map(|store| Arc::new(store) as Arc<dyn Store>).collect();
        tasks.spawn(run_control(state, stores));
        let fleet = Heartbeat::join(spec, share.clone()).unwrap();
        tasks.spawn(async move { fleet.run().await });
        Self { limiter, counted, breaker, share, _tasks: tasks }
    }

    async fn started(spec: &RedisSpec) -> Self {
        let node = Self::start(spec);
        eventually("Redis decides", || node.asks_redis()).await;
        node
    }

    async fn asks_redis(&self) -> bool {
        self.limiter.decide(&[ask("warm-up", shape(10_000, SECOND, 10_000), 1)]).await.decided_by == DecidedBy::Redis
    }

    /// Requests until the breaker is open: none may take longer than the time limit (and what a busy machine adds).
    async fn notice_the_outage(&self, spec: &RedisSpec) {
        let mut asked = 0;
        while !self.breaker.is_open() {
            let started = clock::now();
            self.asks_redis().await;
            assert!(started.elapsed() < spec.timeout + Duration::from_millis(150), "{:?}", started.elapsed());
            asked += 1;
            assert!(asked <= 20, "the breaker stays closed");
        }
    }

    /// A thousand decisions that neither wait nor ask the store.
    async fn decides_without_the_store(&self) {
        let (calls, started) = (self.counted.calls.load(Ordering::Relaxed), clock::now());
        let request = [ask("k", shape(500, HOUR, 500), 1)];
        let mut granted = 0;
        for _ in 0..1_000 {
            let verdict = self.limiter.decide_now(&request).expect("an open breaker decides now");
            assert_eq!(verdict.decided_by, DecidedBy::Local);
            granted += u32::from(verdict.granted);
        }
        assert_eq!(granted, 500);
        assert_eq!(self.counted.calls.load(Ordering::Relaxed), calls);
        assert!(started.elapsed() < Duration::from_millis(500), "{:?}", started.elapsed());
    }

    async fn recovers(&self) {
        eventually_within(RECOVERY, "Redis decides again", || self.asks_redis()).await;
        assert!(!self.breaker.is_open());
    }
}

fn quick(spec: RedisSpec) -> RedisSpec {
    RedisSpec { timeout: Duration::from_millis(50), ..spec }
}

#[tokio::test]
async fn a_server_that_crashes_and_restarts() {
    let mut server = RedisServer::start();
    let spec = quick(server.spec());
    let node = TwoWorkerNode::started(&spec).await;
    server.kill9();
    node.notice_the_outage(&spec).await;
    node.decides_without_the_store().await;
    server.restart();
    node.recovers().await;
}

#[tokio::test]
async fn a_server_that_is_stopped_and_continued() {
    let server = RedisServer::start();
    let spec = quick(server.spec());
    let node = TwoWorkerNode::started(&spec).await;
    for stopped in [Duration::ZERO, Duration::from_millis(1_700)] {
        server.stop();
        let since = clock::now();
        node.notice_the_outage(&spec).await;
        eventually("it was stopped for long enough", || async { since.elapsed() >= stopped }).await;
        server.cont();
        node.recovers().await;
    }
}

#[tokio::test]
async fn a_server_that_is_absent_at_start() {
    let port = free_port();
    let spec = quick(spec_at(port));
    let node = TwoWorkerNode::start(&spec);
    node.notice_the_outage(&spec).await;
    node.decides_without_the_store().await;
    let _server = RedisServer::start_at(port);
    node.recovers().await;
}

#[tokio::test]
async fn a_network_that_swallows_everything() {
    let server = RedisServer::start();
    let wire = SwallowingProxy::to(server.port()).await;
    let spec = quick(spec_at(wire.address.port()));
    let node = TwoWorkerNode::started(&spec).await;
    wire.swallow.send_replace(true);
    node.notice_the_outage(&spec).await;
    node.decides_without_the_store().await;
    wire.swallow.send_replace(false);
    node.recovers().await;
}

#[tokio::test]
async fn a_server_that_answers_ping_but_takes_no_writes() {
    let server = RedisServer::start();
    let spec = quick(server.spec());
    let node = TwoWorkerNode::started(&spec).await;
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    node.notice_the_outage(&spec).await;
    assert_eq!(server.command(&["PING"]), "+PONG");
    node.decides_without_the_store().await;
    let probes = server.script_calls();
    eventually("it is probed", || async { server.script_calls() >= probes + 4 }).await;
    assert!(node.breaker.is_open(), "a probe that cannot write does not close the breaker");
    server.command(&["REPLICAOF", "NO", "ONE"]);
    node.recovers().await;
}

#[tokio::test]
async fn flushed_scripts_fail_no_decision() {
    let server = RedisServer::start();
    let node = TwoWorkerNode::started(&server.spec()).await;
    for _ in 0..20 {
        assert_eq!(server.command(&["SCRIPT", "FLUSH"]), "+OK");
        assert!(node.asks_redis().await);
    }
}

#[tokio::test]
async fn two_nodes_enforce_one_limit_through_an_outage() {
    let mut server = RedisServer::start();
    let spec = quick(server.spec());
    let nodes = [TwoWorkerNode::started(&spec).await, TwoWorkerNode::started(&spec).await];
    eventually("they count each other", || async { nodes.iter().all(|node| node.share.get().nodes() == 2) }).await;
    let limit = shape(100, HOUR, 100);
    let before = flat_out(&nodes, limit, 15).await;
    assert_eq!(before, 30);
    server.kill9();
    for node in &nodes {
        node.notice_the_outage(&spec).await;
    }
    let during = flat_out(&nodes, limit, 200).await;
    // Both start from what Redis last told each of them: one knows of all 30 requests, the other of 29.
    assert!((68..=70).contains(&during), "{during}");
    server.restart();
    for node in &nodes {
        node.recovers().await;
    }
    // Redis forgot what it knew itself, but not what was admitted without it.
    let after = flat_out(&nodes, limit, 60).await;
    assert!(after <= 100 - during && after >= 90 - during, "{after} after {during}");
}

#[tokio::test]
async fn requests_decided_locally_after_failed_calls_are_charged_later() {
    let server = RedisServer::start();
    let spec = quick(server.spec());
    let node = TwoWorkerNode::started(&spec).await;
    let request = [ask("k", shape(100, HOUR, 100), 1)];
    assert_eq!(node.limiter.decide(&request).await.levels[0].remaining, 99);
    server.stop();
    for _ in 0..2 {
        let verdict = node.limiter.decide(&request).await;
        assert!(verdict.granted && verdict.decided_by == DecidedBy::Local);
    }
    assert!(!node.breaker.is_open());
    server.cont();
    let left = || async { node.counted.store.take(&request, 0).await.ok().map(|grant| grant.levels[0].remaining) };
    // More, if a call that settled them was taken for lost.
    eventually("both are charged", || async { left().await.is_some_and(|left| left <= 97) }).await;
}

/// Requests that passed, of `each` that every node gets in turn.
async fn flat_out(nodes: &[TwoWorkerNode], limit: TokenBucket, each: u32) -> u32 {
    let mut granted = 0;
    for _ in 0..each {
        for node in nodes {
            granted += u32::from(node.limiter.decide(&[ask("shared", limit, 1)]).await.granted);
        }
    }
    granted
}

/// A connection to a server that can start to swallow what is sent, both ways, and still accepts.
struct SwallowingProxy {
    address: SocketAddr,
    swallow: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl SwallowingProxy {
    async fn to(port: u16) -> Self {
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
        Self { address, swallow, _tasks: tasks }
    }
}

/// A connection that once swallowed something is lost for good, as the bytes are; it is not even closed.
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

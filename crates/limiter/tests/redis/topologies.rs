//! Redis behind a login, a socket, certificates, sentinels, and in several pieces: limits hold,
//! requests are decided in time, and what is wrong is said.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tollgate_limiter::algorithm::token_bucket::TokenBucket;
use tollgate_limiter::clock;
use tollgate_limiter::decide::decision::DecidedBy;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::store::hash_reader::HashReader;
use tollgate_limiter::store::inspect::Inspect;
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::redis::RedisStore;
use tollgate_limiter::store::redis::inspect::RedisInspector;
use tollgate_limiter::store::redis::spec::RedisSpec;
use tollgate_limiter::store::redis::tls::TlsSpec;
use tollgate_limiter::store::{BucketCharge, Store, StoreError};
use tollgate_testing::node::{LimiterNode, connected};
use tollgate_testing::redis::{RedisServer, free_port};
use tollgate_testing::topology::{
    CapturedLog, CertificateAuthority, RedisCluster, SentinelGroup, cluster_is_up, patient, spec,
    with_tls,
};
use tollgate_testing::{HOUR, SECOND, charge, decide, eventually, in_time, shape};

#[tokio::test]
async fn a_wrong_password_is_an_outage_until_the_acl_is_mended() {
    let server = RedisServer::start();
    server.command(&["ACL", "SETUSER", "gate", "on", ">other", "~*", "+@all"]);
    let (log, _guard) = CapturedLog::start();
    let spec = spec(format!(
        "redis://gate:hunter%402@127.0.0.1:{}",
        server.port()
    ));
    let node = LimiterNode::start(&spec);
    node.notices_the_outage().await;
    let request = [charge("k", shape(5, HOUR, 5), 1)];
    let mut granted = 0;
    for _ in 0..10 {
        let decision = decide(&node.limiter, &request).await;
        assert_eq!(decision.decided_by, DecidedBy::Local);
        granted += u32::from(decision.granted);
    }
    assert_eq!(granted, 5);
    eventually("it is said", || async {
        log.text().contains("cannot use Redis: WRONGPASS")
    })
    .await;
    server.command(&["ACL", "SETUSER", "gate", ">hunter@2"]);
    node.recovers().await;
    eventually("that is said, too", || async {
        log.text().contains("connected to Redis")
    })
    .await;
    let text = log.text();
    assert_eq!(text.matches("cannot use Redis").count(), 1, "{text}");
    assert!(!text.contains("hunter"), "{text}");
    eventually("what was admitted is settled", || async {
        server.command(&["EXISTS", "t:k"]) == ":1"
    })
    .await;
}

#[tokio::test]
async fn a_unix_socket_is_a_redis_like_any_other() {
    let mut server = RedisServer::start_with(&|_, dir| {
        vec![
            "--unixsocket".to_owned(),
            dir.join("redis.sock").display().to_string(),
        ]
    });
    server.command(&["ACL", "SETUSER", "gate", "on", ">hunter2", "~*", "+@all"]);
    let socket = server.dir().join("redis.sock");
    let node = LimiterNode::started(&spec(format!("redis+unix://{}", socket.display()))).await;
    let login = spec(format!(
        "redis+unix://gate:hunter2@{}?db=3",
        socket.display()
    ));
    let store = connected(&login).await;
    store
        .take(&[charge("k", shape(5, HOUR, 5), 1)], 1)
        .await
        .unwrap();
    assert!(server.command(&["INFO", "keyspace"]).contains("db3:keys="));
    assert!(server.command(&["CLIENT", "LIST"]).contains("user=gate"));
    server.kill9();
    node.notices_the_outage().await;
    server.restart();
    node.recovers().await;
}

fn tls(port: u16, host: &str, tls: TlsSpec) -> RedisSpec {
    // A handshake takes a while in a build that is not optimised.
    RedisSpec {
        tls,
        timeout: Duration::from_millis(200),
        ..spec(format!("rediss://{host}:{port}"))
    }
}

#[tokio::test]
async fn a_certificate_of_the_private_authority_is_trusted_by_name_and_by_address() {
    let authority = CertificateAuthority::create();
    authority.issue("redis", "IP:127.0.0.1,DNS:localhost");
    authority.issue("gate", "DNS:gate");
    let (server, port) = with_tls(&authority, "redis", "yes");
    let trusting = TlsSpec::default()
        .trusting(authority.pem("ca.pem"))
        .unwrap();
    let both = trusting
        .clone()
        .showing(authority.pem("gate.pem"), authority.pem("gate.key"))
        .unwrap();
    for host in ["127.0.0.1", "localhost"] {
        LimiterNode::started(&tls(port, host, both.clone())).await;
    }
    assert!(server.script_calls() > 0);
    let nameless = tls(port, "localhost", trusting);
    let (log, _guard) = CapturedLog::start();
    let _node = LimiterNode::start(&nameless);
    eventually("it says what is missing", || async {
        log.text()
            .contains("cannot use Redis: it wants a certificate of this gateway")
    })
    .await;
    let nameless = RedisStore::connect(&nameless).unwrap();
    let error = nameless
        .take(&[charge("k", shape(5, HOUR, 5), 1)], 1)
        .await
        .unwrap_err();
    assert!(
        matches!(error.error, StoreError::Timeout | StoreError::Io),
        "{error:?}"
    );
}

/// Which says why, and sends nothing.
async fn is_refused(server: &RedisServer, spec: &RedisSpec, why: &str) {
    let before = server.script_calls();
    let (log, _guard) = CapturedLog::start();
    let node = LimiterNode::start(spec);
    node.notices_the_outage().await;
    eventually(why, || async { log.text().contains(why) }).await;
    assert_eq!(
        log.text().matches("cannot use Redis").count(),
        1,
        "{}",
        log.text()
    );
    assert_eq!(server.script_calls(), before);
}

#[tokio::test]
async fn a_certificate_that_fails_verification_is_an_outage_that_says_so() {
    let authority = CertificateAuthority::create();
    let stranger = CertificateAuthority::create();
    authority.issue("redis", "DNS:redis.example");
    let (server, port) = with_tls(&authority, "redis", "no");
    let by = |authority: &CertificateAuthority| {
        TlsSpec::default()
            .trusting(authority.pem("ca.pem"))
            .unwrap()
    };
    is_refused(
        &server,
        &tls(port, "localhost", by(&authority)),
        "is for another name",
    )
    .await;
    is_refused(
        &server,
        &tls(port, "127.0.0.1", by(&authority)),
        "is for another name",
    )
    .await;
    is_refused(
        &server,
        &tls(port, "localhost", by(&stranger)),
        "is of no authority trusted here",
    )
    .await;
}

/// Requests on one limit until `enough`, as fast as it is decided: none may fail, or take longer
/// than the time limit.
struct Load {
    limit: TokenBucket,
    admitted: AtomicU64,
    asked: AtomicU64,
    enough: AtomicBool,
}

impl Load {
    fn of(limit: TokenBucket) -> Arc<Self> {
        Arc::new(Self {
            limit,
            admitted: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            enough: AtomicBool::new(false),
        })
    }

    async fn through(self: Arc<Self>, node: Arc<LimiterNode>) {
        let request = [charge("load", self.limit, 1)];
        // Denials are decided without waiting.
        let mut pace = tokio::time::interval(Duration::from_millis(1));
        while !self.enough.load(Ordering::Relaxed) {
            let decision = in_time("a request is decided", decide(&node.limiter, &request)).await;
            self.admitted
                .fetch_add(u64::from(decision.granted), Ordering::Relaxed);
            self.asked.fetch_add(1, Ordering::Relaxed);
            pace.tick().await;
        }
    }

    /// A part of a second, in which it goes on.
    async fn goes_on(&self) {
        let before = self.asked.load(Ordering::Relaxed);
        eventually("requests are decided", || async {
            self.asked.load(Ordering::Relaxed) > before + 100
        })
        .await;
    }

    /// Asserts that as much was admitted since `started` as the limit allows, with one burst more
    /// for an outage.
    fn holds(&self, started: clock::Instant, rate: f64) {
        self.enough.store(true, Ordering::Relaxed);
        let admitted = self.admitted.load(Ordering::Relaxed) as f64;
        let burst = self.limit.burst() as f64;
        let due = burst + rate * started.elapsed().as_secs_f64();
        // A machine that is held up lets tokens overflow. What a limit wastes is judged where time
        // is paused.
        assert!(
            admitted <= due + burst && admitted > 0.0,
            "{admitted} of {due}"
        );
    }
}

#[tokio::test]
async fn a_failover_is_over_once_the_sentinel_has_switched() {
    let mut watched = SentinelGroup::start().await;
    let spec = watched.spec();
    let node = Arc::new(LimiterNode::started(&spec).await);
    let load = Load::of(shape(200, SECOND, 100));
    let started = clock::now();
    let running = tokio::spawn(load.clone().through(node.clone()));
    load.goes_on().await;
    assert_eq!(watched.replica.script_calls(), 0, "a replica is not asked");
    watched.primary.kill9();
    // The breaker need not open: a machine that is held up asks little until then.
    eventually("the sentinel switches", || async { watched.has_switched() }).await;
    node.recovers().await;
    load.goes_on().await;
    load.holds(started, 200.0);
    running.await.unwrap();
    assert!(watched.replica.script_calls() > 0);
}

#[tokio::test]
async fn a_primary_that_was_demoted_is_left_for_the_one_that_was_promoted() {
    let watched = SentinelGroup::start().await;
    let spec = watched.spec();
    let node = LimiterNode::started(&spec).await;
    // By hand, so that the old one stays up and keeps its connections.
    let moved = || async { watched.sentinel.command(&["SENTINEL", "FAILOVER", "main"]) == "+OK" };
    eventually("the sentinel finds the replica fit", moved).await;
    eventually("the sentinel switches", || async { watched.has_switched() }).await;
    let asks_the_new_one =
        || async { node.asks_redis().await && watched.replica.script_calls() > 0 };
    eventually("the promoted one decides", asks_the_new_one).await;
    watched.replica.command(&["HSET", "t:plans", "acme", "5/s"]);
    let store = connected(&spec).await;
    assert_eq!(
        store.read("plans", &[Key::from("acme")]).await,
        Ok(vec![Some(b"5/s".to_vec())]),
        "hashes are read there, too"
    );
}

#[tokio::test]
async fn a_server_that_became_a_replica_is_connected_to_anew() {
    let server = RedisServer::start();
    let spec = spec(format!("redis://127.0.0.1:{}", server.port()));
    let node = LimiterNode::started(&spec).await;
    let accepted = || {
        let stats = server.command(&["INFO", "stats"]);
        let count = stats
            .split("total_connections_received:")
            .nth(1)
            .unwrap()
            .lines()
            .next()
            .unwrap();
        count.parse::<u64>().unwrap()
    };
    server.command(&["REPLICAOF", "127.0.0.1", &free_port().to_string()]);
    node.notices_the_outage().await;
    let before = accepted();
    // Each look is a connection, too.
    let looks = AtomicU64::new(0);
    eventually("it lets go of a replica and connects anew", || async {
        accepted() > before + looks.fetch_add(1, Ordering::Relaxed) + 1
    })
    .await;
    server.command(&["REPLICAOF", "NO", "ONE"]);
    node.recovers().await;
}

/// Names of buckets on different nodes of the cluster, by the node.
fn spread(cluster: &RedisCluster) -> [String; 3] {
    [0, 1, 2].map(|node| {
        (0..)
            .map(|n| format!("k{n}"))
            .find(|name| cluster.owner(&format!("t:{name}")) == node)
            .unwrap()
    })
}

fn charges(names: &[&str], limit: TokenBucket) -> Vec<BucketCharge> {
    names.iter().map(|name| charge(name, limit, 1)).collect()
}

#[tokio::test]
async fn a_request_over_several_nodes_is_charged_all_or_nothing() {
    let cluster = RedisCluster::start().await;
    let store = connected(&patient(cluster.spec())).await;
    let names = spread(&cluster);
    let [a, b, c] = names.each_ref().map(String::as_str);
    let wide = shape(10, HOUR, 10);
    let narrow = shape(2, HOUR, 2);
    let request = [charge(a, wide, 2), charge(b, narrow, 1), charge(c, wide, 1)];
    let grant = store.take(&request, 3).await.unwrap();
    assert_eq!(grant.units, 2, "as many as the narrowest has room for");
    let left = |grant: &tollgate_limiter::store::Grant| {
        grant
            .levels
            .iter()
            .map(|level| level.remaining)
            .collect::<Vec<_>>()
    };
    assert_eq!(left(&grant), [6, 0, 8]);
    let denied = store.take(&request, 1).await.unwrap();
    assert_eq!((denied.units, left(&denied)), (0, vec![6, 0, 8]));
    assert!(denied.levels[1].retry_after_us > 0 && denied.levels[0].retry_after_us == 0);
    let looked = store.take(&request, 0).await.unwrap();
    assert_eq!(
        left(&looked),
        [6, 0, 8],
        "what the denial gave back is there"
    );
    for node in &cluster.nodes {
        assert!(node.script_calls() > 0);
        assert_eq!(node.command(&["SCRIPT", "FLUSH"]), "+OK");
    }
    let inspector = RedisInspector::connect(&cluster.spec()).unwrap();
    for (name, limit) in [(a, wide), (b, narrow), (c, wide)] {
        let bucket = charge(name, limit, 1);
        eventually("operators see it, too", || async {
            inspector.peek(&bucket).await.is_ok()
        })
        .await;
        assert!(
            inspector.peek(&bucket).await.unwrap().full_in_us() > 0,
            "{name}"
        );
    }
    let grant = store.take(&charges(&[c, a], wide), 1).await.unwrap();
    assert_eq!(
        (grant.units, left(&grant)),
        (1, vec![7, 5]),
        "each node is given its scripts again"
    );
    decides_as_one_process_would(&store).await;
}

/// No refill takes place meanwhile, so that both say the same.
async fn decides_as_one_process_would(store: &RedisStore) {
    let memory = MemoryStore::new(1_000);
    for turn in 0..150 {
        let names: Vec<_> = (0..fastrand::usize(1..4))
            .map(|_| format!("r{}", fastrand::u8(..8)))
            .collect();
        let request: Vec<_> = names
            .iter()
            .map(|name| charge(name, shape(15, 1_000 * HOUR, 15), fastrand::u64(1..3)))
            .collect();
        let units = fastrand::u32(1..4);
        let told = store.take(&request, units).await.unwrap();
        let expected = memory.take(&request, units).await.unwrap();
        let remaining = |grant: &tollgate_limiter::store::Grant| {
            grant
                .levels
                .iter()
                .map(|level| level.remaining)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (told.units, remaining(&told)),
            (expected.units, remaining(&expected)),
            "{turn}: {request:?}"
        );
    }
}

#[tokio::test]
async fn a_hash_slot_may_move_under_load() {
    let cluster = RedisCluster::start().await;
    let spec = patient(cluster.spec());
    let limit = shape(400, SECOND, 100);
    let other = shape(1_000_000, SECOND, 1_000_000);
    let stores = [connected(&spec).await, connected(&spec).await];
    let names = spread(&cluster);
    let home = cluster.owner("t:moving");
    let beside = names[(home + 2) % 3].clone();
    let enough = Arc::new(AtomicBool::new(false));
    let calls = Arc::new(AtomicU64::new(0));
    let started = clock::now();
    let running = stores.map(|store| {
        let enough = enough.clone();
        let calls = calls.clone();
        let beside = beside.clone();
        tokio::spawn(async move {
            let mut admitted = 0;
            while !enough.load(Ordering::Relaxed) {
                let request = [charge("moving", limit, 1), charge(&beside, other, 1)];
                admitted += store.take(&request, 1).await.unwrap().units;
                calls.fetch_add(1, Ordering::Relaxed);
            }
            admitted
        })
    });
    let pause = async || {
        let before = calls.load(Ordering::Relaxed);
        eventually("calls go on", || async {
            calls.load(Ordering::Relaxed) > before + 60
        })
        .await;
    };
    pause().await;
    for turn in 0..3 {
        cluster
            .migrate("t:moving", (home + turn) % 3, (home + turn + 1) % 3, &pause)
            .await;
    }
    enough.store(true, Ordering::Relaxed);
    let mut admitted = 0;
    for task in running {
        admitted += task.await.unwrap();
    }
    let due = 100.0 + 400.0 * started.elapsed().as_secs_f64();
    let admitted = f64::from(admitted);
    assert!(admitted <= due && admitted > 0.0, "{admitted} of {due}");
}

#[tokio::test]
async fn keys_of_a_moving_hash_slot_are_taken_one_by_one() {
    let cluster = RedisCluster::start().await;
    let store = connected(&patient(cluster.spec())).await;
    let names = ["{t}a", "{t}b"];
    let limit = shape(5, HOUR, 5);
    let request = charges(&names, limit);
    assert_eq!(store.take(&request, 1).await.unwrap().units, 1);
    let home = cluster.owner("t:{t}a");
    let target = (home + 1) % 3;
    cluster.begin_to_move("t:{t}a", home, target);
    // The first key has moved, the other has not.
    cluster.move_key("t:{t}a", home, target);
    let grant = store.take(&request, 5).await.unwrap();
    assert_eq!(
        (
            grant.units,
            grant.levels[0].remaining,
            grant.levels[1].remaining
        ),
        (4, 0, 0)
    );
    assert_eq!(store.take(&request, 1).await.unwrap().units, 0);
}

#[tokio::test]
async fn a_hash_is_read_wherever_it_is_and_while_it_moves() {
    let cluster = RedisCluster::start().await;
    let store = connected(&patient(cluster.spec())).await;
    let inspector = RedisInspector::connect(&cluster.spec()).unwrap();
    let home = cluster.owner("t:plans");
    cluster.nodes[home].command(&["HSET", "t:plans", "acme", "5/s"]);
    let fields = ["acme", "other"].map(Key::from);
    let held = Ok(vec![Some(b"5/s".to_vec()), None]);
    let pause = async || {
        assert_eq!(store.read("plans", &fields).await, held);
        eventually("operators see it, too", || async {
            inspector.read("plans", &fields).await == held
        })
        .await;
    };
    pause().await;
    for turn in 0..3 {
        cluster
            .migrate("t:plans", (home + turn) % 3, (home + turn + 1) % 3, &pause)
            .await;
    }
}

#[tokio::test]
async fn a_node_of_a_cluster_that_is_away_is_an_outage_and_comes_back() {
    let mut cluster = RedisCluster::start().await;
    let spec = cluster.spec();
    let node = Arc::new(LimiterNode::started(&spec).await);
    let load = Load::of(shape(200, SECOND, 100));
    let started = clock::now();
    let running = tokio::spawn(load.clone().through(node.clone()));
    load.goes_on().await;
    let lost = cluster.owner("t:load");
    cluster.nodes[lost].kill9();
    load.goes_on().await;
    cluster.nodes[lost].restart();
    let up = || async { cluster.nodes.iter().all(cluster_is_up) };
    eventually("the cluster is up again", up).await;
    let request = [
        charge("again", shape(10_000, SECOND, 10_000), 1),
        charge("load", shape(200, SECOND, 100), 1),
    ];
    eventually("Redis decides again", || async {
        decide(&node.limiter, &request).await.decided_by != DecidedBy::Local
    })
    .await;
    load.holds(started, 200.0);
    running.await.unwrap();
}

/// A cluster of which one master is silent, and keys on it and on the others.
struct HalfDeadCluster {
    cluster: RedisCluster,
    silent: usize,
    on_silent: String,
    on_others: Vec<String>,
}

impl HalfDeadCluster {
    /// A cluster, and a node with this time limit.
    async fn start(timeout: Duration) -> (Self, LimiterNode) {
        let cluster = RedisCluster::start().await;
        for node in &cluster.nodes {
            assert_eq!(
                node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]),
                "+OK"
            );
        }
        let spec = RedisSpec {
            timeout,
            ..cluster.spec()
        };
        let node = LimiterNode::started(&spec).await;
        let silent = cluster.owner("t:hot");
        let others = (0..)
            .map(|n| format!("k{n}"))
            .filter(|key| cluster.owner(&format!("t:{key}")) != silent);
        let on_others: Vec<String> = others.take(20).collect();
        // A node that has not heard yet who has which slots would ask the silent one.
        let wide = shape(1_000, SECOND, 1_000);
        for key in &on_others {
            let asked = [charge(&format!("{{t:{key}}}"), wide, 1)];
            eventually("Redis decides on all servers", || async {
                decide(&node.limiter, &asked).await.decided_by == DecidedBy::Redis
            })
            .await;
        }
        cluster.nodes[silent].stop();
        (
            Self {
                cluster,
                silent,
                on_silent: "hot".to_owned(),
                on_others,
            },
            node,
        )
    }
}

#[tokio::test]
async fn a_silent_master_costs_the_keys_of_the_others_neither_a_decision_nor_a_token() {
    let (log, _guard) = CapturedLog::start();
    let (half, node) = HalfDeadCluster::start(Duration::from_millis(100)).await;
    // A busy machine takes seconds. Nothing flows in meanwhile.
    let limit = shape(1_000, 1_000 * HOUR, 1_000);
    let mut by_redis = 0;
    let mut asked = 0;
    let mut local = 0;
    let started = clock::now();
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    for round in 0..150 {
        let hot = decide(&node.limiter, &[charge(&half.on_silent, limit, 1)]).await;
        local += u32::from(hot.decided_by == DecidedBy::Local);
        let key = &half.on_others[round % half.on_others.len()];
        let request = [charge(key, limit, 1)];
        let decision = in_time("a request is decided", decide(&node.limiter, &request)).await;
        assert!(decision.granted);
        asked += 1;
        by_redis += u32::from(decision.decided_by == DecidedBy::Redis);
        pace.tick().await;
    }
    assert!(
        started.elapsed() > Duration::from_secs(2),
        "several rounds of probes"
    );
    // A busy machine makes a call late now and then.
    assert!(
        by_redis * 10 >= asked * 9 && local >= 149,
        "{by_redis} of {asked}, {local} of 150"
    );
    assert_eq!(
        log.text()
            .matches("is away: the limits of its keys")
            .count(),
        1,
        "{}",
        log.text()
    );
    half.cluster.nodes[half.silent].cont();
    node.recovers().await;
    for key in &half.on_others {
        let asked = (0..150)
            .filter(|round| &half.on_others[round % half.on_others.len()] == key)
            .count() as u64;
        let asked = AtomicU64::new(asked);
        eventually(
            &format!("charged once for each request of {key}"),
            || async {
                let asked = asked.fetch_add(1, Ordering::Relaxed) + 1;
                let decision = decide(&node.limiter, &[charge(key, limit, 1)]).await;
                decision.levels[0].remaining == 1_000 - asked
            },
        )
        .await;
    }
}

#[tokio::test]
async fn a_request_with_buckets_on_a_silent_master_and_on_another_is_held_to_both() {
    // A busy machine keeps it, so that no other master is late.
    let (half, node) = HalfDeadCluster::start(Duration::from_secs(2)).await;
    let hot = charge(&half.on_silent, shape(8, HOUR, 8), 1);
    // It is never granted, or it would count below. Nobody can tell at first which of the two
    // servers is late.
    let dear = charge(&half.on_silent, shape(1, HOUR, 1), 2);
    node.notices_the_outage_of(&[charge(&half.on_others[2], shape(4, HOUR, 4), 1), dear])
        .await;
    let shared = |key: usize| charge(&half.on_others[key], shape(4, HOUR, 4), 1);
    let mut granted = 0;
    for _ in 0..6 {
        let decision = decide(&node.limiter, &[hot.clone(), shared(0)]).await;
        granted += u32::from(decision.granted);
        if decision.granted {
            let decided_by = [0, 1].map(|limit| decision.source(limit).decided_by);
            assert_eq!(decided_by, [DecidedBy::Local, DecidedBy::Redis]);
        }
    }
    assert_eq!(
        granted, 4,
        "the bucket in Redis denies, and what the local one was charged comes back"
    );
    for _ in 0..6 {
        granted += u32::from(
            decide(&node.limiter, &[hot.clone(), shared(1)])
                .await
                .granted,
        );
    }
    assert_eq!(granted, 8);
    eventually("the other server decides on its bucket", || async {
        decide(&node.limiter, &[shared(1)]).await.decided_by != DecidedBy::Local
    })
    .await;
    half.cluster.nodes[half.silent].cont();
    node.recovers().await;
}

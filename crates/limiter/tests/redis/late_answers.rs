//! A Redis that answers a little later than its time limit: it has carried out the calls that were
//! given up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tollgate_limiter::clock;
use tollgate_limiter::decide::decision::DecidedBy;
use tollgate_limiter::store::Store;
use tollgate_limiter::store::redis::spec::RedisSpec;
use tollgate_testing::node::{LimiterNode, connected};
use tollgate_testing::redis::{RedisServer, spec_at};
use tollgate_testing::topology::delaying_proxy::DelayingProxy;
use tollgate_testing::{HOUR, charge, decide, eventually, shape};

const TIMEOUT: Duration = Duration::from_millis(200);

/// Calls arrive well before the time limit, and their answers after it: by less than what makes a
/// connection look dead.
const LATENCY: Duration = Duration::from_millis(214);

const FULL: u64 = 10_000;

/// The server, a way to it that takes time, and a node that uses it.
struct DelayedNode {
    server: RedisServer,
    way: DelayingProxy,
    node: LimiterNode,
    /// The connections that there were when the way began to take time.
    connections: usize,
}

impl DelayedNode {
    async fn start() -> Self {
        let server = RedisServer::start();
        let way = DelayingProxy::to(server.port()).await;
        let node = LimiterNode::started(&RedisSpec {
            timeout: TIMEOUT,
            ..spec_at(way.address.port())
        })
        .await;
        Self {
            server,
            way,
            node,
            connections: 0,
        }
    }

    fn begins_to_take_time(&mut self) {
        self.connections = self.way.connections();
        self.way.round_trips_take(LATENCY);
    }

    /// Waits until so many tokens are charged in Redis: when all late answers and debts have had
    /// their time, not more. A busy machine makes answers so late that their connection is
    /// replaced: what was called over it may be charged twice.
    async fn is_charged(&self, expected: u64) {
        // An answer that comes when its requests are paid as debts is later than any that is kept.
        pause("late answers come").await;
        let was_replaced = self.way.connections() > self.connections;
        self.way.round_trips_take(Duration::ZERO);
        self.node.recovers().await;
        let direct = connected(&self.server.spec()).await;
        let charged = async || {
            let look = direct.take(&[request()], 0).await.unwrap();
            FULL - look.levels[0].remaining
        };
        eventually("what is owed is charged", async || {
            charged().await >= expected
        })
        .await;
        pause("nothing is charged twice").await;
        let charged = charged().await;
        assert!(
            charged == expected || was_replaced && charged > expected,
            "{charged} of {expected}"
        );
    }
}

/// Lets a second pass, in which something may happen.
async fn pause(what: &str) {
    let since = clock::now();
    eventually(what, async || since.elapsed() > Duration::from_secs(1)).await;
}

fn request() -> tollgate_limiter::store::BucketCharge {
    charge("k", shape(FULL, 1_000 * HOUR, FULL), 1)
}

#[tokio::test]
async fn the_share_of_a_node_whose_calls_are_late_is_held_back_though_it_is_heard_of() {
    let late = DelayedNode::start().await;
    let other = LimiterNode::started(&late.server.spec()).await;
    eventually("both are known", || async {
        late.node.share.get().nodes() == 2 && other.share.get().nodes() == 2
    })
    .await;
    let tokens = |name: String| charge(&name, shape(100, HOUR, 100), 1);
    let direct = connected(&late.server.spec()).await;
    let weight = async |name: String| {
        let tokens = [tokens(name)];
        decide(&other.limiter, &tokens).await;
        100 - direct.take(&tokens, 0).await.unwrap().levels[0].remaining
    };
    assert_eq!(weight("before".to_owned()).await, 1);
    late.way.round_trips_take(LATENCY);
    eventually("it decides alone", || async {
        decide(&late.node.limiter, &[tokens("late".to_owned())]).await;
        late.node.breaker.is_open()
    })
    .await;
    let tries = AtomicU64::new(0);
    let weighs = |expected: u64| {
        let name = format!("k{}", tries.fetch_add(1, Ordering::Relaxed));
        let weight = &weight;
        async move { weight(name).await == expected }
    };
    eventually("the other holds half of the limit back", || weighs(2)).await;
    assert!(late.node.breaker.is_open());
    assert_eq!(late.node.share.get().nodes(), 2, "it hears of the fleet");
    late.way.round_trips_take(Duration::ZERO);
    late.node.recovers().await;
    eventually("the other has its half back", || weighs(1)).await;
}

#[tokio::test]
async fn single_requests_are_charged_once() {
    let mut delayed = DelayedNode::start().await;
    // The first call over a connection may take longer than the time limit on a busy machine: it is
    // for another key.
    eventually("Redis answers in time", || async {
        let contact = [charge("contact", shape(100, HOUR, 100), 1)];
        decide(&delayed.node.limiter, &contact).await.decided_by == DecidedBy::Redis
    })
    .await;
    assert!(decide(&delayed.node.limiter, &[request()]).await.granted);
    delayed.begins_to_take_time();
    for _ in 0..4 {
        let decision = decide(&delayed.node.limiter, &[request()]).await;
        assert!(decision.granted && decision.decided_by == DecidedBy::Local);
    }
    delayed.is_charged(5).await;
}

#[tokio::test]
async fn a_hot_key_is_charged_what_was_admitted() {
    let mut delayed = DelayedNode::start().await;
    delayed.begins_to_take_time();
    let mut granted = 0;
    for _ in 0..20 {
        let decisions =
            join_all((0..20).map(|_| async { decide(&delayed.node.limiter, &[request()]).await }))
                .await;
        granted += decisions.iter().filter(|decision| decision.granted).count() as u64;
    }
    assert!(delayed.node.breaker.is_open());
    assert_eq!(granted, 400);
    delayed.is_charged(400).await;
}

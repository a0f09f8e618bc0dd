//! Limits of requests in flight, among nodes that share a store.

mod bursts;
mod shares;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all, ready};
use tollgate_limiter::algorithm::concurrency::{
    ConcurrencyLimit, GrantedPermits, PermitRequest, Scope,
};
use tollgate_limiter::algorithm::share::Share;
use tollgate_limiter::clock;
use tollgate_limiter::decide::check::{Checks, PermitCheck};
use tollgate_limiter::decide::decision::{DecidedBy, Decision};
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::limit::definition::OnOutage;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::node::Node;
use tollgate_limiter::node::breaker::Breaker;
use tollgate_limiter::node::permits::{FreePermitWatch, PermitNeed, PermitTable};
use tollgate_limiter::node::recovery;
use tollgate_limiter::store::adjustment::{AdjustmentBatch, AdjustmentResult};
use tollgate_limiter::store::fleet_share::FleetShare;
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::{
    BucketCharge, Grant, PermitClaim, ServerId, Store, StoreError, StoreFailure,
};
use tollgate_testing::node::connected;
use tollgate_testing::redis::RedisServer;
use tollgate_testing::{HOUR, charge, eventually, shape};

/// The store of all nodes, which may be away and counts what it is asked.
struct SharedStore {
    store: Arc<dyn Store>,
    away: AtomicBool,
    /// Takes over claims and answers none.
    loses_answers: AtomicBool,
    claims: AtomicUsize,
    /// Milliseconds that a call takes.
    slow: AtomicUsize,
}

impl SharedStore {
    fn memory() -> Arc<Self> {
        Self::of(Arc::new(MemoryStore::new(1_000)))
    }

    fn of(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            store,
            away: AtomicBool::new(false),
            loses_answers: AtomicBool::new(false),
            claims: AtomicUsize::new(0),
            slow: AtomicUsize::new(0),
        })
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(self.slow.load(Ordering::Relaxed) as u64)
    }
}

impl Store for SharedStore {
    fn take<'a>(
        &'a self,
        charges: &'a [BucketCharge],
        units: u32,
    ) -> BoxFuture<'a, Result<Grant, StoreFailure>> {
        if self.away.load(Ordering::Relaxed) {
            return Box::pin(ready(Err(StoreError::Io.into())));
        }
        let delay = self.delay();
        Box::pin(async move {
            tokio::time::sleep(delay).await;
            self.store.take(charges, units).await
        })
    }

    fn adjust<'a>(&'a self, batch: &'a AdjustmentBatch) -> BoxFuture<'a, Vec<AdjustmentResult>> {
        self.store.adjust(batch)
    }

    fn claim<'a>(
        &'a self,
        claims: &'a [PermitClaim],
    ) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>> {
        self.claims.fetch_add(1, Ordering::Relaxed);
        if self.away.load(Ordering::Relaxed) {
            return Box::pin(ready(Err(StoreError::Io)));
        }
        let delay = self.delay();
        Box::pin(async move {
            tokio::time::sleep(delay).await;
            let answer = self.store.claim(claims).await;
            if self.loses_answers.load(Ordering::Relaxed) {
                Err(StoreError::Timeout)
            } else {
                answer
            }
        })
    }

    fn timeout(&self) -> Duration {
        // Longer than a busy machine holds a call up.
        Duration::from_secs(2)
    }
}

/// A node of `nodes`, the first of them.
fn node(store: &Arc<SharedStore>, nodes: u32) -> Limiter {
    Limiter::for_node(state(nodes), store.clone())
}

/// The state that the workers of a node share, which is the first of `nodes`.
fn state(nodes: u32) -> Arc<Node> {
    let share = Arc::new(FleetShare::expecting(1));
    share.set(Share::new(nodes, 0), Vec::new());
    Arc::new(Node::new(
        Arc::new(MemoryStore::new(1_000)),
        Arc::new(Breaker::new()),
        share,
    ))
}

fn permit(key: &str, limit: ConcurrencyLimit, on_outage: OnOutage) -> Checks {
    let need = PermitNeed {
        key: Key::from(key),
        limit,
        cost: 1,
    };
    Checks {
        permits: vec![PermitCheck {
            need,
            largest_cost: 1,
            on_outage,
        }],
        ..Checks::default()
    }
}

/// A request of a limit with `most` in flight in the fleet.
fn permits(key: &str, most: u64) -> Checks {
    permit(
        key,
        ConcurrencyLimit::new(most, Scope::Fleet),
        OnOutage::Local,
    )
}

/// The permits of `key` that nodes hold by what the store knows. Nothing is claimed.
async fn held_by_others(store: &SharedStore, key: &str) -> u64 {
    let nothing = PermitClaim {
        key: Key::from(key),
        most: 9,
        node: 0,
        claim: PermitRequest::default(),
    };
    store.store.claim(&[nothing]).await.unwrap()[0].others
}

async fn enter(node: &Limiter, checks: &Checks) -> Option<Decision> {
    Some(node.decide(checks).wait().await).filter(|decision| decision.granted)
}

#[tokio::test]
async fn requests_of_all_nodes_share_one_limit_until_they_end() {
    let store = SharedStore::memory();
    let one = node(&store, 2);
    let two = node(&store, 2);
    let checks = permits("k", 3);
    let mut inside = vec![
        enter(&one, &checks).await.unwrap(),
        enter(&two, &checks).await.unwrap(),
    ];
    inside.extend(enter(&one, &checks).await);
    assert_eq!(inside.len(), 3);
    let full = two.decide(&checks).wait().await;
    assert_eq!(
        (
            full.granted,
            full.permit_levels[0].remaining,
            full.permits.len()
        ),
        (false, 0, 0)
    );
    assert!(full.permit_levels[0].retry_after_us > 0);
    drop(inside.pop());
    eventually("the other node has the permit that was left", || async {
        enter(&two, &checks).await.is_some()
    })
    .await;
    drop(inside);
    eventually(
        "one node has all the permits that the other has left",
        || async {
            let all = join_all((0..3).map(|_| enter(&two, &checks))).await;
            all.iter().flatten().count() == 3
        },
    )
    .await;
}

#[tokio::test]
async fn a_permit_released_on_the_same_node_is_free_at_once() {
    let store = SharedStore::memory();
    let one = node(&store, 1);
    let checks = permits("k", 1);
    let mut inside = enter(&one, &checks).await;
    for _ in 0..100 {
        assert!(enter(&one, &checks).await.is_none());
        drop(inside.take());
        inside = enter(&one, &checks).await;
        assert!(inside.is_some());
    }
}

#[tokio::test]
async fn a_busy_key_claims_permits_in_few_calls() {
    let store = SharedStore::memory();
    let one = node(&store, 1);
    let checks = permits("k", 50);
    let mut inside = Vec::new();
    let mut entered = 0;
    let mut denied = 0;
    for turn in 0..5_000 {
        match enter(&one, &checks).await {
            Some(request) => {
                inside.push(request);
                entered += 1;
            }
            None => denied += 1,
        }
        if turn % 3 == 0 && !inside.is_empty() {
            inside.swap_remove(turn % inside.len());
        }
    }
    let calls = store.claims.load(Ordering::Relaxed);
    assert!(
        entered > 1_000 && denied > 1_000,
        "{entered} entered, {denied} were denied"
    );
    assert!(
        (1..250).contains(&calls),
        "{calls} calls for 5 000 requests"
    );
}

#[tokio::test(start_paused = true)]
async fn idle_permits_are_given_back_and_their_keys_forgotten() {
    let store = SharedStore::memory();
    let one = node(&store, 2);
    let two = node(&store, 2);
    for n in 0..200 {
        drop(enter(&one, &permits(&n.to_string(), 1)).await);
    }
    eventually("another node gets them all", || async {
        let all = join_all((0..200).map(|n| {
            let checks = permits(&n.to_string(), 1);
            let two = two.clone();
            async move { enter(&two, &checks).await.is_some() }
        }));
        all.await.into_iter().all(|entered| entered)
    })
    .await;
    // Long enough for all of them to go back. From then on nothing is said of them.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let claims = store.claims.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(
        store.claims.load(Ordering::Relaxed),
        claims,
        "a node keeps claiming for keys that nobody checks for"
    );
}

#[tokio::test(start_paused = true)]
async fn permits_of_many_keys_are_renewed_in_time_by_a_slow_store() {
    const KEYS: usize = 10_000;
    let store = SharedStore::memory();
    let one = node(&store, 1);
    let all = (0..KEYS)
        .map(|key| permits(&key.to_string(), 1))
        .collect::<Vec<_>>();
    let inside = join_all(all.iter().map(|checks| enter(&one, checks))).await;
    assert_eq!(inside.iter().flatten().count(), KEYS);
    store.slow.store(40, Ordering::Relaxed);
    for round in 0..100 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let some: Vec<PermitClaim> = (0..KEYS)
            .skip(round % 50)
            .step_by(50)
            .map(|key: usize| PermitClaim {
                key: Key::from(&*key.to_string()),
                most: 1,
                node: 0,
                claim: PermitRequest::default(),
            })
            .collect();
        let held = store.store.claim(&some).await.unwrap();
        assert_eq!(
            held.iter().filter(|answer| answer.others == 0).count(),
            0,
            "lost after {round} tenths of a second"
        );
    }
}

#[tokio::test]
async fn permits_of_a_dead_node_come_back_within_seconds() {
    let server = RedisServer::start();
    let store = SharedStore::of(Arc::new(connected(&server.spec()).await));
    let checks = permits("k", 2);
    let dying = std::thread::spawn({
        let spec = server.spec();
        let checks = checks.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let store = SharedStore::of(Arc::new(connected(&spec).await));
                let one = node(&store, 2);
                // Nobody leaves them: the process is gone.
                std::mem::forget((
                    enter(&one, &checks).await.unwrap(),
                    enter(&one, &checks).await.unwrap(),
                ));
            });
        }
    });
    dying.join().unwrap();
    let two = node(&store, 2);
    assert!(enter(&two, &checks).await.is_none());
    eventually("the lease ends", || async {
        enter(&two, &checks).await.is_some()
    })
    .await;
}

#[tokio::test]
async fn permits_and_tokens_are_taken_all_or_nothing() {
    let store = SharedStore::memory();
    let one = node(&store, 1);
    let permit = permits("s", 2);
    let bucket = charge("b", shape(3, HOUR, 3), 1);
    let both = Checks {
        permits: permit.permits.clone(),
        ..Checks::from(bucket.clone())
    };
    let inside = [
        enter(&one, &both).await.unwrap(),
        enter(&one, &both).await.unwrap(),
    ];
    assert_eq!(
        (
            inside[1].levels[0].remaining,
            inside[1].permit_levels[0].remaining
        ),
        (1, 0)
    );
    let full = one.decide(&both).wait().await;
    assert!(!full.granted && full.permit_levels[0].retry_after_us > 0);
    assert!(
        !full.knows(&full.levels[0]) && full.knows(&full.permit_levels[0]),
        "the bucket was not asked"
    );
    assert_eq!(
        store
            .take(std::slice::from_ref(&bucket), 0)
            .await
            .unwrap()
            .levels[0]
            .remaining,
        1,
        "and not charged"
    );
    drop(inside);
    let third = enter(&one, &both).await.unwrap();
    let denied = one.decide(&both).wait().await;
    assert!(!denied.granted && denied.permits.is_empty() && denied.levels[0].retry_after_us > 0);
    drop(third);
    let two = [enter(&one, &permit).await, enter(&one, &permit).await];
    assert!(
        two.iter().all(Option::is_some),
        "no permit was kept by a denied request"
    );
}

#[tokio::test]
async fn a_node_admits_its_share_during_an_outage_and_reports_it_after() {
    let store = SharedStore::memory();
    let one = node(&store, 2);
    let two = node(&store, 2);
    let checks = permits("k", 4);
    let mut inside = vec![enter(&one, &checks).await.unwrap()];
    store.away.store(true, Ordering::Relaxed);
    inside.extend(
        join_all((0..4).map(|_| enter(&one, &checks)))
            .await
            .into_iter()
            .flatten(),
    );
    assert_eq!(inside.len(), 2, "half of four");
    assert!(
        inside
            .iter()
            .skip(1)
            .all(|decision| decision.decided_by == DecidedBy::Local)
    );
    let of_four = ConcurrencyLimit::new(4, Scope::Fleet);
    let allowed = permit("k", of_four, OnOutage::Allow);
    let denied = permit("k", of_four, OnOutage::Deny);
    inside.extend(
        join_all((0..3).map(|_| enter(&one, &allowed)))
            .await
            .into_iter()
            .flatten(),
    );
    assert_eq!(
        (inside.len(), enter(&one, &denied).await.is_some()),
        (5, false)
    );
    store.away.store(false, Ordering::Relaxed);
    eventually("the store knows of five", || async {
        held_by_others(&store, "k").await == 5
    })
    .await;
    // A busy machine makes a call late now and then, and a node decides alone.
    eventually("the other node denies", || async {
        enter(&two, &checks).await.is_none()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn requests_on_a_full_key_wait_for_one_claim_of_a_slow_store() {
    let store = SharedStore::memory();
    let one = node(&store, 2);
    let two = node(&store, 2);
    let checks = permits("k", 1);
    let _inside = enter(&one, &checks).await.unwrap();
    store.slow.store(100, Ordering::Relaxed);
    let started = clock::now();
    let claims = store.claims.load(Ordering::Relaxed);
    let denied = join_all((0..5).map(|_| enter(&two, &checks))).await;
    assert!(denied.iter().all(Option::is_none));
    assert_eq!(
        store.claims.load(Ordering::Relaxed) - claims,
        1,
        "one claim answers all five"
    );
    assert!(
        started.elapsed() < Duration::from_millis(150),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn permits_taken_during_an_outage_are_reported_without_another_request() {
    let store = SharedStore::memory();
    let share = Arc::new(FleetShare::expecting(1));
    let state = Arc::new(Node::new(
        Arc::new(MemoryStore::new(10)),
        Arc::new(Breaker::new()),
        share,
    ));
    let one = Limiter::for_node(state.clone(), store.clone());
    state
        .breaker
        .failed(ServerId::ONLY, &StoreError::Io, 9, String::new);
    assert!(state.breaker.is_open());
    let inside = enter(&one, &permits("k", 3)).await.unwrap();
    assert_eq!(inside.decided_by, DecidedBy::Local);
    tokio::spawn(recovery::run_control(state, vec![store.clone()]));
    let two = node(&store, 1);
    eventually("the store knows of it", || async {
        two.decide(&permits("k", 3)).wait().await.permit_levels[0].remaining == 1
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_limit_in_node_scope_asks_no_store() {
    let store = SharedStore::memory();
    let one = node(&store, 2);
    let two = node(&store, 2);
    let checks = permit("k", ConcurrencyLimit::new(2, Scope::Node), OnOutage::Local);
    let inside = join_all([
        enter(&one, &checks),
        enter(&one, &checks),
        enter(&two, &checks),
        enter(&one, &checks),
    ])
    .await;
    assert_eq!(inside.iter().filter(|entered| entered.is_some()).count(), 3);
    assert_eq!(store.claims.load(Ordering::Relaxed), 0);
    let of_fleet = enter(&one, &permits("of the fleet", 2)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    drop(of_fleet);
    assert_eq!(
        held_by_others(&store, "k").await,
        0,
        "the upkeep claims permits of a limit of one node"
    );
    let alone = Limiter::local(Arc::new(MemoryStore::new(10)));
    let fleet = permits("k", 1);
    let first = alone.decide(&fleet).done().unwrap();
    let clone = alone.clone();
    assert!(first.granted && !clone.decide(&fleet).done().unwrap().granted);
    drop(first);
    assert!(alone.decide(&fleet).done().unwrap().granted);
}

#[tokio::test]
async fn a_request_dropped_while_waiting_keeps_no_permit() {
    let store = SharedStore::memory();
    let one = node(&store, 1);
    let checks = permits("k", 2);
    for _ in 0..50 {
        let mut waiting = Box::pin(one.decide(&checks).wait());
        let _ = futures_util::poll!(&mut waiting);
    }
    eventually("both are free", || async {
        let both = [enter(&one, &checks).await, enter(&one, &checks).await];
        both.iter().all(Option::is_some)
    })
    .await;
}

/// Whatever nodes do at the same time, there are never more in flight than there may be.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn never_more_than_max_in_flight_on_all_nodes_together() {
    const MOST: i64 = 7;
    let store = SharedStore::memory();
    let inside = Arc::new(AtomicI64::new(0));
    let entered = Arc::new(AtomicUsize::new(0));
    let nodes: Vec<Limiter> = (0..4).map(|_| node(&store, 4)).collect();
    let clients = (0..40).map(|client| {
        let node = nodes[client % 4].clone();
        let inside = inside.clone();
        let entered = entered.clone();
        tokio::spawn(async move {
            for turn in 0..150 {
                let Some(decision) = enter(&node, &permits("k", MOST as u64)).await else {
                    // Paces the load.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    continue;
                };
                entered.fetch_add(1, Ordering::Relaxed);
                let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                assert!(now <= MOST, "{now} at once");
                // How long a request holds its permit.
                tokio::time::sleep(Duration::from_micros(
                    (client * 37 + turn * 11) as u64 % 900,
                ))
                .await;
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(decision);
            }
        })
    });
    for done in join_all(clients).await {
        done.unwrap();
    }
    assert!(entered.load(Ordering::Relaxed) > 50, "{entered:?}");
}

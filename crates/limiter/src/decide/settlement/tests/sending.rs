//! The settler before a store that may be away: what it sends, what it owes and what it keeps here.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, ready};

use super::*;
use crate::algorithm::concurrency as in_flight;
use crate::algorithm::share::Share;
use crate::decide::check::{CheckPolicy, Checks, TokenChecks};
use crate::decide::limiter::Limiter;
use crate::node::Node;
use crate::node::breaker::Breaker;
use crate::store::adjustment::{AdjustmentBatch, AdjustmentResult};
use crate::store::fleet_share::{FleetShare, SilentNode};
use crate::store::{Grant, PermitClaim, Store, StoreError, StoreFailure};

/// A request that reserves these tokens.
fn checks(charge: BucketCharge) -> Checks {
    let policy = CheckPolicy {
        on_outage: OnOutage::Local,
    };
    Checks {
        tokens: TokenChecks::one(charge, policy),
        permits: Vec::new(),
    }
}

/// A store that may be away, and counts corrections.
struct Switched {
    memory: MemoryStore,
    away: AtomicBool,
    calls: AtomicUsize,
    changes: Mutex<Vec<Change>>,
}

impl Store for Switched {
    fn take<'a>(
        &'a self,
        charges: &'a [BucketCharge],
        units: u32,
    ) -> BoxFuture<'a, Result<Grant, StoreFailure>> {
        Box::pin(ready(Ok(self.memory.take_at(
            charges,
            units,
            clock::monotonic_micros(),
            Share::WHOLE,
        ))))
    }

    fn adjust<'a>(&'a self, batch: &'a AdjustmentBatch) -> BoxFuture<'a, Vec<AdjustmentResult>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.away.load(Ordering::Relaxed) {
            return Box::pin(ready(vec![Err(StoreError::Io); batch.len()]));
        }
        self.changes
            .lock()
            .extend(batch.iter().map(|one| one.change));
        self.memory.adjust(batch)
    }

    fn claim<'a>(
        &'a self,
        claims: &'a [PermitClaim],
    ) -> BoxFuture<'a, Result<Vec<in_flight::GrantedPermits>, StoreError>> {
        self.memory.claim(claims)
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(20)
    }
}

/// Of a charge.
fn ticks(change: &Change) -> u64 {
    match *change {
        Change::Charge { charge, .. } => charge,
        Change::Refund { .. } => panic!("{change:?}"),
    }
}

struct Bench {
    store: Arc<Switched>,
    node: Arc<Node>,
    settler: Arc<Settler>,
}

impl Bench {
    fn new() -> Self {
        let away = AtomicBool::new(false);
        let calls = AtomicUsize::new(0);
        let changes = Mutex::default();
        let store = Arc::new(Switched {
            memory: MemoryStore::new(10),
            away,
            calls,
            changes,
        });
        let share = Arc::new(FleetShare::expecting(1));
        let node = Arc::new(Node::new(
            Arc::new(MemoryStore::new(10)),
            Arc::new(Breaker::new()),
            share,
        ));
        let caller = Arc::new(StoreClient::new(node.clone(), store.clone()));
        let settler = Arc::new(Settler::new(node.memory.clone(), Some(caller)));
        Self {
            store,
            node,
            settler,
        }
    }

    fn settle(&self, decided_by: DecidedBy, actual: u64) -> SettlementResult {
        let taken_at_us = clock::monotonic_micros();
        let since_us = clock::monotonic_micros();
        let reservation = Reservation {
            charge: charge(shape(1, 100), 10),
            on_outage: OnOutage::Local,
            source: DecisionSource {
                decided_by,
                taken_at_us,
                counted: true,
            },
            since_us,
        };
        self.settler.settle(reservation, actual)
    }

    fn owed(&self) -> u64 {
        let owed = self
            .node
            .debts
            .collect(clock::monotonic_micros(), 100, |_| true);
        owed.iter().map(|one| ticks(&one.change)).sum::<u64>() / shape(1, 100).emission()
    }

    fn left_here(&self) -> u64 {
        let ask = [charge(shape(1, 100), 10)];
        self.node
            .memory
            .take_at(&ask, 0, clock::monotonic_micros(), Share::WHOLE)
            .levels[0]
            .remaining
    }
}

#[tokio::test(start_paused = true)]
async fn charges_of_one_bucket_go_as_one_and_an_outage_starts_from_them() {
    let bench = Bench::new();
    (0..10).for_each(|_| assert_eq!(bench.settle(DecidedBy::Redis, 12), SettlementResult::More));
    assert_eq!(bench.settle(DecidedBy::Redis, 10), SettlementResult::Even);
    bench.settler.idle().await;
    let emission = shape(1, 100).emission();
    assert_eq!(
        bench
            .store
            .changes
            .lock()
            .iter()
            .map(ticks)
            .collect::<Vec<_>>(),
        [20 * emission]
    );
    assert_eq!(
        (
            bench.store.calls.load(Ordering::Relaxed),
            bench.left_here(),
            bench.owed()
        ),
        (1, 80, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn charges_and_refunds_weigh_more_while_shares_are_held_back() {
    let bench = Bench::new();
    let silent = SilentNode {
        rank: 1,
        heard_us: 0,
        gone_us: u64::MAX,
    };
    bench.node.share.set(Share::new(4, 0), vec![silent]);
    // Reservations by now may have been charged before the shares were held back.
    assert_eq!(bench.settle(DecidedBy::Redis, 4), SettlementResult::Less);
    tokio::time::advance(Duration::from_secs(1)).await;
    (0..10).for_each(|_| assert_eq!(bench.settle(DecidedBy::Redis, 13), SettlementResult::More));
    assert_eq!(bench.settle(DecidedBy::Redis, 4), SettlementResult::Less);
    bench.settler.idle().await;
    bench.node.share.set(Share::new(4, 0), Vec::new());
    assert_eq!(bench.settle(DecidedBy::Redis, 13), SettlementResult::More);
    assert_eq!(bench.settle(DecidedBy::Redis, 4), SettlementResult::Less);
    bench.settler.idle().await;
    assert_eq!(
        bench
            .store
            .changes
            .lock()
            .iter()
            .map(|change| match *change {
                Change::Charge { charge, .. } | Change::Refund { charge, .. } => {
                    charge / shape(1, 100).emission()
                }
            })
            .collect::<Vec<_>>(),
        [6, 40, 8, 3, 6]
    );
}

#[tokio::test(start_paused = true)]
async fn settlements_that_fail_are_sent_again_as_they_were() {
    let bench = Bench::new();
    bench.store.away.store(true, Ordering::Relaxed);
    assert_eq!(bench.settle(DecidedBy::Redis, 13), SettlementResult::More);
    assert_eq!(bench.settle(DecidedBy::Redis, 4), SettlementResult::Less);
    bench.settler.idle().await;
    assert_eq!(
        (bench.left_here(), bench.owed(), bench.node.outbox.len()),
        (97, 0, 2)
    );
    assert_eq!(bench.settle(DecidedBy::Redis, 15), SettlementResult::More);
    bench.settler.idle().await;
    assert_eq!(
        (bench.owed(), bench.node.outbox.len()),
        (5, 2),
        "behind what failed, charges become one debt"
    );
    bench.store.away.store(false, Ordering::Relaxed);
    let sent = bench.node.outbox.send_again(|_| true).unwrap();
    let results = bench.store.adjust(&sent.batch).await;
    bench.node.confirm(sent, &results);
    let changes = bench.store.changes.lock();
    assert!(
        matches!(changes[..], [Change::Charge { .. }, Change::Refund { .. }]),
        "{changes:?}"
    );
    assert_eq!(bench.node.outbox.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_decision_of_the_node_alone_is_settled_in_its_bucket_and_its_debt() {
    let bench = Bench::new();
    let taken = charge(shape(1, 100), 10);
    bench.node.memory.take_at(
        std::slice::from_ref(&taken),
        1,
        clock::monotonic_micros(),
        Share::WHOLE,
    );
    bench.node.debts.incur(
        &taken,
        1,
        0,
        bench
            .node
            .memory
            .timestamp(taken.quota, clock::monotonic_micros()),
    );
    assert_eq!(bench.settle(DecidedBy::Local, 4), SettlementResult::Less);
    bench.settler.idle().await;
    assert_eq!(
        (
            bench.left_here(),
            bench.owed(),
            bench.store.calls.load(Ordering::Relaxed)
        ),
        (96, 4, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn too_many_at_once_are_settled_as_while_the_store_is_away() {
    let bench = Bench::new();
    (0..MAX_WAITING + 5)
        .for_each(|_| assert_eq!(bench.settle(DecidedBy::Redis, 11), SettlementResult::More));
    assert_eq!(bench.owed(), 5);
    bench.settler.idle().await;
    let charged: u64 = bench
        .store
        .changes
        .lock()
        .iter()
        .map(|change| ticks(change) / shape(1, 100).emission())
        .sum();
    assert_eq!(charged, MAX_WAITING as u64);
}

/// The whole way, by what the store says.
#[tokio::test(start_paused = true)]
async fn a_refund_forgets_the_denial_of_its_bucket() {
    let bench = Bench::new();
    let limiter = Limiter::for_node(bench.node.clone(), bench.store.clone());
    let taken = charge(shape(1, 100), 60);
    let checks = checks(taken.clone());
    let decision = limiter.decide(&checks).wait().await;
    assert_eq!(
        (decision.granted, decision.decided_by),
        (true, DecidedBy::Redis)
    );
    let reservation = Reservation::new(taken, OnOutage::Local, decision.source(0));
    assert!(!limiter.decide(&checks).wait().await.granted);
    assert_eq!(
        limiter
            .decide(&checks)
            .done()
            .map(|decision| decision.decided_by),
        Some(DecidedBy::DenialCache)
    );
    assert_eq!(
        limiter.settler().settle(reservation, 10),
        SettlementResult::Less
    );
    limiter.settled().await;
    let decision = limiter.decide(&checks).wait().await;
    assert_eq!((decision.granted, decision.levels[0].remaining), (true, 30));
}

#[tokio::test(start_paused = true)]
async fn tokens_spent_from_a_lease_are_settled_like_others() {
    let bench = Bench::new();
    let limiter = Limiter::for_node(bench.node.clone(), bench.store.clone());
    let asks = [charge(shape(100, 10_000).leased(10), 10)];
    let checks = checks(asks[0].clone());
    let mut decision = limiter.decide(&checks).wait().await;
    for _ in 0..50 {
        tokio::time::advance(Duration::from_millis(1)).await;
        decision = limiter.decide(&checks).wait().await;
    }
    assert_eq!(decision.decided_by, DecidedBy::Lease);
    let before = bench
        .store
        .memory
        .take_at(&asks, 0, clock::monotonic_micros(), Share::WHOLE)
        .levels[0]
        .remaining;
    limiter.settler().settle(
        Reservation::new(asks[0].clone(), OnOutage::Local, decision.source(0)),
        1,
    );
    limiter.settler().settle(
        Reservation::new(asks[0].clone(), OnOutage::Local, decision.source(0)),
        30,
    );
    limiter.settled().await;
    let after = bench
        .store
        .memory
        .take_at(&asks, 0, clock::monotonic_micros(), Share::WHOLE)
        .levels[0]
        .remaining;
    // Tokens that flowed in since the lease was taken, in a lease's time at most, may be missing.
    assert!(
        (before + 9 - 20 - 5..=before + 9 - 20).contains(&after),
        "{after} of {before}"
    );
}

#[test]
fn a_limit_that_lets_all_pass_while_the_store_is_away_has_nothing_to_settle() {
    let bench = Bench::new();
    let charge = charge(shape(1, 100), 10);
    let on_outage = OnOutage::Allow;
    let source = DecisionSource {
        decided_by: DecidedBy::Local,
        taken_at_us: 0,
        counted: false,
    };
    let reservation = Reservation {
        charge,
        on_outage,
        source,
        since_us: 0,
    };
    assert_eq!(
        bench.settler.settle(reservation, 50),
        SettlementResult::Even
    );
    assert_eq!((bench.left_here(), bench.owed()), (100, 0));
}

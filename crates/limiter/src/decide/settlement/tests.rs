use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, ready};
use proptest::prelude::*;

use super::*;
use crate::algorithm::concurrency as in_flight;
use crate::algorithm::share::Share;
use crate::algorithm::token_bucket::TokenBucket;
use crate::algorithm::window::Window;
use crate::decide::check::{CheckPolicy, Checks, TokenChecks};
use crate::decide::limiter::Limiter;
use crate::limit::key::Key;
use crate::node::Node;
use crate::node::breaker::Breaker;
use crate::store::adjustment::{AdjustmentBatch, AdjustmentResult};
use crate::store::fleet_share::FleetShare;
use crate::store::{Grant, PermitClaim, Store, StoreError, StoreFailure};

const SECOND: u64 = 1_000_000;

fn shape(rate: u64, burst: u64) -> TokenBucket {
    let nonzero = |number| NonZeroU64::new(number).unwrap();
    TokenBucket::new(nonzero(rate), nonzero(SECOND), nonzero(burst)).unwrap()
}

fn charge(bucket: TokenBucket, cost: u64) -> BucketCharge {
    BucketCharge { key: Key::from("k"), quota: bucket.into(), cost, largest_cost: cost }
}

/// A request that reserves these tokens.
fn checks(charge: BucketCharge) -> Checks {
    let policy = CheckPolicy { on_outage: OnOutage::Local };
    Checks { tokens: TokenChecks::one(charge, policy), permits: Vec::new() }
}

/// A bucket, and the requests that reserved tokens of it.
struct Model {
    memory: MemoryStore,
    charge: BucketCharge,
    now: u64,
    requests: Vec<Request>,
}

#[derive(Clone, Copy)]
struct Request {
    at: u64,
    taken_at: u64,
    settled: Option<(u64, u64)>,
}

impl Model {
    fn new(shape: TokenBucket, reserve: u64) -> Self {
        Self { memory: MemoryStore::new(10), charge: charge(shape, reserve), now: 0, requests: Vec::new() }
    }

    fn request(&mut self) -> bool {
        let grant = self.memory.take_at(std::slice::from_ref(&self.charge), 1, self.now, Share::WHOLE);
        if grant.units > 0 {
            self.requests.push(Request { at: self.now, taken_at: grant.at_us, settled: None });
        }
        grant.units > 0
    }

    /// `heard_us`: how long the decision took to be heard.
    fn settle(&mut self, index: usize, actual: u64, heard_us: u64) {
        let request = self.requests[index];
        let held_us = (self.now - request.at).saturating_sub(heard_us);
        if let Some(change) = change(self.charge.quota, [self.charge.cost, actual], request.taken_at, held_us, self.now)
        {
            let adjustment = Adjustment { key: self.charge.key.clone(), quota: self.charge.quota, change };
            self.memory.adjust_at(&[adjustment], self.now);
        }
        self.requests[index].settled = Some((self.now, actual));
    }

    fn in_flight(&self) -> Vec<usize> {
        (0..self.requests.len()).filter(|index| self.requests[*index].settled.is_none()).collect()
    }

    /// In every window between two admissions.
    fn check(&self, rate: u64, burst: u64, max: u64) -> Result<(), String> {
        for (first, from) in self.requests.iter().enumerate() {
            for (last, to) in self.requests.iter().enumerate().skip(first) {
                let inside = &self.requests[first..=last];
                let cost = |request: &Request| request.settled.map_or(self.charge.cost, |(_, actual)| actual);
                let late = |request: &Request| request.settled.is_none_or(|(at, _)| at > to.at);
                let sum: u64 = inside.iter().map(cost).sum();
                let in_flight = inside.iter().filter(|request| late(request)).count() as u64;
                let bound = burst * SECOND + rate * (to.at - from.at) + in_flight * (max - self.charge.cost) * SECOND;
                if sum * SECOND > bound {
                    return Err(format!("{sum} in {} us with {in_flight} in flight", to.at - from.at));
                }
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn settled_costs_stay_within_the_limit_except_those_in_flight(
        rate in 1_u64..200, burst in 1_u64..100, reserve in 1_u64..40, above in 0_u64..60,
        steps in prop::collection::vec((0_u64..400_000, 0_u8..4, any::<u64>(), any::<u64>(), 0_u64..30_000), 1..120),
    ) {
        prop_assume!(reserve <= burst);
        let mut model = Model::new(shape(rate, burst), reserve);
        for (wait, what, which, actual, heard_us) in steps {
            model.now += if what == 0 { wait * 10 } else { wait / 20 };
            let in_flight = model.in_flight();
            match in_flight.len() {
                held if held > 0 && what < 2 => {
                    // Often nothing at all: most is given back then.
                    let actual = if actual % 3 == 0 { 0 } else { actual % (reserve + above + 1) };
                    model.settle(in_flight[which as usize % held], actual, heard_us);
                }
                _ => drop(model.request()),
            }
        }
        if let Err(over) = model.check(rate, burst, reserve + above) {
            prop_assert!(false, "{over}");
        }
    }
}

#[test]
fn a_reservation_that_is_not_above_the_cost_wastes_nothing_and_admits_nothing_more_in_the_long_run() {
    for (reserve, actual, takes_us) in [(10, 10, 0), (2, 20, SECOND / 5), (20, 20, 30 * SECOND), (1, 50, 3 * SECOND)] {
        let (rate, burst) = (100, 200);
        let mut model = Model::new(shape(rate, burst), reserve);
        for _ in 0..60_000 {
            model.now += 1_000;
            for index in model.in_flight() {
                if model.now - model.requests[index].at >= takes_us {
                    model.settle(index, actual, 0);
                }
            }
            while model.request() {}
        }
        let in_flight = model.in_flight().len() as u64;
        let settled: u64 = model.requests.iter().filter_map(|request| request.settled).map(|(_, actual)| actual).sum();
        let due = burst + rate * model.now / SECOND;
        assert!(settled + in_flight * reserve >= due * 97 / 100, "{settled} of {due} by {reserve} for {actual}");
        // The requests in flight at a time may go beyond it once, and are waited for.
        let beyond = model.requests.len() as u64 * actual;
        assert!(beyond <= due + burst / reserve * actual + takes_us * rate / SECOND * actual, "{beyond} of {due}");
    }
}

#[test]
fn an_unspent_rest_is_refunded_less_the_tokens_that_flowed_in_beyond_the_spent_ones() {
    let shape = shape(10, 100);
    let back = |actual, held_us| match change(shape.into(), [50, actual], 7, held_us, 7 + held_us) {
        Some(Change::Refund { charge: back, taken_at_us }) => {
            let memory = MemoryStore::new(10);
            memory.take_at(&[charge(shape, 100)], 1, 7, Share::WHOLE);
            let change = Change::Refund { charge: back, taken_at_us };
            memory.adjust_at(&[Adjustment { key: Key::from("k"), quota: shape.into(), change }], 7 + held_us);
            let left = memory.take_at(&[charge(shape, 1)], 0, 7 + held_us, Share::WHOLE).levels[0].remaining;
            Some(left - held_us * 10 / SECOND)
        }
        None => None,
        other => panic!("{other:?}"),
    };
    assert_eq!(back(20, 0), Some(30));
    assert_eq!(back(20, 2 * SECOND), Some(30), "what flowed in is no more than what was spent");
    assert_eq!(back(20, 3 * SECOND), Some(20));
    assert_eq!(back(20, 5 * SECOND), None);
    assert_eq!(back(0, SECOND), Some(40));
    assert_eq!(change(shape.into(), [50, 50], 7, SECOND, 9), None);
    let one_more = Change::Charge { charge: shape.emission(), since_us: 9 };
    assert_eq!(change(shape.into(), [50, 51], 7, SECOND, 9), Some(one_more));
}

/// Without the loss, the second hundred would be followed by a third at once.
#[test]
fn a_bucket_that_was_full_meanwhile_gets_nothing_back() {
    let mut model = Model::new(shape(10, 100), 100);
    assert!(model.request());
    model.now = 10 * SECOND;
    assert!(model.request());
    model.settle(0, 0, 0);
    assert!(!model.request());
    model.now = 20 * SECOND - 1;
    assert!(!model.request());
}

/// Nothing flows in, so nothing of what is not spent is dropped; and what is short counts until the window ends.
#[test]
fn a_window_gets_all_back_while_it_lasts_and_owes_more_than_it_has() {
    let (memory, window) = (MemoryStore::new(10), Window::sliding(100, 60 * SECOND).unwrap());
    let asks = [BucketCharge { quota: window.into(), ..charge(shape(1, 1), 60) }];
    let left = |now_us| memory.take_at(&asks, 0, now_us, Share::WHOLE).levels[0].remaining;
    let settle = |taken_at_us, actual, now_us| {
        let change = change(window.into(), [60, actual], taken_at_us, now_us - taken_at_us, now_us).unwrap();
        memory.adjust_at(&[Adjustment { key: Key::from("k"), quota: window.into(), change }], now_us);
    };
    let taken = memory.take_at(&asks, 1, SECOND, Share::WHOLE);
    settle(taken.at_us, 10, 50 * SECOND);
    assert_eq!(left(50 * SECOND), 90);
    let taken = memory.take_at(&asks, 1, 50 * SECOND, Share::WHOLE);
    settle(taken.at_us, 500, 55 * SECOND);
    assert_eq!((left(55 * SECOND), left(114 * SECOND), left(116 * SECOND)), (0, 0, 100));
}

#[test]
fn a_higher_cost_counts_whole_however_little_the_bucket_has() {
    let mut model = Model::new(shape(10, 100), 1);
    (0..100).for_each(|_| assert!(model.request()));
    (0..100).for_each(|index| model.settle(index, 11, 0));
    model.now = 100 * SECOND;
    assert!(!model.request(), "a thousand more take a hundred seconds to flow off, and one token more");
    model.now += SECOND / 10;
    assert!(model.request());
}

/// A store that may be away, and counts corrections.
struct Switched {
    memory: MemoryStore,
    away: AtomicBool,
    calls: AtomicUsize,
    changes: Mutex<Vec<Change>>,
}

impl Store for Switched {
    fn take<'a>(&'a self, charges: &'a [BucketCharge], units: u32) -> BoxFuture<'a, Result<Grant, StoreFailure>> {
        Box::pin(ready(Ok(self.memory.take_at(charges, units, clock::monotonic_micros(), Share::WHOLE))))
    }

    fn adjust<'a>(&'a self, batch: &'a AdjustmentBatch) -> BoxFuture<'a, Vec<AdjustmentResult>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.away.load(Ordering::Relaxed) {
            return Box::pin(ready(vec![Err(StoreError::Io); batch.len()]));
        }
        self.changes.lock().extend(batch.iter().map(|one| one.change));
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
        let (away, calls, changes) = (AtomicBool::new(false), AtomicUsize::new(0), Mutex::default());
        let store = Arc::new(Switched { memory: MemoryStore::new(10), away, calls, changes });
        let share = Arc::new(FleetShare::expecting(1));
        let node = Arc::new(Node::new(Arc::new(MemoryStore::new(10)), Arc::new(Breaker::new()), share));
        let caller = Arc::new(StoreClient::new(node.clone(), store.clone()));
        let settler = Arc::new(Settler::new(node.memory.clone(), Some(caller)));
        Self { store, node, settler }
    }

    fn settle(&self, decided_by: DecidedBy, actual: u64) -> SettlementResult {
        let (taken_at_us, since_us) = (clock::monotonic_micros(), clock::monotonic_micros());
        let reservation = Reservation {
            charge: charge(shape(1, 100), 10),
            on_outage: OnOutage::Local,
            source: DecisionSource { decided_by, taken_at_us, counted: true },
            since_us,
        };
        self.settler.settle(reservation, actual)
    }

    fn owed(&self) -> u64 {
        let owed = self.node.debts.collect(clock::monotonic_micros(), 100, |_| true);
        owed.iter().map(|one| ticks(&one.change)).sum::<u64>() / shape(1, 100).emission()
    }

    fn left_here(&self) -> u64 {
        let ask = [charge(shape(1, 100), 10)];
        self.node.memory.take_at(&ask, 0, clock::monotonic_micros(), Share::WHOLE).levels[0].remaining
    }
}

#[tokio::test(start_paused = true)]
async fn charges_of_one_bucket_go_as_one_and_an_outage_starts_from_them() {
    let bench = Bench::new();
    (0..10).for_each(|_| assert_eq!(bench.settle(DecidedBy::Redis, 12), SettlementResult::More));
    assert_eq!(bench.settle(DecidedBy::Redis, 10), SettlementResult::Even);
    bench.settler.idle().await;
    let emission = shape(1, 100).emission();
    assert_eq!(bench.store.changes.lock().iter().map(ticks).collect::<Vec<_>>(), [20 * emission]);
    assert_eq!((bench.store.calls.load(Ordering::Relaxed), bench.left_here(), bench.owed()), (1, 80, 0));
}

#[tokio::test(start_paused = true)]
async fn charges_and_refunds_weigh_more_while_shares_are_held_back() {
    let bench = Bench::new();
    let tokens = |change: &Change| match *change {
        Change::Charge { charge, .. } | Change::Refund { charge, .. } => charge / shape(1, 100).emission(),
    };
    bench.node.share.set(Share::new(4, 0), vec![1]);
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
    assert_eq!(bench.store.changes.lock().iter().map(tokens).collect::<Vec<_>>(), [6, 40, 8, 3, 6]);
}

#[tokio::test(start_paused = true)]
async fn settlements_that_fail_are_sent_again_as_they_were() {
    let bench = Bench::new();
    bench.store.away.store(true, Ordering::Relaxed);
    assert_eq!(bench.settle(DecidedBy::Redis, 13), SettlementResult::More);
    assert_eq!(bench.settle(DecidedBy::Redis, 4), SettlementResult::Less);
    bench.settler.idle().await;
    assert_eq!((bench.left_here(), bench.owed(), bench.node.outbox.len()), (97, 0, 2));
    assert_eq!(bench.settle(DecidedBy::Redis, 15), SettlementResult::More);
    bench.settler.idle().await;
    assert_eq!((bench.owed(), bench.node.outbox.len()), (5, 2), "behind what failed, charges become one debt");
    bench.store.away.store(false, Ordering::Relaxed);
    let sent = bench.node.outbox.send_again(|_| true).unwrap();
    let results = bench.store.adjust(&sent.batch).await;
    bench.node.confirm(sent, &results);
    let changes = bench.store.changes.lock();
    assert!(matches!(changes[..], [Change::Charge { .. }, Change::Refund { .. }]), "{changes:?}");
    assert_eq!(bench.node.outbox.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_decision_of_the_node_alone_is_settled_in_its_bucket_and_its_debt() {
    let bench = Bench::new();
    let taken = charge(shape(1, 100), 10);
    bench.node.memory.take_at(std::slice::from_ref(&taken), 1, clock::monotonic_micros(), Share::WHOLE);
    bench.node.debts.incur(&taken, 1, 0, bench.node.memory.timestamp(taken.quota, clock::monotonic_micros()));
    assert_eq!(bench.settle(DecidedBy::Local, 4), SettlementResult::Less);
    bench.settler.idle().await;
    assert_eq!((bench.left_here(), bench.owed(), bench.store.calls.load(Ordering::Relaxed)), (96, 4, 0));
}

#[tokio::test(start_paused = true)]
async fn too_many_at_once_are_settled_as_while_the_store_is_away() {
    let bench = Bench::new();
    (0..MAX_WAITING + 5).for_each(|_| assert_eq!(bench.settle(DecidedBy::Redis, 11), SettlementResult::More));
    assert_eq!(bench.owed(), 5);
    bench.settler.idle().await;
    let charged: u64 = bench.store.changes.lock().iter().map(|change| ticks(change) / shape(1, 100).emission()).sum();
    assert_eq!(charged, MAX_WAITING as u64);
}

/// The whole way, by what the store says.
#[tokio::test(start_paused = true)]
async fn a_refund_forgets_the_denial_of_its_bucket() {
    let bench = Bench::new();
    let limiter = Limiter::of_node(bench.node.clone(), bench.store.clone());
    let taken = charge(shape(1, 100), 60);
    let checks = checks(taken.clone());
    let decision = limiter.decide(&checks).wait().await;
    assert_eq!((decision.granted, decision.decided_by), (true, DecidedBy::Redis));
    let reservation = Reservation::of(taken, OnOutage::Local, decision.source(0));
    assert!(!limiter.decide(&checks).wait().await.granted);
    assert_eq!(limiter.decide(&checks).done().map(|decision| decision.decided_by), Some(DecidedBy::DenialCache));
    assert_eq!(limiter.settler().settle(reservation, 10), SettlementResult::Less);
    limiter.settled().await;
    let decision = limiter.decide(&checks).wait().await;
    assert_eq!((decision.granted, decision.levels[0].remaining), (true, 30));
}

#[tokio::test(start_paused = true)]
async fn tokens_spent_from_a_lease_are_settled_like_others() {
    let bench = Bench::new();
    let limiter = Limiter::of_node(bench.node.clone(), bench.store.clone());
    let asks = [charge(shape(100, 10_000).leased(10), 10)];
    let checks = checks(asks[0].clone());
    let mut decision = limiter.decide(&checks).wait().await;
    for _ in 0..50 {
        tokio::time::advance(Duration::from_millis(1)).await;
        decision = limiter.decide(&checks).wait().await;
    }
    assert_eq!(decision.decided_by, DecidedBy::Lease);
    let before = bench.store.memory.take_at(&asks, 0, clock::monotonic_micros(), Share::WHOLE).levels[0].remaining;
    limiter.settler().settle(Reservation::of(asks[0].clone(), OnOutage::Local, decision.source(0)), 1);
    limiter.settler().settle(Reservation::of(asks[0].clone(), OnOutage::Local, decision.source(0)), 30);
    limiter.settled().await;
    let after = bench.store.memory.take_at(&asks, 0, clock::monotonic_micros(), Share::WHOLE).levels[0].remaining;
    // Tokens that flowed in since the lease was taken, in a lease's time at most, may be missing.
    assert!((before + 9 - 20 - 5..=before + 9 - 20).contains(&after), "{after} of {before}");
}

#[test]
fn a_limit_that_lets_all_pass_while_the_store_is_away_has_nothing_to_settle() {
    let bench = Bench::new();
    let (charge, on_outage) = (charge(shape(1, 100), 10), OnOutage::Allow);
    let source = DecisionSource { decided_by: DecidedBy::Local, taken_at_us: 0, counted: false };
    let reservation = Reservation { charge, on_outage, source, since_us: 0 };
    assert_eq!(bench.settler.settle(reservation, 50), SettlementResult::Even);
    assert_eq!((bench.left_here(), bench.owed()), (100, 0));
}

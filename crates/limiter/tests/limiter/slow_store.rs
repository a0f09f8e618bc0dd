//! A store near its time limit, and beyond it: what is used of the limit, what is called, and what
//! is charged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use tokio::time::sleep;
use tollgate_limiter::algorithm::concurrency::GrantedPermits;
use tollgate_limiter::algorithm::share::Share;
use tollgate_limiter::clock;
use tollgate_limiter::decide::check::{CheckPolicy, Checks, TokenChecks};
use tollgate_limiter::decide::decision::DecidedBy;
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::limit::definition::{Consistency, OnOutage};
use tollgate_limiter::node::Node;
use tollgate_limiter::node::breaker::Breaker;
use tollgate_limiter::node::recovery::run_control;
use tollgate_limiter::store::adjustment::{AdjustmentBatch, AdjustmentResult};
use tollgate_limiter::store::fleet_share::FleetShare;
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::{BucketCharge, Grant, PermitClaim, Store, StoreError, StoreFailure};
use tollgate_testing::{HOUR, SECOND, charge, decide, shape};

const TIMEOUT: Duration = Duration::from_millis(100);

/// Tokens of a bucket that does not fill during a test.
const FULL: u64 = 10_000;

/// A store that decides in the middle of a call's time.
struct SlowStore {
    memory: MemoryStore,
    /// Microseconds that a call takes.
    takes_us: AtomicU64,
    /// Calls are not carried out, and end with an error.
    refuses: AtomicBool,
    calls: AtomicU32,
}

impl SlowStore {
    fn set(&self, takes: Duration) {
        self.takes_us
            .store(u64::try_from(takes.as_micros()).unwrap(), Ordering::Relaxed);
    }

    fn left(&self, request: &[BucketCharge]) -> u64 {
        self.memory
            .take_at(request, 0, clock::monotonic_micros(), Share::WHOLE)
            .levels[0]
            .remaining
    }
}

impl Store for SlowStore {
    fn take<'a>(
        &'a self,
        charges: &'a [BucketCharge],
        units: u32,
    ) -> BoxFuture<'a, Result<Grant, StoreFailure>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let half = Duration::from_micros(self.takes_us.load(Ordering::Relaxed) / 2);
        let refuses = self.refuses.load(Ordering::Relaxed);
        Box::pin(async move {
            sleep(half).await;
            let grant = if refuses {
                Err(StoreError::Io.into())
            } else {
                self.memory.take(charges, units).await
            };
            sleep(half).await;
            grant
        })
    }

    fn adjust<'a>(&'a self, batch: &'a AdjustmentBatch) -> BoxFuture<'a, Vec<AdjustmentResult>> {
        self.memory.adjust(batch)
    }

    fn claim<'a>(
        &'a self,
        claims: &'a [PermitClaim],
    ) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>> {
        self.memory.claim(claims)
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }
}

struct SlowFixture {
    limiter: Limiter,
    store: Arc<SlowStore>,
    breaker: Arc<Breaker>,
}

impl SlowFixture {
    fn new(takes: Duration) -> Self {
        let store = Arc::new(SlowStore {
            memory: MemoryStore::new(1_000),
            takes_us: AtomicU64::new(0),
            refuses: AtomicBool::new(false),
            calls: AtomicU32::new(0),
        });
        store.set(takes);
        let breaker = Arc::new(Breaker::new());
        let local = Arc::new(MemoryStore::new(1_000));
        let node = Arc::new(Node::new(
            local,
            breaker.clone(),
            Arc::new(FleetShare::expecting(1)),
        ));
        tokio::spawn(run_control(node.clone(), vec![store.clone()]));
        Self {
            limiter: Limiter::for_node(node, store.clone()),
            store,
            breaker,
        }
    }

    /// Tokens that are missing in the store when nothing happens any more.
    async fn charged(&self, request: &[BucketCharge]) -> u64 {
        sleep(Duration::from_secs(5)).await;
        FULL - self.store.left(request)
    }
}

fn of_key(key: &str) -> [BucketCharge; 1] {
    [charge(key, shape(FULL, 1_000 * HOUR, FULL), 1)]
}

/// Lets `clients` ask for twice what the limit admits, for ten seconds. Returns the share of the
/// limit that was admitted, the decisions without the store among a hundred, and the calls per
/// request.
async fn demand(fixture: &SlowFixture, clients: u32, consistency: Consistency) -> (f64, f64, f64) {
    let rate = u64::from(clients) * 5;
    let quota = shape(rate, SECOND, rate);
    let quota = match consistency {
        Consistency::Exact => quota,
        Consistency::Leased => quota.leased(1),
    };
    let request = [charge(&format!("hot {clients}"), quota, 1)];
    let time = Duration::from_secs(10);
    let started = clock::now();
    let calls = fixture.store.calls.load(Ordering::Relaxed);
    let clients = join_all((0..clients).map(|number: u32| {
        let fixture = &fixture;
        let request = &request;
        async move {
            sleep(Duration::from_millis(u64::from(number * 7 % 100))).await;
            let [mut granted, mut local, mut all] = [0.0; 3];
            while started.elapsed() < time {
                let decision = decide(&fixture.limiter, request).await;
                all += 1.0;
                granted += f64::from(u8::from(decision.granted));
                local += f64::from(u8::from(decision.decided_by == DecidedBy::Local));
                if decision.decided_by != DecidedBy::Redis {
                    sleep(Duration::from_millis(3)).await;
                }
            }
            [granted, local, all]
        }
    }))
    .await;
    let sum = |at: usize| clients.iter().map(|figures| figures[at]).sum::<f64>();
    let calls = f64::from(fixture.store.calls.load(Ordering::Relaxed) - calls);
    // The bucket begins full.
    (
        sum(0) / (rate as f64 * 11.0),
        100.0 * sum(1) / sum(2),
        calls / sum(2),
    )
}

#[tokio::test(start_paused = true)]
async fn a_limit_is_used_up_when_calls_take_nearly_all_of_their_time() {
    for takes in [0.5, 0.7, 0.85].map(|part| TIMEOUT.mul_f64(part)) {
        for clients in [1, 2, 5, 20, 100] {
            let fixture = SlowFixture::new(takes);
            let (used, local, calls) = demand(&fixture, clients, Consistency::Exact).await;
            println!(
                "{takes:?}, {clients} clients: {used:.3} used, {local:.1} % local, {calls:.3} calls per request"
            );
            assert!(
                used >= 0.95 && local <= 1.0,
                "{takes:?}, {clients} clients: {used:.3} used, {local:.1} % local"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_leased_limit_is_used_up_however_long_calls_take() {
    for takes in [1, 5, 10, 15, 25, 45, 70, 85].map(Duration::from_millis) {
        for clients in [20, 100] {
            let fixture = SlowFixture::new(takes);
            let (used, local, calls) = demand(&fixture, clients, Consistency::Leased).await;
            println!(
                "{takes:?}, {clients} clients: {used:.3} used, {local:.1} % local, {calls:.3} calls per request"
            );
            assert!(used >= 0.97, "{takes:?}, {clients} clients: {used:.3} used");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_slower_than_its_time_limit_is_not_called_for_each_request() {
    let fixture = SlowFixture::new(3 * TIMEOUT);
    let request = of_key("k");
    let later = |after| {
        let fixture = &fixture;
        let request = &request;
        async move {
            sleep(Duration::from_millis(after)).await;
            let started = clock::now();
            decide(&fixture.limiter, request).await;
            assert!(
                started.elapsed() <= TIMEOUT + Duration::from_millis(1),
                "{:?}",
                started.elapsed()
            );
        }
    };
    join_all((0..500).map(|number| later(number / 5))).await;
    let calls = fixture.store.calls.load(Ordering::Relaxed);
    assert!(calls <= 18, "{calls}");
}

#[tokio::test(start_paused = true)]
async fn requests_that_gave_up_a_call_are_charged_once() {
    for refuses in [false, true] {
        let fixture = SlowFixture::new(TIMEOUT.mul_f64(1.3));
        fixture.store.refuses.store(refuses, Ordering::Relaxed);
        let request = of_key("k");
        for _ in 0..4 {
            let decision = decide(&fixture.limiter, &request).await;
            assert!(decision.granted && decision.decided_by == DecidedBy::Local);
            sleep(Duration::from_secs(1)).await;
        }
        assert!(!fixture.breaker.is_open());
        assert_eq!(fixture.charged(&request).await, 4, "refused: {refuses}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_is_charged_what_was_admitted_though_its_calls_are_late() {
    for (refuses, tokens) in [(false, FULL), (true, FULL), (false, 30)] {
        let fixture = SlowFixture::new(TIMEOUT.mul_f64(1.3));
        fixture.store.refuses.store(refuses, Ordering::Relaxed);
        let request = [charge("k", shape(tokens, 1_000 * HOUR, tokens), 1)];
        let mut granted = 0;
        for _ in 0..10 {
            let decisions = join_all((0..10).map(|_| decide(&fixture.limiter, &request))).await;
            granted += decisions.iter().filter(|decision| decision.granted).count() as u64;
            sleep(Duration::from_millis(10)).await;
        }
        assert!(fixture.breaker.is_open());
        fixture.store.refuses.store(false, Ordering::Relaxed);
        fixture.store.set(Duration::from_millis(1));
        sleep(Duration::from_secs(5)).await;
        assert!(!fixture.breaker.is_open());
        assert_eq!(
            tokens - fixture.store.left(&request),
            granted,
            "refused: {refuses}, {tokens} tokens"
        );
        assert!(granted == 100.min(tokens));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_late_call_took_for_a_denied_request_is_refunded() {
    let fixture = SlowFixture::new(TIMEOUT.mul_f64(1.3));
    let [request] = of_key("k");
    let policy = CheckPolicy {
        on_outage: OnOutage::Deny,
    };
    let checks = Checks {
        tokens: TokenChecks::one(request.clone(), policy),
        permits: Vec::new(),
    };
    for _ in 0..3 {
        assert!(!fixture.limiter.decide(&checks).wait().await.granted);
    }
    assert_eq!(fixture.charged(&[request]).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_with_less_time_than_the_others_gives_up_alone() {
    let fixture = SlowFixture::new(TIMEOUT.mul_f64(0.8));
    let request = of_key("k");
    let checks = Checks::from(request[0].clone());
    let started = clock::now();
    let short = async {
        let decision = fixture
            .limiter
            .decide_by(&checks, started + TIMEOUT / 4)
            .wait()
            .await;
        (
            decision.decided_by,
            started.elapsed() <= TIMEOUT / 4 + Duration::from_millis(1),
        )
    };
    let patient = || async { decide(&fixture.limiter, &request).await.decided_by };
    let (first, short, second) = tokio::join!(patient(), short, patient());
    assert_eq!(
        (first, short, second),
        (DecidedBy::Redis, (DecidedBy::Local, true), DecidedBy::Redis)
    );
    assert_eq!(fixture.charged(&request).await, 3);
}

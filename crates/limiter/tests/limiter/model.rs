//! The limiter against its promise, without a server: bounded memory, shares of nodes, and what
//! happens when a store fails.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, ready};
use metrics_exporter_prometheus::PrometheusBuilder;
use tollgate_limiter::algorithm::concurrency::GrantedPermits;
use tollgate_limiter::algorithm::level::Level;
use tollgate_limiter::algorithm::share::Share;
use tollgate_limiter::algorithm::token_bucket::TokenBucket;
use tollgate_limiter::decide::check::{CheckPolicy, Checks};
use tollgate_limiter::decide::decision::{DecidedBy, Decision};
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::limit::definition::OnOutage;
use tollgate_limiter::node::Node;
use tollgate_limiter::node::breaker::Breaker;
use tollgate_limiter::node::recovery::{first_contact, run_control};
use tollgate_limiter::store::adjustment::{
    Adjustment, AdjustmentBatch, AdjustmentOutcome, AdjustmentResult, Change,
};
use tollgate_limiter::store::fleet_share::FleetShare;
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::{
    BucketCharge, Grant, PermitClaim, ServerId, Store, StoreError, StoreFailure,
};
use tollgate_testing::topology::CapturedLog;
use tollgate_testing::{HOUR, SECOND, charge, decide, decide_locally, shape};

/// The admitted tokens, and when.
#[derive(Default)]
struct Admitted(Vec<(u64, u64)>);

impl Admitted {
    fn add(&mut self, at_us: u64, tokens: u64) {
        if tokens > 0 {
            self.0.push((at_us, tokens));
        }
    }

    fn total(&self) -> u64 {
        self.0.iter().map(|(_, tokens)| tokens).sum()
    }

    /// In every window: at most `burst + rate * t`, exactly.
    fn assert_within(&self, tokens: u64, period_us: u64, burst: u64) {
        for (first, (from, _)) in self.0.iter().enumerate() {
            let mut sum = 0_u128;
            for (at, amount) in &self.0[first..] {
                sum += u128::from(*amount);
                let bound = u128::from(burst) * u128::from(period_us)
                    + u128::from(tokens) * u128::from(at - from);
                assert!(
                    sum * u128::from(period_us) <= bound,
                    "{sum} in {} us",
                    at - from
                );
            }
        }
    }
}

/// A store that tells of a bucket only when it is full, and not what is left of it.
fn full_in(reset_after_us: u64) -> Level {
    Level {
        remaining: u64::MAX,
        retry_after_us: 0,
        reset_after_us,
    }
}

#[test]
fn ten_times_more_keys_than_room_stay_bounded_and_within_their_limits() {
    const ROOM: usize = 200;
    let memory = MemoryStore::new(ROOM);
    let limit = shape(10, SECOND, 5);
    let mut random = fastrand::Rng::with_seed(7);
    let mut keys: HashMap<u32, Admitted> = HashMap::new();
    let mut now = 0;
    for _ in 0..60_000 {
        now += random.u64(0..400);
        let key = random.u32(0..2_000);
        let units = random.u32(1..4);
        let granted = memory
            .take_at(
                &[charge(&format!("k{key}"), limit, 1)],
                units,
                now,
                Share::WHOLE,
            )
            .units;
        keys.entry(key).or_default().add(now, granted.into());
        assert!(memory.len() <= ROOM);
    }
    keys.values()
        .for_each(|admitted| admitted.assert_within(10, SECOND, 5));
    assert!(keys.values().map(Admitted::total).sum::<u64>() > 2_000);
}

#[test]
fn forgetting_a_slow_limits_bucket_does_not_lock_other_keys_out() {
    let memory = MemoryStore::new(64);
    let slow = shape(1, 24 * HOUR, 1);
    let quick = shape(10, SECOND, 10);
    for n in 0..1_000 {
        memory.take_at(&[charge(&format!("slow{n}"), slow, 1)], 1, n, Share::WHOLE);
    }
    let mut passed = 0;
    for tick in 1..100 {
        passed += memory
            .take_at(
                &[charge("quick", quick, 1)],
                1,
                tick * SECOND / 10,
                Share::WHOLE,
            )
            .units;
    }
    assert!(passed >= 95, "{passed}");
    let again: u32 = (0..1_000)
        .map(|n| {
            memory
                .take_at(
                    &[charge(&format!("slow{n}"), slow, 1)],
                    1,
                    HOUR,
                    Share::WHOLE,
                )
                .units
        })
        .sum();
    assert_eq!(again, 0, "a bucket that was forgotten is not full");
}

#[test]
fn full_buckets_are_swept_and_others_kept() {
    let memory = MemoryStore::new(10_000);
    let limit = shape(1, SECOND, 5);
    for n in 0..5_000 {
        memory.observe(&charge(&format!("k{n}"), limit, 1), &full_in(n * 1_000), 0);
    }
    memory.sweep(2_500_000);
    assert_eq!(memory.len(), 2_499);
    assert_eq!(
        memory
            .take_at(&[charge("k4000", limit, 5)], 1, 3_999_999, Share::WHOLE)
            .units,
        0
    );
    memory.sweep(HOUR);
    assert!(memory.is_empty());
}

#[test]
fn requests_on_the_same_buckets_in_any_order_neither_deadlock_nor_exceed() {
    let memory = Arc::new(MemoryStore::new(1_000));
    let limit = shape(1, HOUR, 500);
    let keys = ["a", "b", "c", "d", "e", "f"];
    let workers: Vec<_> = (0..4_u64)
        .map(|seed| {
            let memory = memory.clone();
            std::thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                let mut taken = HashMap::<&str, u64>::new();
                for _ in 0..1_000 {
                    let mut order = keys;
                    random.shuffle(&mut order);
                    let charges: Vec<BucketCharge> =
                        order[..3].iter().map(|key| charge(key, limit, 1)).collect();
                    if memory.take_at(&charges, 1, 0, Share::WHOLE).units == 1 {
                        order[..3]
                            .iter()
                            .for_each(|key| *taken.entry(key).or_default() += 1);
                    }
                }
                taken
            })
        })
        .collect();
    let mut sums = HashMap::<&str, u64>::new();
    for worker in workers {
        for (key, taken) in worker.join().unwrap() {
            *sums.entry(key).or_default() += taken;
        }
    }
    assert!(sums.values().all(|taken| *taken <= 500), "{sums:?}");
    assert!(
        sums.values().filter(|taken| **taken == 500).count() >= 3,
        "{sums:?}"
    );
}

#[test]
fn a_worker_that_comes_late_neither_refills_a_bucket_nor_is_let_through() {
    let memory = MemoryStore::new(100);
    let request = [charge("k", shape(1_000, SECOND, 10), 1)];
    let take = |units, now_us| memory.take_at(&request, units, now_us, Share::WHOLE).units;
    assert_eq!(
        (take(100, 20_000), take(1, 15_000), take(100, 20_000)),
        (10, 0, 0)
    );
    memory.observe(&request[0], &full_in(0), 1_000);
    memory.adjust_at(
        &[Adjustment {
            key: request[0].key.clone(),
            quota: request[0].quota,
            change: Change::Charge {
                charge: 0,
                since_us: 1_000,
            },
        }],
        1_000,
    );
    memory.sweep(0);
    assert_eq!((take(1, 20_999), take(1, 21_000)), (0, 1));
}

/// Clocks are read before locks are had: whatever workers read, what counts is the order in which
/// they have the lock.
#[test]
fn workers_that_come_late_by_random_times_stay_within_the_limits() {
    let memory = MemoryStore::new(3);
    let wide = shape(1_000, SECOND, 30);
    let narrow = shape(500, SECOND, 10);
    let mut random = fastrand::Rng::with_seed(3);
    let mut now = 0;
    let mut passed = [Admitted::default(), Admitted::default()];
    for _ in 0..30_000 {
        now += random.u64(0..300);
        let read_us = now - random.u64(0..=now.min(20_000));
        match random.u32(0..10) {
            0 => memory.sweep(read_us),
            1 => memory.observe(
                &charge("wide", wide, 1),
                &full_in(random.u64(0..2_000)),
                read_us,
            ),
            // Pushes others out: the floor is a time, too.
            2 => drop(memory.take_at(
                &[charge(&random.u32(0..4).to_string(), wide, 1)],
                20,
                read_us,
                Share::WHOLE,
            )),
            3..6 => {
                let grant = memory.take_at(
                    &[charge("wide", wide, 1)],
                    random.u32(1..9),
                    read_us,
                    Share::WHOLE,
                );
                assert!((read_us..=now).contains(&grant.at_us));
                passed[0].add(grant.at_us, grant.units.into());
            }
            _ => {
                let both = [charge("narrow", narrow, 1), charge("wide", wide, 1)];
                let grant = memory.take_at(&both, random.u32(1..9), read_us, Share::WHOLE);
                passed
                    .iter_mut()
                    .for_each(|passed| passed.add(grant.at_us, grant.units.into()));
            }
        }
    }
    let [wide, narrow] = &passed;
    wide.assert_within(1_000, SECOND, 30);
    narrow.assert_within(500, SECOND, 10);
    assert!(
        wide.total() > 1_000 && narrow.total() > 100,
        "{} and {}",
        wide.total(),
        narrow.total()
    );
}

#[test]
fn halving_a_burst_and_restoring_it_grants_nothing_twice() {
    let memory = MemoryStore::new(100);
    let whole = shape(10, HOUR, 200);
    let half = shape(10, HOUR, 100);
    let take = |limit| memory.take_at(&[charge("k", limit, 1)], 1_000, 0, Share::WHOLE);
    assert_eq!(take(whole).units, 200);
    for _ in 0..3 {
        assert_eq!((take(half).units, take(whole).units), (0, 0));
        assert_eq!(take(half).levels[0].retry_after_us, 101 * HOUR / 10);
    }
}

#[test]
fn versions_of_a_limit_in_turns_admit_no_more_than_the_largest_burst_and_the_largest_rate() {
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..300 {
        let memory = MemoryStore::new(100);
        let rates: Vec<(u64, u64)> = (0..3)
            .map(|_| (random.u64(1..1_000), random.u64(1..200)))
            .collect();
        let versions: Vec<TokenBucket> = rates
            .iter()
            .map(|(rate, burst)| shape(*rate, SECOND, *burst))
            .collect();
        let mut passed = Admitted::default();
        let mut now = 0;
        let usual = random.u64(1..100_000);
        let mut ask_by = |version: usize, units, now| {
            let grant = memory.take_at(
                &[charge("k", versions[version], 1)],
                units,
                now,
                Share::WHOLE,
            );
            passed.add(now, grant.units.into());
            grant
        };
        let mut last_granted = 0;
        for _ in 0..200 {
            now += if random.bool() {
                random.u64(0..usual)
            } else {
                0
            };
            let version = random.usize(..3);
            if ask_by(version, random.u32(1..300), now).units > 0 {
                last_granted = version;
            }
        }
        // From here on there is one version, and it waits as long as it is told to, which is not
        // long.
        let version = random.usize(..3);
        let wait = ask_by(version, 1, now).levels[0].retry_after_us;
        let old_burst = rates[last_granted].1;
        let rate = rates[version].0.max(rates[last_granted].0);
        assert!(
            wait <= (old_burst * SECOND).div_ceil(rate),
            "{wait} us by {version} of {rates:?}, after {last_granted}"
        );
        if wait > 0 {
            assert_eq!(ask_by(version, 1, now + wait - 1).units, 0);
            assert_eq!(ask_by(version, 1, now + wait).units, 1);
        }
        let largest = |of: fn(&(u64, u64)) -> u64| rates.iter().map(of).max().unwrap();
        passed.assert_within(
            largest(|(rate, _)| *rate),
            SECOND,
            largest(|(_, burst)| *burst),
        );
        assert!(passed.total() >= rates.iter().map(|(_, burst)| *burst).min().unwrap());
    }
}

#[test]
fn a_level_noted_for_a_faster_limit_does_not_fill_a_slower_one() {
    let memory = MemoryStore::new(100);
    let slow = charge("k", shape(10, HOUR, 10), 1);
    memory.observe(
        &slow,
        &Level {
            remaining: 0,
            retry_after_us: 991_000,
            reset_after_us: SECOND,
        },
        0,
    );
    assert_eq!(
        memory.take_at(&[slow], 10, SECOND, Share::WHOLE).units,
        1,
        "what would be back by then"
    );
}

/// `nodes` nodes that know the bucket is full again `reset_us` after time 0, driven flat out from
/// then on.
fn outage(
    nodes: u32,
    limit: TokenBucket,
    cost: u64,
    reset_us: u64,
    until_us: u64,
) -> (Admitted, usize) {
    let request = [charge("k", limit, cost)];
    let mut admitted = Admitted::default();
    let mut admitting = vec![false; nodes as usize];
    let memories: Vec<MemoryStore> = (0..nodes).map(|_| MemoryStore::new(100)).collect();
    memories
        .iter()
        .for_each(|memory| memory.observe(&request[0], &full_in(reset_us), 0));
    for now in (0..until_us).step_by(1_000) {
        for (rank, memory) in (0_u32..).zip(&memories) {
            let units = memory
                .take_at(&request, 3, now, Share::new(nodes, rank))
                .units;
            admitted.add(now, u64::from(units) * cost);
            admitting[rank as usize] |= units > 0;
        }
    }
    (
        admitted,
        admitting.into_iter().filter(|admits| *admits).count(),
    )
}

#[test]
fn nodes_in_an_outage_admit_together_what_redis_left_and_the_rate() {
    for (nodes, burst, cost, level) in [
        (2, 40, 1, 25),
        (3, 40, 1, 40),
        (2, 40, 5, 0),
        (7, 100, 2, 13),
    ] {
        let reset_us = (burst - level) * SECOND / 10;
        let (admitted, admitting) =
            outage(nodes, shape(10, SECOND, burst), cost, reset_us, 20 * SECOND);
        admitted.assert_within(10, SECOND, burst);
        // From the outage's start: what was left, and no more.
        for (at, _) in &admitted.0 {
            let by: u64 = admitted
                .0
                .iter()
                .filter(|(when, _)| when <= at)
                .map(|(_, tokens)| tokens)
                .sum();
            assert!(
                by * SECOND <= level * SECOND + 10 * at,
                "{by} by {at} us, of {level}"
            );
        }
        assert_eq!(admitting, nodes as usize);
        assert!(
            admitted.total() * 100 >= (level + 200 - u64::from(nodes) * cost) * 97,
            "{}",
            admitted.total()
        );
    }
}

#[test]
fn a_limit_too_small_for_all_nodes_belongs_to_as_many_as_have_room() {
    for (burst, owners) in [(1, 1), (2, 2), (3, 3)] {
        let (admitted, admitting) = outage(5, shape(2, SECOND, burst), 1, 0, 10 * SECOND);
        assert_eq!(admitting, owners);
        admitted.assert_within(2, SECOND, burst);
        assert!(admitted.total() >= 20);
    }
}

#[test]
fn a_changed_share_keeps_the_time_to_full_and_a_changed_limit_the_tokens() {
    let memory = MemoryStore::new(100);
    let limit = shape(10, SECOND, 40);
    let level = |limit, share| memory.take_at(&[charge("k", limit, 1)], 0, 0, share).levels[0];
    memory.observe(&charge("k", limit, 1), &full_in(SECOND), 0);
    assert_eq!(
        level(limit, Share::WHOLE),
        Level {
            remaining: 30,
            retry_after_us: 0,
            reset_after_us: SECOND
        }
    );
    assert_eq!(
        level(limit, Share::new(2, 0)),
        Level {
            remaining: 15,
            retry_after_us: 0,
            reset_after_us: SECOND
        }
    );
    let slower = shape(10, 60 * SECOND, 20);
    assert_eq!(level(slower, Share::new(2, 0)).remaining, 5);
    assert_eq!(
        level(slower, Share::new(2, 0)).reset_after_us,
        SECOND,
        "as long as nobody is granted by the slower one"
    );
}

#[test]
fn noting_a_level_never_gives_tokens_back() {
    let memory = MemoryStore::new(100);
    let request = charge("k", shape(1, HOUR, 10), 1);
    memory.take_at(std::slice::from_ref(&request), 9, 0, Share::WHOLE);
    memory.observe(&request, &full_in(0), 0);
    assert_eq!(memory.take_at(&[request], 5, 0, Share::WHOLE).units, 1);
}

/// A store that answers as it is told to, and counts how often it is asked.
#[derive(Default)]
struct FakeStore {
    failing: std::sync::atomic::AtomicBool,
    asked: AtomicU32,
}

impl Store for FakeStore {
    fn take<'a>(
        &'a self,
        charges: &'a [BucketCharge],
        units: u32,
    ) -> BoxFuture<'a, Result<Grant, StoreFailure>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let level = Level {
            remaining: 7,
            retry_after_us: 0,
            reset_after_us: HOUR / 2,
        };
        let grant = Grant {
            units,
            levels: charges.iter().map(|_| level).collect(),
            ..Grant::default()
        };
        let failing = self.failing.load(Ordering::Relaxed);
        Box::pin(ready(if failing {
            Err(StoreError::Io.into())
        } else {
            Ok(grant)
        }))
    }

    fn adjust<'a>(&'a self, batch: &'a AdjustmentBatch) -> BoxFuture<'a, Vec<AdjustmentResult>> {
        Box::pin(ready(vec![Ok(AdjustmentOutcome::Applied); batch.len()]))
    }

    fn claim<'a>(
        &'a self,
        _: &'a [PermitClaim],
    ) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>> {
        Box::pin(std::future::ready(Err(StoreError::Io)))
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(20)
    }
}

struct NodeOfFakeStore {
    store: Arc<FakeStore>,
    breaker: Arc<Breaker>,
    limiter: Limiter,
}

fn node(failing: bool, nodes: u32) -> NodeOfFakeStore {
    let store = Arc::new(FakeStore::default());
    store.failing.store(failing, Ordering::Relaxed);
    let breaker = Arc::new(Breaker::new());
    let share = Arc::new(FleetShare::expecting(nodes));
    let limiter = Limiter::shared(
        Arc::new(MemoryStore::new(100)),
        store.clone(),
        breaker.clone(),
        share,
    );
    NodeOfFakeStore {
        store,
        breaker,
        limiter,
    }
}

/// Checks of one token each: what happens in an outage, the key, and how many there are an hour.
fn checks_of(limits: &[(OnOutage, &str, u64)]) -> Checks {
    let mut checks = Checks::default();
    for &(on_outage, key, burst) in limits {
        let policy = CheckPolicy { on_outage };
        checks
            .tokens
            .push(charge(key, shape(burst, HOUR, burst), 1), policy);
    }
    checks
}

#[tokio::test]
async fn the_stores_decision_is_used() {
    let node = node(false, 1);
    let charges = [charge("k", shape(10, HOUR, 10), 1)];
    assert!(decide_locally(&node.limiter, &charges).is_none());
    let decision = decide(&node.limiter, &charges).await;
    assert_eq!(
        (
            decision.decided_by,
            decision.granted,
            decision.levels[0].remaining
        ),
        (DecidedBy::Redis, true, 7)
    );
}

#[tokio::test]
async fn without_limits_the_store_is_not_asked() {
    let node = node(false, 1);
    assert!(decide_locally(&node.limiter, &[]).is_some_and(|decision| decision.granted));
    assert_eq!(node.store.asked.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_failing_store_is_asked_five_times_and_each_request_decided_anyway() {
    let node = node(true, 2);
    let charges = [charge("k", shape(16, HOUR, 16), 1)];
    let mut granted = 0;
    for _ in 0..100 {
        let decision = decide(&node.limiter, &charges).await;
        assert_eq!(decision.decided_by, DecidedBy::Local);
        granted += u32::from(decision.granted);
    }
    assert_eq!(granted, 8, "this node's half of the limit");
    assert_eq!(node.store.asked.load(Ordering::Relaxed), 5);
    assert!(decide_locally(&node.limiter, &charges).is_some());
}

#[tokio::test]
async fn a_success_between_failures_keeps_the_breaker_closed() {
    let node = node(true, 1);
    let charges = [charge("k", shape(16, HOUR, 16), 1)];
    for _ in 0..5 {
        for _ in 0..4 {
            decide(&node.limiter, &charges).await;
        }
        node.store.failing.store(false, Ordering::Relaxed);
        decide(&node.limiter, &charges).await;
        node.store.failing.store(true, Ordering::Relaxed);
    }
    assert!(!node.breaker.is_open());
}

#[tokio::test]
async fn in_an_outage_each_limit_follows_its_on_outage() {
    use OnOutage::{Allow, Deny, Local};
    let node = node(true, 1);
    async fn decided(node: &NodeOfFakeStore, limits: &[(OnOutage, &str, u64)]) -> Decision {
        node.limiter.decide(&checks_of(limits)).wait().await
    }
    let allowed = decided(&node, &[(Allow, "allow", 3)]).await;
    assert!(allowed.granted && allowed.levels[0].remaining == 3);
    let denied = decided(
        &node,
        &[(Local, "k", 1), (Deny, "deny", 3), (Allow, "allow", 3)],
    )
    .await;
    assert!(!denied.granted);
    let waits: Vec<bool> = denied
        .levels
        .iter()
        .map(|level| level.retry_after_us > 0)
        .collect();
    assert_eq!(
        waits,
        [false, true, false],
        "who denied is who says when to come back"
    );
    let mixed = [(Allow, "allow", 1), (Local, "k", 1)];
    assert!(
        decided(&node, &mixed).await.granted,
        "the denied request charged nothing"
    );
    let spent = decided(&node, &mixed).await;
    assert!(
        !spent.granted && spent.levels[0].retry_after_us == 0 && spent.levels[1].retry_after_us > 0
    );
}

#[tokio::test]
async fn a_bucket_in_an_outage_starts_from_what_redis_last_said() {
    let node = node(false, 1);
    // The store says of this bucket: half an hour to full, which is half of its tokens.
    let charges = [charge("k", shape(10, HOUR, 10), 1)];
    assert!(decide(&node.limiter, &charges).await.granted);
    node.store.failing.store(true, Ordering::Relaxed);
    let mut granted = 0;
    for _ in 0..20 {
        granted += u32::from(decide(&node.limiter, &charges).await.granted);
    }
    assert_eq!(granted, 5);
}

#[tokio::test(start_paused = true)]
async fn the_breaker_moves_once_per_change_however_many_fail_and_closes_when_all_stores_have_decided()
 {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let breaker = Arc::new(metrics::with_local_recorder(&recorder, Breaker::new));
    let share = Arc::new(FleetShare::expecting(1));
    let state = Arc::new(Node::new(
        Arc::new(MemoryStore::new(100)),
        breaker.clone(),
        share,
    ));
    let said = |line: &str| handle.render().lines().any(|found| found == line);
    for _ in 0..50 {
        breaker.failed(ServerId::ONLY, &StoreError::Timeout, 1, String::new);
    }
    assert!(breaker.is_open());
    assert!(
        said(r#"tollgate_store_breaker_transitions_total{to="open"} 1"#)
            && said("tollgate_store_up 0")
    );
    let good = Arc::new(FakeStore::default());
    let bad = Arc::new(FakeStore::default());
    bad.failing.store(true, Ordering::Relaxed);
    let stores: Vec<Arc<dyn Store>> = vec![good.clone(), bad.clone()];
    let control = tokio::spawn(run_control(state.clone(), stores.clone()));
    tollgate_testing::eventually("the one that fails is probed again and again", || async {
        bad.asked.load(Ordering::Relaxed) > 3
    })
    .await;
    assert_eq!(
        good.asked.load(Ordering::Relaxed),
        1,
        "the other has decided, and need not do so at the same time"
    );
    run_control(state, stores).await;
    assert!(breaker.is_open(), "one of two stores does not decide");
    bad.failing.store(false, Ordering::Relaxed);
    tollgate_testing::eventually("it closes", || async { !breaker.is_open() }).await;
    assert!(
        said(r#"tollgate_store_breaker_transitions_total{to="closed"} 1"#)
            && said("tollgate_store_up 1")
    );
    assert!(said(
        r#"tollgate_store_breaker_transitions_total{to="open"} 1"#
    ));
    control.abort();
}

#[tokio::test]
async fn calls_are_counted_by_outcome_and_the_fleet_by_nodes() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let node = metrics::with_local_recorder(&recorder, || node(false, 4));
    let charges = [charge("k", shape(16, HOUR, 16), 1)];
    decide(&node.limiter, &charges).await;
    node.store.failing.store(true, Ordering::Relaxed);
    decide(&node.limiter, &charges).await;
    let said = handle.render();
    for line in [
        r#"tollgate_store_calls_total{outcome="ok"} 1"#,
        r#"tollgate_store_calls_total{outcome="io"} 1"#,
        "tollgate_store_call_duration_seconds_count 2",
        "tollgate_store_batch_requests_sum 2",
        "tollgate_fleet_nodes 4",
    ] {
        assert!(
            said.lines().any(|found| found == line),
            "{line} is not in\n{said}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_starts_without_its_store_and_the_number_of_nodes_says_that_it_enforces_whole_limits()
 {
    for (expected_nodes, warned) in [(1, true), (3, false)] {
        let (log, _guard) = CapturedLog::start();
        let store = FakeStore {
            failing: true.into(),
            ..FakeStore::default()
        };
        let memory = MemoryStore::new(100);
        let share = FleetShare::expecting(expected_nodes);
        let node = Node::new(Arc::new(memory), Arc::new(Breaker::new()), Arc::new(share));
        for _worker in 0..2 {
            first_contact(&node, &store, Duration::ZERO).await;
        }
        assert_eq!(
            log.text().matches("expected_nodes is 1").count(),
            usize::from(warned),
            "{}",
            log.text()
        );
    }
}

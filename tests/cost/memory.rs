//! Floods of keys: memory keeps to its bounds, as docs/operating.md states them, and no client gets
//! over its limit, whatever had to be forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all, ready};
use smallvec::smallvec;
use tokio::sync::MutexGuard;
use tollgate_limiter::algorithm::concurrency::GrantedPermits;
use tollgate_limiter::algorithm::level::Level;
use tollgate_limiter::algorithm::share::Share;
use tollgate_limiter::algorithm::token_bucket::TokenBucket;
use tollgate_limiter::clock;
use tollgate_limiter::decide::decision::DecidedBy;
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::node::Node;
use tollgate_limiter::node::breaker::Breaker;
use tollgate_limiter::store::adjustment::{AdjustmentBatch, AdjustmentOutcome, AdjustmentResult};
use tollgate_limiter::store::fleet_share::FleetShare;
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::{
    BucketCharge, Grant, PermitClaim, ServerId, Store, StoreError, StoreFailure,
};
use tollgate_testing::node::connected;
use tollgate_testing::redis::RedisServer;
use tollgate_testing::{HOUR, SECOND, charge, decide, decide_locally, shape};

use super::{HEAP, TURN};

const MILLION: u64 = 1_000_000;

/// More than any table of a node has places, several times over: the next million would find what
/// these found.
const FLOOD: u64 = 250_000;

/// The bounds of docs/operating.md, in bytes.
const PER_BUCKET: usize = 150;
const PER_BUCKET_IN_REDIS: u64 = 200;
const TABLES: usize = 17 << 20;

/// A key as clients by their address have it.
fn client(number: u64) -> String {
    let [.., a, b, c, d] = number.to_be_bytes();
    format!("per-client\0{a}.{b}.{c}.{d}")
}

/// The heap in use since it was taken.
struct Heap {
    before: usize,
    _turn: MutexGuard<'static, ()>,
}

impl Heap {
    fn alone() -> Self {
        Self::with(TURN.blocking_lock())
    }

    fn with(turn: MutexGuard<'static, ()>) -> Self {
        Self {
            before: Self::used(),
            _turn: turn,
        }
    }

    fn used() -> usize {
        let stats = HEAP.stats();
        stats
            .bytes_allocated
            .saturating_sub(stats.bytes_deallocated)
    }

    fn grown(&self) -> usize {
        Self::used().saturating_sub(self.before)
    }
}

#[test]
fn a_full_table_of_buckets_stays_within_its_documented_memory() {
    let heap = Heap::alone();
    const ROOM: usize = 200_000;
    let (memory, limit) = (MemoryStore::new(ROOM), shape(5, HOUR, 5));
    let (mut over, mut peak) = (0, 0);
    for number in 0..MILLION {
        // A million in a minute.
        let now_us = number * 60;
        memory.take_at(
            &[charge(&client(number), limit, 1)],
            1,
            now_us,
            Share::WHOLE,
        );
        if number.is_multiple_of(100) {
            over += memory
                .take_at(&[charge("over", limit, 1)], 1, now_us, Share::WHOLE)
                .units;
            peak = peak.max(heap.grown());
        }
    }
    println!(
        "{} buckets, {} bytes each at most",
        memory.len(),
        peak / ROOM
    );
    assert!(
        memory.len() <= ROOM && memory.len() > ROOM * 9 / 10,
        "{}",
        memory.len()
    );
    assert!(
        peak <= ROOM * PER_BUCKET,
        "{} bytes for each of {ROOM}",
        peak / ROOM
    );
    assert!(over <= 5, "{over} passed of a key that may have 5 an hour");
    drop(memory);
    assert!(heap.grown() < ROOM, "{} bytes are left", heap.grown());
}

#[test]
fn buckets_of_short_visits_are_swept() {
    let heap = Heap::alone();
    let (memory, limit) = (
        MemoryStore::new(usize::try_from(MILLION).unwrap()),
        shape(10, SECOND, 20),
    );
    let mut peak = 0;
    // Of a quarter of a minute: what is there after two seconds is there all the time.
    for number in 0..FLOOD {
        let now_us = number * 60;
        assert_eq!(
            memory
                .take_at(
                    &[charge(&client(number), limit, 1)],
                    1,
                    now_us,
                    Share::WHOLE
                )
                .units,
            1
        );
        // The control plane sweeps as often.
        if number.is_multiple_of(2 * SECOND / 60) {
            memory.sweep(now_us);
        }
        if number.is_multiple_of(1_000) {
            peak = peak.max(heap.grown());
        }
    }
    memory.sweep(FLOOD * 60 + SECOND);
    println!("{peak} bytes at most, {} in the end", heap.grown());
    // Those of two seconds are 33 333.
    assert!(peak <= 40_000 * PER_BUCKET, "{peak}");
    assert!(
        memory.is_empty() && heap.grown() < 1 << 20,
        "{}",
        heap.grown()
    );
}

/// Lets everybody pass once and nobody twice, and keeps nothing: what grows is the node. Clients
/// with odd numbers are over.
#[derive(Default)]
struct Oracle {
    calls: AtomicU64,
}

impl Store for Oracle {
    fn take<'a>(
        &'a self,
        charges: &'a [BucketCharge],
        units: u32,
    ) -> BoxFuture<'a, Result<Grant, StoreFailure>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let over = charges[0]
            .key
            .as_bytes()
            .last()
            .is_some_and(|last| !last.is_multiple_of(2));
        let level = match over {
            true => Level {
                remaining: 0,
                retry_after_us: HOUR,
                reset_after_us: 5 * HOUR,
            },
            false => Level {
                remaining: 100,
                retry_after_us: 0,
                reset_after_us: HOUR,
            },
        };
        let units = if over { 0 } else { units };
        Box::pin(ready(Ok(Grant {
            units,
            levels: smallvec![level],
            at_us: clock::monotonic_micros(),
            ..Grant::default()
        })))
    }

    fn adjust<'a>(&'a self, batch: &'a AdjustmentBatch) -> BoxFuture<'a, Vec<AdjustmentResult>> {
        Box::pin(ready(vec![Ok(AdjustmentOutcome::Applied); batch.len()]))
    }

    fn claim<'a>(
        &'a self,
        _: &'a [PermitClaim],
    ) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>> {
        Box::pin(ready(Ok(Vec::new())))
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(1)
    }
}

const ROOM: usize = 50_000;

struct Fixture {
    limiter: Limiter,
    breaker: Arc<Breaker>,
    node: Arc<Node>,
    oracle: Arc<Oracle>,
}

impl Fixture {
    fn new() -> Self {
        let (breaker, oracle) = (Arc::new(Breaker::new()), Arc::new(Oracle::default()));
        let memory = Arc::new(MemoryStore::new(ROOM));
        let node = Arc::new(Node::new(
            memory,
            breaker.clone(),
            Arc::new(FleetShare::expecting(1)),
        ));
        Self {
            limiter: Limiter::for_node(node.clone(), oracle.clone()),
            breaker,
            node,
            oracle,
        }
    }

    /// A flood of clients, a million a minute, and one who is over all the time. How often that one
    /// was asked for.
    async fn flood(&self, limit: TokenBucket) -> u64 {
        // Its last byte is odd.
        let over = [charge("over\u{1}", limit, 1)];
        let mut asked = 0;
        for number in 0..FLOOD {
            let decision = decide(&self.limiter, &[charge(&client(number), limit, 1)]).await;
            assert!(decision.granted || decision.levels[0].retry_after_us > 0);
            if number.is_multiple_of(1_000) {
                tokio::time::advance(Duration::from_millis(60)).await;
                let decision = decide(&self.limiter, &over).await;
                assert!(!decision.granted, "after {number} others");
                asked += u64::from(decision.decided_by == DecidedBy::Redis);
            }
        }
        asked
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_stays_within_its_documented_memory() {
    let heap = Heap::with(TURN.lock().await);
    for (what, limit) in [
        ("exact", shape(100, HOUR, 100)),
        ("leased", shape(100_000, SECOND, 100_000).leased(1)),
    ] {
        let fixture = Fixture::new();
        let asked = fixture.flood(limit).await;
        let (grown, bound) = (heap.grown(), ROOM * PER_BUCKET + TABLES);
        println!(
            "{what}: {grown} bytes, of {bound}; asked again {asked} times of {}",
            FLOOD / 1_000
        );
        assert!(grown <= bound, "{what}: {grown} of {bound}");
        assert!(fixture.oracle.calls.load(Ordering::Relaxed) >= FLOOD / 2);
        assert!(fixture.node.memory.len() <= ROOM);
        // A key displaced from the denial cache is asked for again, and not let through.
        assert!(asked > 0, "so many denials left room for one more");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_without_its_store_stays_within_its_documented_memory_and_limits() {
    let heap = Heap::with(TURN.lock().await);
    // Of the others each passes, so that each is owed for.
    let (fixture, limit) = (Fixture::new(), shape(1_000, HOUR, 1_000));
    for _ in 0..5 {
        fixture
            .breaker
            .failed(ServerId::ONLY, &StoreError::Timeout, 1, String::new);
    }
    let mut over = 0;
    for number in 0..FLOOD {
        assert!(
            decide_locally(&fixture.limiter, &[charge(&client(number), limit, 1)])
                .is_some_and(|decision| decision.granted)
        );
        if number.is_multiple_of(1_000) {
            tokio::time::advance(Duration::from_millis(60)).await;
            over += u32::from(
                decide_locally(&fixture.limiter, &[charge("over", shape(5, HOUR, 5), 1)])
                    .unwrap()
                    .granted,
            );
        }
    }
    let (grown, bound) = (heap.grown(), ROOM * PER_BUCKET + TABLES);
    println!("alone: {grown} bytes, of {bound}");
    assert!(grown <= bound, "{grown} of {bound}");
    assert!(over <= 5, "{over}");
}

#[tokio::test]
async fn a_bucket_in_redis_stays_within_its_documented_memory() {
    // About as full as Redis makes its table of keys: the same share of a table half or twice as
    // large costs the same.
    const BUCKETS: u64 = 25_000;
    let _turn = TURN.lock().await;
    let server = RedisServer::start();
    let (store, limit) = (connected(&server.spec()).await, shape(5, HOUR, 5));
    let before = used_memory(&server);
    for first in (0..BUCKETS).step_by(500) {
        let charges: Vec<[BucketCharge; 1]> = (first..first + 500)
            .map(|number| [charge(&client(number), limit, 1)])
            .collect();
        let taken = join_all(charges.iter().map(|charge| store.take(charge, 1))).await;
        assert!(
            taken
                .iter()
                .all(|grant| grant.as_ref().is_ok_and(|grant| grant.units == 1))
        );
    }
    let each = (used_memory(&server) - before) / BUCKETS;
    let usage = server.command(&["MEMORY", "USAGE", &format!("t:{}", client(7))]);
    println!("{each} bytes each by INFO, {usage} by MEMORY USAGE");
    assert!(each <= PER_BUCKET_IN_REDIS, "{each}");
    assert!(
        usage.trim_start_matches(':').parse::<u64>().unwrap() <= PER_BUCKET_IN_REDIS,
        "{usage}"
    );
}

fn used_memory(server: &RedisServer) -> u64 {
    let info = server.command(&["INFO", "memory"]);
    info.lines()
        .find_map(|line| line.strip_prefix("used_memory:"))
        .unwrap()
        .parse()
        .unwrap()
}

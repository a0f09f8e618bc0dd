//! The demand: clients in this process, each with one question at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use fastrand::Rng;
use parking_lot::Mutex;
use tokio::time::{sleep_until, timeout_at};
use tollgate_limiter::algorithm::token_bucket::TokenBucket;
use tollgate_limiter::clock::{self, Instant};
use tollgate_limiter::decide::check::Checks;
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::store::BucketCharge;

use crate::due::Bucket;
use crate::plan::{Limit, Plan, Scenario};
use crate::tally::{Seen, Tally};

/// A client looks this often whether the run is over while it waits for its turn.
const LOOK: Duration = Duration::from_millis(20);

/// A decision without waiting never lets another task run, so a client does so by itself, after so many.
const TURN: u32 = 16;

/// What all clients of a run share.
pub struct Demand {
    /// What a limiter owes each key.
    owed: Limit,
    pub cost: u64,
    keys: Vec<Key>,
    /// An undelayed bucket of each key.
    due: Vec<Bucket>,
    spread: Spread,
    /// Between two questions of a client; zero: none.
    pub interval: Duration,
    pub asked: AtomicU64,
}

#[derive(Clone, Copy)]
enum Spread {
    Even,
    /// Half of the questions go to one key of a hundred.
    Skewed,
}

/// What a node's clients are told.
pub struct Orders {
    pub shape: ArcSwap<TokenBucket>,
    pub stop: AtomicBool,
}

/// When a client asks next.
struct Pace {
    next: Instant,
    interval: Duration,
}

impl Demand {
    /// Of `plan`, by `clients` clients in all.
    pub fn new(plan: &Plan, scenario: Scenario, clients: u32) -> Self {
        let keys = plan.keys.get();
        let per_second = plan.demand * plan.limit.per_second_f64() * f64::from(keys) / plan.cost.get() as f64;
        let seconds = f64::from(clients) / per_second;
        Self {
            owed: plan.owed(),
            cost: plan.cost.get(),
            keys: (0..keys).map(|number| Key::from(format!("torture:{number}").as_str())).collect(),
            due: (0..keys).map(|_| Bucket::default()).collect(),
            spread: if scenario == Scenario::ManyKeys { Spread::Skewed } else { Spread::Even },
            interval: Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX),
            asked: AtomicU64::new(0),
        }
    }

    pub fn pick(&self, rng: &mut Rng) -> u32 {
        let keys = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
        match self.spread {
            Spread::Skewed if rng.bool() => rng.u32(0..keys.div_ceil(100)),
            _ => rng.u32(0..keys),
        }
    }

    /// Notes that `key` is about to be asked; the tokens that an undelayed bucket lets through for it.
    pub fn ask(&self, key: u32, now_us: u64) -> u64 {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let bucket = self.due.get(key as usize);
        if bucket.is_some_and(|bucket| bucket.take(&self.owed, self.cost, now_us)) { self.cost } else { 0 }
    }

    fn key(&self, key: u32) -> Key {
        self.keys.get(key as usize).cloned().unwrap_or_else(|| Key::from("torture:"))
    }
}

impl Orders {
    pub fn new(shape: TokenBucket) -> Self {
        Self { shape: ArcSwap::from_pointee(shape), stop: AtomicBool::new(false) }
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Pace {
    fn new(interval: Duration, rng: &mut Rng) -> Self {
        // Clients do not start in step.
        let first = interval.min(Duration::from_secs(60)).mul_f64(rng.f64());
        Self { next: clock::now() + first, interval }
    }

    /// Who is late asks at once, but does not make up for what it missed.
    async fn wait(&mut self, orders: &Orders) {
        if self.interval.is_zero() {
            return;
        }
        while clock::now() < self.next && !orders.stopped() {
            sleep_until(self.next.min(clock::now() + LOOK)).await;
        }
        self.next =
            self.next.max(clock::now() - self.interval.min(LOOK)) + self.interval.min(Duration::from_secs(3_600));
    }
}

/// Asks `limiter` until told to stop, and records each answer once it is there: a client that is dropped while it waits was
/// never let through.
pub async fn client(limiter: Limiter, demand: Arc<Demand>, orders: Arc<Orders>, tally: Arc<Mutex<Tally>>, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let mut pace = Pace::new(demand.interval, &mut rng);
    let mut turn = 0;
    loop {
        pace.wait(&orders).await;
        if orders.stopped() {
            return;
        }
        let key = demand.pick(&mut rng);
        let shape = **orders.shape.load();
        let cost = demand.cost;
        let charge = BucketCharge { key: demand.key(key), quota: shape.into(), cost, largest_cost: cost };
        let asked_us = clock::monotonic_micros();
        let due = demand.ask(key, asked_us);
        let verdict = limiter.decide(&Checks::from(charge)).wait().await;
        let now_us = clock::monotonic_micros();
        let admitted = verdict.granted.then_some(cost);
        tally.lock().record(Seen { key, asked_us, now_us, answer: verdict.decided_by.into(), admitted, due });
        turn += 1;
        if turn % TURN == 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// Waits for the clients' answers, but not for ever.
pub async fn finish(clients: Vec<tokio::task::JoinHandle<()>>, patience: Duration) {
    let deadline = clock::now() + patience;
    for client in clients {
        // One that does not end has been told of no admission, and its task ends with the runtime.
        let _ = timeout_at(deadline, client).await;
    }
}

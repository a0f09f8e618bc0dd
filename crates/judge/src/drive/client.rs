//! A client of a limiter in this process: one request at a time, at the pace of the offered load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use fastrand::Rng;
use parking_lot::Mutex;
use tokio::time::{sleep_until, timeout_at};
use tollgate_limiter::algorithm::quota::Quota;
use tollgate_limiter::clock::{self, Instant};
use tollgate_limiter::decide::check::Checks;
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::store::BucketCharge;

use crate::drive::load::OfferedLoad;
use crate::report::observations::{Observation, Observations};

/// While a client waits to send its next request, it checks this often whether the run is over.
const STOP_CHECK: Duration = Duration::from_millis(20);

/// A decision that waits for nothing lets no other task run, so a client yields after so many.
const DECISIONS_PER_YIELD: u32 = 16;

/// Settings of a node's clients that change while they run.
pub struct ClientSettings {
    /// The limit, as the node has it.
    pub limit: ArcSwap<Quota>,
    pub stop: AtomicBool,
}

/// The time of a client's next request.
pub struct ClientPace {
    next: Instant,
    interval: Duration,
}

impl ClientSettings {
    pub fn new(limit: Quota) -> Self {
        Self {
            limit: ArcSwap::from_pointee(limit),
            stop: AtomicBool::new(false),
        }
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl ClientPace {
    pub fn new(interval: Duration, rng: &mut Rng) -> Self {
        // Clients do not start in step.
        let first = interval.min(Duration::from_secs(60)).mul_f64(rng.f64());
        Self {
            next: clock::now() + first,
            interval,
        }
    }

    /// Waits for that time. A client that is late sends at once, and does not make up for the
    /// requests it missed.
    pub async fn wait(&mut self, stop: &AtomicBool) {
        if self.interval.is_zero() {
            return;
        }
        while clock::now() < self.next && !stop.load(Ordering::Relaxed) {
            sleep_until(self.next.min(clock::now() + STOP_CHECK)).await;
        }
        self.next = self.next.max(clock::now() - self.interval.min(STOP_CHECK))
            + self.interval.min(Duration::from_secs(3_600));
    }
}

/// Asks `limiter` until the settings say stop, and records each answer once it is there. A client
/// that is dropped while it waits was admitted to nothing.
pub async fn client(
    limiter: Limiter,
    load: Arc<OfferedLoad>,
    settings: Arc<ClientSettings>,
    observed: Arc<Mutex<Observations>>,
    seed: u64,
) {
    let mut rng = Rng::with_seed(seed);
    let mut pace = ClientPace::new(load.interval, &mut rng);
    let mut decisions = 0;
    loop {
        pace.wait(&settings.stop).await;
        if settings.stopped() {
            return;
        }
        let key = load.pick_key(&mut rng);
        let quota = **settings.limit.load();
        let cost = load.cost;
        let charge = BucketCharge {
            key: load.key(key),
            quota,
            cost,
            largest_cost: cost,
            local_us: u64::MAX,
        };
        let sent_us = clock::monotonic_micros();
        let expected = load.count_request(key, sent_us);
        let decision = limiter.decide(&Checks::from(charge)).wait().await;
        let now_us = clock::monotonic_micros();
        let admitted = decision.granted.then_some(cost);
        let answer = decision.decided_by.into();
        let observation = Observation {
            key,
            sent_us,
            now_us,
            answer,
            admitted,
            expected,
        };
        load.record(observation, &mut observed.lock());
        decisions += 1;
        if decisions % DECISIONS_PER_YIELD == 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// Waits for the answers of all clients, for `patience` at most.
pub async fn finish(clients: Vec<tokio::task::JoinHandle<()>>, patience: Duration) {
    let deadline = clock::now() + patience;
    for client in clients {
        // A client that does not end got no answer, and its task ends with the runtime.
        let _ = timeout_at(deadline, client).await;
    }
}

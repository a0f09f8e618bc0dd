//! Clients of limits whose requests wait for their turn, or are in flight for a while. They go
//! through the limits of a route, as requests of a gateway do.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;
use http::Request;
use parking_lot::Mutex;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, sleep_until};
use tollgate_limiter::clock::{self, Instant};
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::limit::key::Facts;
use tollgate_limiter::request::admission::Admission;
use tollgate_limiter::request::permit::Permit;
use tollgate_limiter::request::rule_set::RuleSet;

use crate::drive::client::{ClientPace, ClientSettings, client};
use crate::drive::load::OfferedLoad;
use crate::judge::in_flight::HeldRequest;
use crate::plan::LoadPattern;
use crate::report::observations::{AnswerKind, Observation, Observations};

/// Between two bursts, from the first request of one to that of the next.
const EVERY: Duration = Duration::from_millis(400);

/// The requests of a burst are in flight until so long after its beginning, and for a moment at
/// least.
const IN_FLIGHT: Duration = Duration::from_millis(200);
const LEAST: Duration = Duration::from_millis(20);

/// After a denial, a client without a pace waits.
const AFTER_DENIAL: Duration = Duration::from_millis(5);

/// The limits of a node, and the worker's limiter that decides on them, with the load that its
/// clients share.
#[derive(Clone)]
pub struct RouteLimits {
    pub limiter: Limiter,
    pub rules: Arc<RuleSet>,
    pub load: Arc<OfferedLoad>,
    pub settings: Arc<ClientSettings>,
    pub observed: Arc<Mutex<Observations>>,
}

/// The clients of a worker.
pub struct WorkerClients {
    /// The number of the worker, and of all of the fleet.
    pub place: (u64, u64),
    /// The tokens or permits of the limit.
    pub most: u64,
    pub count: u32,
    pub seed: u64,
}

impl WorkerClients {
    /// Starts them, each with a task of its own.
    pub fn start(&self, limits: &RouteLimits) -> Vec<JoinHandle<()>> {
        let mut rng = Rng::with_seed(self.seed);
        let seeds = (0..self.count).map(|_| rng.u64(..));
        match limits.load.pattern {
            LoadPattern::Paced | LoadPattern::FreshKeys { .. } => seeds
                .map(|seed| {
                    let RouteLimits {
                        limiter,
                        load,
                        settings,
                        observed,
                        ..
                    } = limits.clone();
                    tokio::spawn(client(limiter, load, settings, observed, seed))
                })
                .collect(),
            LoadPattern::Queued { hold, .. } => seeds
                .map(|seed| tokio::spawn(limits.clone().ask_and_hold(hold, seed)))
                .collect(),
            LoadPattern::Bursts { .. } => {
                let sizes = [self.most / 2, self.most, self.most * 2];
                vec![tokio::spawn(limits.clone().send_bursts(
                    sizes,
                    self.place.0,
                    self.place.1,
                    self.most,
                ))]
            }
        }
    }
}

impl RouteLimits {
    /// Asks again and again, waits for each answer, and holds what was admitted for `hold`.
    async fn ask_and_hold(self, hold: Duration, seed: u64) {
        let mut rng = Rng::with_seed(seed);
        let mut pace = ClientPace::new(self.load.interval, &mut rng);
        loop {
            pace.wait(&self.settings.stop).await;
            if self.settings.stopped() {
                return;
            }
            let key = self.load.pick_key(&mut rng);
            let sent_us = clock::monotonic_micros();
            let expected = self.load.count_request(key, sent_us);
            match self.ask(key, sent_us, expected).await {
                Some(permit) => self.hold(key, permit, clock::now() + hold).await,
                None => sleep(AFTER_DENIAL).await,
            }
        }
    }

    /// Sends this worker's part of each burst, `worker` of `workers`, for as long as the run lasts.
    /// `sizes` take turns.
    async fn send_bursts(self, sizes: [u64; 3], worker: u64, workers: u64, most: u64) {
        let begun = self.load.begin();
        let mut requests = JoinSet::new();
        for (number, size) in sizes.into_iter().cycle().enumerate() {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            let at = begun + EVERY * number.saturating_add(1);
            while clock::now() < at && !self.settings.stopped() {
                sleep_until(at.min(clock::now() + LEAST)).await;
            }
            if self.settings.stopped() {
                break;
            }
            for request in (worker..size).step_by(usize::try_from(workers).unwrap_or(usize::MAX)) {
                let limits = self.clone();
                let key = self.load.burst_key(number);
                // A perfect limiter admits the first so many.
                requests.spawn(limits.ask_in_burst(key, at + IN_FLIGHT, u64::from(request < most)));
            }
        }
        requests.join_all().await;
    }

    async fn ask_in_burst(self, key: u32, until: Instant, expected: u64) {
        let sent_us = clock::monotonic_micros();
        self.load.asked.fetch_add(1, Ordering::Relaxed);
        if let Some(permit) = self.ask(key, sent_us, expected).await {
            self.hold(key, permit, until.max(clock::now() + LEAST))
                .await;
        }
    }

    async fn ask(&self, key: u32, sent_us: u64, expected: u64) -> Option<Permit> {
        let mut request = Request::new(());
        request.extensions_mut().insert(key);
        let admission = self
            .rules
            .admit(&self.limiter, &Facts::from_request(&request));
        let judgement = match admission {
            Admission::Judged(judgement) => judgement,
            Admission::Waiting(judging) => judging.await,
        };
        let permit = if judgement.denied.is_none() {
            Some(judgement.reserved.hold(&self.limiter))
        } else {
            None
        };
        let now_us = clock::monotonic_micros();
        let answer = if permit.is_some() {
            AnswerKind::Admitted
        } else {
            AnswerKind::Denied
        };
        let admitted = permit.as_ref().map(|_| self.load.cost);
        self.observed.lock().record(Observation {
            key,
            sent_us,
            now_us,
            answer,
            admitted,
            expected,
        });
        permit
    }

    async fn hold(&self, key: u32, permit: Permit, until: Instant) {
        let from_us = clock::monotonic_micros();
        sleep_until(until).await;
        let to_us = clock::monotonic_micros();
        drop(permit);
        self.observed.lock().held.push(HeldRequest {
            key,
            cost: 1,
            from_us,
            to_us,
        });
    }
}

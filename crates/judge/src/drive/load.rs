//! The load that all clients of a run offer together: which keys they ask for, and how fast.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use tollgate_limiter::clock::{self, Instant};
use tollgate_limiter::limit::key::Key;

use crate::drive::reference::Reference;
use crate::judge::bound::AdmissionBound;
use crate::plan::{LoadPattern, REQUESTS_PER_KEY, RunPlan};
use crate::report::observations::{Observation, Observations};
use crate::scenario::Scenario;

/// Fresh keys that are still asked for: so many, the latest.
const NEW_KEYS: u64 = 64;

/// The load of a run, shared by its clients.
pub struct OfferedLoad {
    /// Tokens per request.
    pub cost: u64,
    keys: Vec<Key>,
    /// Keys that an outage is to spare, by their numbers; empty: none is looked at.
    pub spared: Vec<bool>,
    /// Says what a correct limiter admits of each key.
    reference: Reference,
    spread: KeySpread,
    /// Between two requests of a client; zero: none.
    pub interval: Duration,
    /// Requests sent so far.
    pub asked: AtomicU64,
    /// Keys picked so far, where they are fresh.
    picked: AtomicU64,
    pub pattern: LoadPattern,
    begun: OnceLock<Instant>,
}

#[derive(Clone, Copy)]
enum KeySpread {
    Even,
    /// Half of the requests go to one key of a hundred.
    Skewed,
    /// Keys that nobody has asked for, and the latest of them again.
    Fresh,
}

impl OfferedLoad {
    /// The load of `plan`, for `clients` clients in all. `bound` is what its limit promises.
    pub fn new(plan: &RunPlan, scenario: Scenario, clients: u32, bound: &AdmissionBound) -> Self {
        let keys = plan.keys.get();
        let per_second =
            plan.demand * plan.limit.per_second_f64() * f64::from(keys) / plan.cost.get() as f64;
        let seconds = f64::from(clients) / per_second;
        let interval = match plan.pattern {
            LoadPattern::FreshKeys { interval } => interval,
            _ => Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX),
        };
        Self {
            cost: plan.cost.get(),
            keys: (0..keys)
                .map(|number| Key::from(key_name(number).as_str()))
                .collect(),
            spared: Vec::new(),
            reference: Reference::new(plan, bound),
            spread: if plan.has_fresh_keys() {
                KeySpread::Fresh
            } else if scenario == Scenario::ManyKeys {
                KeySpread::Skewed
            } else {
                KeySpread::Even
            },
            interval,
            asked: AtomicU64::new(0),
            picked: AtomicU64::new(0),
            pattern: plan.pattern,
            begun: OnceLock::new(),
        }
    }

    /// The number of the key that the next request is for.
    pub fn pick_key(&self, rng: &mut Rng) -> u32 {
        let keys = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
        match self.spread {
            KeySpread::Skewed if rng.bool() => rng.u32(0..keys.div_ceil(100)),
            KeySpread::Even | KeySpread::Skewed => rng.u32(0..keys),
            KeySpread::Fresh => {
                let number = self.picked.fetch_add(1, Ordering::Relaxed);
                let newest = number / REQUESTS_PER_KEY;
                let key = if number.is_multiple_of(REQUESTS_PER_KEY) {
                    newest
                } else {
                    rng.u64(newest.saturating_sub(NEW_KEYS)..=newest)
                };
                u32::try_from(key).unwrap_or(u32::MAX).min(keys - 1)
            }
        }
    }

    /// Counts a request for `key` that is sent at `now_us`. Returns the tokens that the reference
    /// admits for it.
    pub fn count_request(&self, key: u32, now_us: u64) -> u64 {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.reference.take(key, self.cost, now_us) {
            self.cost
        } else {
            0
        }
    }

    /// The time at which the run began, for all: now, for the first that asks.
    pub fn begin(&self) -> Instant {
        *self.begun.get_or_init(clock::now)
    }

    /// The number of the key that a burst is for.
    pub fn burst_key(&self, number: u32) -> u32 {
        if self.pattern == (LoadPattern::Bursts { cold: true }) {
            number
        } else {
            0
        }
    }

    /// Records the answer to a request of this load.
    pub fn record(&self, observation: Observation, observed: &mut Observations) {
        observed.record(observation);
        let Observation { key, answer, .. } = observation;
        if self.spared.get(key as usize) == Some(&true) {
            *observed.of_spared.entry(answer).or_default() += 1;
        }
        if matches!(self.spread, KeySpread::Fresh) {
            observed.of_fresh.push(observation);
        }
    }

    /// The key with this number.
    pub fn key(&self, number: u32) -> Key {
        self.keys
            .get(number as usize)
            .cloned()
            .unwrap_or_else(|| Key::from("torture:"))
    }
}

/// The name of the key with this number.
pub fn key_name(number: u32) -> String {
    format!("torture:{number}")
}

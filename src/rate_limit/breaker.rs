//! Whether the shared store may be asked. One per node, shared by its workers.
//!
//! Guarantees that after a few failures in a row no request waits for the store until it is proven to decide again, by the
//! same calls that requests make, over the same connections; and that each change is logged and counted once, by the one
//! who caused it. Refuses to know what the store is, and what is decided instead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use metrics::{Counter, Gauge, counter, gauge};
use tokio::sync::Notify;

use super::bucket::Shape;
use super::key::Key;
use super::node::Node;
use super::policy::OnOutage;
use crate::clock;
use crate::store::{Ask, Store, StoreError};

/// Requests in a row that failed and open the breaker. Each of them waited for the store's time limit.
const TOLERATED_FAILURES: u32 = 5;

/// Pause between two rounds of probes: how late a recovery may be noticed, at ten calls per second and connection.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);

/// The same while a worker starts and nobody waits yet but its listeners.
const FIRST_INTERVAL: Duration = Duration::from_millis(5);

/// Few enough that the calls of requests don't wait behind them.
const DEBTS_OF_A_CALL: usize = 64;

/// `!` starts no limit's name, so no limit's bucket is probed away.
const PROBE_KEY: &str = "!probe";

/// Closed: the store is asked. Open: it is not, and a prober finds out when it may be again.
pub struct Breaker {
    open: AtomicBool,
    /// In a row.
    failures: AtomicU32,
    opened: Notify,
    probing: AtomicBool,
    store_up: Gauge,
    to_open: Counter,
    to_closed: Counter,
}

/// Gives the prober's place free again, also when its task is dropped.
struct Turn<'a>(&'a AtomicBool);

impl Default for Breaker {
    fn default() -> Self {
        Self::new()
    }
}

impl Breaker {
    /// A closed breaker. Metrics go to the recorder that is installed by now.
    pub fn new() -> Self {
        let breaker = Self {
            open: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            opened: Notify::new(),
            probing: AtomicBool::new(false),
            store_up: gauge!("tollgate_store_up"),
            to_open: counter!("tollgate_store_breaker_transitions_total", "to" => "open"),
            to_closed: counter!("tollgate_store_breaker_transitions_total", "to" => "closed"),
        };
        breaker.store_up.set(1.0);
        breaker
    }

    /// No request may ask the store.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// The store decided.
    pub fn succeeded(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// The store could not decide, and that many requests waited for it in one call.
    pub fn failed(&self, why: &StoreError, requests: u32) {
        let failures = self.failures.fetch_add(requests, Ordering::Relaxed).saturating_add(requests);
        if failures >= TOLERATED_FAILURES {
            self.trip(why);
        }
    }

    fn trip(&self, why: &StoreError) {
        if self.flip(false, true) {
            self.store_up.set(0.0);
            self.to_open.increment(1);
            tracing::warn!(error = %why, "the store is away: limits are enforced by this node alone");
            self.opened.notify_one();
        }
    }

    fn close(&self) {
        self.failures.store(0, Ordering::Relaxed);
        if self.flip(true, false) {
            self.store_up.set(1.0);
            self.to_closed.increment(1);
            tracing::info!("the store is back: limits hold across the fleet again");
        }
    }

    /// Whether this call made the change.
    fn flip(&self, from: bool, to: bool) -> bool {
        self.open.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    async fn until_open(&self) {
        while !self.is_open() {
            self.opened.notified().await;
        }
    }

    fn claim_prober(&self) -> Option<Turn<'_>> {
        (!self.probing.swap(true, Ordering::AcqRel)).then_some(Turn(&self.probing))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Closes the breaker whenever every one of `stores`, the workers' own, decides again, and settles before that what the node
/// admitted meanwhile; settles what single failed calls left, too. Runs until dropped; a second one on the same node ends
/// at once.
pub async fn run_control(node: Arc<Node>, stores: Vec<Arc<dyn Store>>) {
    let breaker = &node.breaker;
    let (Some(_turn), Some(asks)) = (breaker.claim_prober(), probe()) else { return };
    loop {
        tokio::select! {
            () = breaker.until_open() => {}
            () = node.debts.until_owed() => {}
        }
        while breaker.is_open() {
            let answers = join_all(stores.iter().map(|store| store.take(&asks, 1))).await;
            // They tell an operator what is wrong by now: requests no longer do.
            answers.iter().for_each(|answer| node.outcomes.count(answer));
            if answers.iter().all(Result::is_ok) {
                settle(&node, &stores).await;
                breaker.close();
            } else {
                tokio::time::sleep(PROBE_INTERVAL).await;
            }
        }
        settle(&node, &stores).await;
        tokio::time::sleep(PROBE_INTERVAL).await;
    }
}

/// Charges to the store what the node owes, a part after the other. What fails is owed still.
async fn settle(node: &Node, stores: &[Arc<dyn Store>]) {
    let Some(store) = stores.first() else { return };
    let mut away = false;
    for part in node.debts.collect(clock::monotonic_micros(), DEBTS_OF_A_CALL) {
        away = away || store.adjust(&part).await.is_err();
        if away {
            let now_us = clock::monotonic_micros();
            node.debts.restore(&part, |quota| node.memory.moment(quota, now_us));
        }
    }
}

/// Waits until `store` decides for the first time, so that no request is spent on connecting. When it has not by the end
/// of `patience`, the breaker opens: a store that is away at start is an outage like any other.
pub async fn first_contact(breaker: &Breaker, store: &dyn Store, patience: Duration) {
    let Some(asks) = probe() else { return };
    let deadline = clock::now() + patience;
    while let Err(error) = store.take(&asks, 1).await {
        if clock::now() >= deadline {
            return breaker.trip(&error);
        }
        tokio::time::sleep(FIRST_INTERVAL).await;
    }
}

/// A request on a bucket of its own, wide enough to be granted, so that it proves writing too.
fn probe() -> Option<[Ask; 1]> {
    let plenty = std::num::NonZeroU64::new(1_000_000)?;
    let shape = Shape::new(plenty, plenty, plenty).ok()?;
    Some([Ask {
        key: Key::from(PROBE_KEY),
        quota: shape.into(),
        cost: 1,
        largest_cost: 1,
        on_outage: OnOutage::Local,
        settled_later: false,
    }])
}

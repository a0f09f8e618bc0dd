//! The circuit breaker of the shared store. One per node, shared by its workers.
//!
//! Guarantees that after a few failures in a row no request waits for the store until it is proven to decide again, by
//! the same calls that requests make, over the same connections; and that each change is logged and counted once, by
//! the caller that caused it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use metrics::{Counter, Gauge, counter, gauge};
use tokio::sync::Notify;

use crate::store::StoreError;

/// Requests in a row that failed and open the breaker. Each of them waited for the store's time limit.
const TOLERATED_FAILURES: u32 = 5;

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

/// The turn of the one prober. It is free again when this is dropped, also with its task.
pub(crate) struct ProberTurn<'a>(&'a AtomicBool);

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

    /// Opens. Says whether this call did.
    pub(crate) fn trip(&self, why: &StoreError) -> bool {
        let opened = self.flip(false, true);
        if opened {
            self.store_up.set(0.0);
            self.to_open.increment(1);
            tracing::warn!(error = %why, "the store is away: limits are enforced by this node alone");
            self.opened.notify_one();
        }
        opened
    }

    pub(crate) fn close(&self) {
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

    pub(crate) async fn until_open(&self) {
        while !self.is_open() {
            self.opened.notified().await;
        }
    }

    pub(crate) fn claim_prober(&self) -> Option<ProberTurn<'_>> {
        (!self.probing.swap(true, Ordering::AcqRel)).then_some(ProberTurn(&self.probing))
    }
}

impl Drop for ProberTurn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

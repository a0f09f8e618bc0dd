//! The circuit breaker of the shared store: a circuit for each of its servers, shared by the
//! workers of a node.
//!
//! Guarantees that after a few failures in a row no request waits for a server until it is proven
//! to decide again, by the same calls that requests make, over the same connections; that the other
//! servers go on deciding meanwhile; and that each change is logged and counted once, by the caller
//! that caused it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use metrics::{Counter, Gauge, counter, gauge};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock;
use crate::store::{ServerId, StoreError};

/// Requests in a row that failed and open a circuit. Each of them waited for the store's time
/// limit.
const TOLERATED_FAILURES: u32 = 5;

/// A server is asked as long as its circuit is closed. While it is open, a prober finds out when it
/// may be asked again.
pub struct Breaker {
    /// Circuits that are open or had failures since the last success. Few, and none nearly always.
    circuits: Mutex<Vec<Circuit>>,
    /// The length of `circuits`: while it is 0, no lock is taken.
    troubled: AtomicU32,
    open: AtomicU32,
    opened: Notify,
    probing: AtomicBool,
    store_up: Gauge,
    servers_away: Gauge,
    to_open: Counter,
    to_closed: Counter,
}

struct Circuit {
    server: ServerId,
    /// For people. Empty: the store's only server.
    name: String,
    /// In a row.
    failures: u32,
    /// Since when it is open, in microseconds of the monotonic clock.
    open_since_us: Option<u64>,
}

impl Circuit {
    fn is_open(&self) -> bool {
        self.open_since_us.is_some()
    }
}

/// The turn of the one prober. It is free again when this is dropped, also with its task.
pub(crate) struct ProberTurn<'a>(&'a AtomicBool);

impl Default for Breaker {
    fn default() -> Self {
        Self::new()
    }
}

impl Breaker {
    /// All circuits closed. Metrics go to the recorder that is installed by now.
    pub fn new() -> Self {
        let breaker = Self {
            circuits: Mutex::default(),
            troubled: AtomicU32::new(0),
            open: AtomicU32::new(0),
            opened: Notify::new(),
            probing: AtomicBool::new(false),
            store_up: gauge!("tollgate_store_up"),
            servers_away: gauge!("tollgate_store_servers_away"),
            to_open: counter!("tollgate_store_breaker_transitions_total", "to" => "open"),
            to_closed: counter!("tollgate_store_breaker_transitions_total", "to" => "closed"),
        };
        breaker.show(0);
        breaker
    }

    /// Whether some server may not be asked.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire) > 0
    }

    /// Whether no request may ask `server`.
    pub fn is_open_for(&self, server: ServerId) -> bool {
        self.is_open()
            && self
                .circuits
                .lock()
                .iter()
                .any(|circuit| circuit.server == server && circuit.is_open())
    }

    /// For how long no request may have asked `server` by now.
    pub fn open_for(&self, server: ServerId) -> Duration {
        let circuits = self.circuits.lock();
        let since_us = circuits
            .iter()
            .find(|circuit| circuit.server == server)
            .and_then(|open| open.open_since_us);
        since_us.map_or(Duration::ZERO, |since_us| {
            Duration::from_micros(clock::monotonic_micros().saturating_sub(since_us))
        })
    }

    /// The servers that may not be asked.
    pub fn open_servers(&self) -> Vec<ServerId> {
        self.circuits
            .lock()
            .iter()
            .filter(|circuit| circuit.is_open())
            .map(|circuit| circuit.server)
            .collect()
    }

    /// Whether a success is worth telling: some server had failures since its last one.
    #[inline]
    pub fn has_trouble(&self) -> bool {
        self.troubled.load(Ordering::Relaxed) > 0
    }

    /// `server` decided.
    pub fn succeeded(&self, server: ServerId) {
        let mut circuits = self.circuits.lock();
        // An open circuit is closed by the prober alone.
        circuits.retain(|circuit| circuit.is_open() || circuit.server != server);
        self.count(&circuits);
    }

    /// A server could not decide, and that many requests waited for it in one call. `name` is the
    /// server's, for people. Says whether this opened the circuit.
    pub fn failed(
        &self,
        server: ServerId,
        why: &StoreError,
        requests: u32,
        name: impl FnOnce() -> String,
    ) -> bool {
        let mut circuits = self.circuits.lock();
        let place = circuits
            .iter()
            .position(|circuit| circuit.server == server)
            .unwrap_or_else(|| {
                circuits.push(Circuit {
                    server,
                    name: name(),
                    failures: 0,
                    open_since_us: None,
                });
                circuits.len() - 1
            });
        let circuit = &mut circuits[place];
        circuit.failures = circuit.failures.saturating_add(requests);
        let opened = !circuit.is_open() && circuit.failures >= TOLERATED_FAILURES;
        if opened {
            circuit.open_since_us = Some(clock::monotonic_micros());
            self.to_open.increment(1);
            match circuit.name.as_str() {
                "" => {
                    tracing::warn!(error = %why, "the store is away: limits are enforced by this node alone")
                }
                server => tracing::warn!(
                    server,
                    error = %why,
                    "a server of the store is away: the limits of its keys are enforced by this node alone"
                ),
            }
        }
        self.count(&circuits);
        if opened {
            self.opened.notify_one();
        }
        opened
    }

    /// Opens the circuit of `server`. Says whether this call did.
    pub(crate) fn trip(
        &self,
        server: ServerId,
        why: &StoreError,
        name: impl FnOnce() -> String,
    ) -> bool {
        self.failed(server, why, TOLERATED_FAILURES, name)
    }

    /// `server` may be asked again.
    pub(crate) fn close(&self, server: ServerId) {
        let mut circuits = self.circuits.lock();
        let Some(place) = circuits.iter().position(|circuit| circuit.server == server) else {
            return;
        };
        let circuit = circuits.swap_remove(place);
        if circuit.is_open() {
            self.to_closed.increment(1);
            match circuit.name.as_str() {
                "" => tracing::info!("the store is back: limits hold across the fleet again"),
                server => tracing::info!(
                    server,
                    "a server of the store is back: the limits of its keys hold again"
                ),
            }
        }
        self.count(&circuits);
    }

    /// Counts the circuits under their lock, so that the counts never disagree with them.
    fn count(&self, circuits: &[Circuit]) {
        let open = circuits.iter().filter(|circuit| circuit.is_open()).count();
        let open = u32::try_from(open).unwrap_or(u32::MAX);
        let troubled = u32::try_from(circuits.len()).unwrap_or(u32::MAX);
        self.troubled.store(troubled, Ordering::Relaxed);
        if self.open.swap(open, Ordering::AcqRel) != open {
            self.show(open);
        }
    }

    fn show(&self, open: u32) {
        self.store_up.set(if open == 0 { 1.0 } else { 0.0 });
        self.servers_away.set(f64::from(open));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(breaker: &Breaker, server: ServerId, requests: u32) {
        breaker.failed(server, &StoreError::Timeout, requests, String::new);
    }

    #[test]
    fn a_circuit_opens_after_failures_in_a_row_and_no_other_with_it() {
        let breaker = Breaker::new();
        let one = ServerId::from_name("one");
        let two = ServerId::from_name("two");
        fail(&breaker, one, TOLERATED_FAILURES - 1);
        breaker.succeeded(one);
        fail(&breaker, one, TOLERATED_FAILURES - 1);
        fail(&breaker, two, TOLERATED_FAILURES - 1);
        assert!(!breaker.is_open());
        fail(&breaker, one, 1);
        assert!(breaker.is_open_for(one) && !breaker.is_open_for(two));
        assert_eq!(breaker.open_servers(), [one]);
    }

    #[test]
    fn only_the_prober_closes_a_circuit() {
        let breaker = Breaker::new();
        let one = ServerId::from_name("one");
        breaker.trip(one, &StoreError::Io, String::new);
        breaker.succeeded(one);
        assert!(breaker.is_open_for(one));
        breaker.close(one);
        assert!(!breaker.is_open());
        fail(&breaker, one, TOLERATED_FAILURES - 1);
        assert!(!breaker.is_open(), "failures are counted anew");
    }
}

//! The state that the streams of an HTTP/2 connection share with its task.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use h2::{Reason, SendStream};
use parking_lot::Mutex;

use super::client_socket::Traffic;
use super::frame_parser::Violation;
use crate::connection_info::ConnectionInfo;
use crate::timeouts::client_timeouts;
use tollgate_limiter::clock::{self, Instant};
use tollgate_spec::listener::ListenerSpec;
use tollgate_wire::http::deadline::ClientTimeouts;
use tollgate_wire::http::min_rate::MinBodyRates;

/// Requests that a client may reset right after it made them, at once. A browser that leaves a page
/// resets all of its open requests.
const EARLY_RESETS: u32 = 200;
/// Time after which one early reset is forgotten: nghttp2 allows 33 a second, too.
const FORGET_RESET: Duration = Duration::from_millis(30);
/// Longest life of a request whose reset is early: Envoy calls a reset premature within this time.
const EARLY: Duration = Duration::from_secs(1);

/// The state that a connection's task and its streams share.
pub struct H2Session<H> {
    pub handler: H,
    pub connection: Arc<ConnectionInfo>,
    pub spec: Arc<ListenerSpec>,
    pub timeouts: ClientTimeouts,
    pub rates: MinBodyRates,
    pub traffic: Arc<Traffic>,
    /// Wakes the connection's task.
    pub waker: AtomicWaker,
    resets: Mutex<EarlyResets>,
    /// Streams whose response broke off, to be reset once the part that came was sent.
    broken: Mutex<Vec<SendStream<Bytes>>>,
    has_broken: AtomicBool,
}

/// The resets of requests that have only begun.
#[derive(Debug)]
struct EarlyResets {
    count: u32,
    /// The time up to which resets were forgotten.
    since: Instant,
}

impl<H> H2Session<H> {
    pub fn new(
        handler: H,
        connection: Arc<ConnectionInfo>,
        spec: Arc<ListenerSpec>,
        rates: MinBodyRates,
        traffic: Arc<Traffic>,
    ) -> Self {
        Self {
            handler,
            connection,
            timeouts: client_timeouts(&spec),
            rates,
            spec,
            traffic,
            waker: AtomicWaker::new(),
            resets: Mutex::new(EarlyResets {
                count: 0,
                since: clock::now(),
            }),
            broken: Mutex::new(Vec::new()),
            has_broken: AtomicBool::new(false),
        }
    }

    /// Records that the client has reset a request that arrived at `arrived`, before it had its
    /// whole answer.
    pub fn record_reset(&self, arrived: Instant) {
        if self.resets.lock().record(arrived, clock::now()) {
            self.traffic.violate(Violation::Resets);
            self.waker.wake();
        }
    }

    /// Resets `stream` once the connection has sent its part of the response.
    pub fn break_off(&self, stream: SendStream<Bytes>) {
        self.broken.lock().push(stream);
        self.has_broken.store(true, Relaxed);
        self.waker.wake();
    }

    /// Resets the streams whose response broke off: their content is written by now. Returns
    /// whether there were any.
    pub fn reset_broken(&self) -> bool {
        if !self.has_broken.swap(false, Relaxed) {
            return false;
        }
        for mut stream in std::mem::take(&mut *self.broken.lock()) {
            stream.send_reset(Reason::INTERNAL_ERROR);
        }
        true
    }
}

impl EarlyResets {
    /// Records a reset at `now`. Returns whether there are too many.
    fn record(&mut self, arrived: Instant, now: Instant) -> bool {
        if now.saturating_duration_since(arrived) > EARLY {
            return false;
        }
        let passed =
            now.saturating_duration_since(self.since).as_millis() / FORGET_RESET.as_millis();
        let forgotten = u32::try_from(passed).unwrap_or(u32::MAX);
        if forgotten > 0 {
            self.count = self.count.saturating_sub(forgotten);
            self.since = now;
        }
        self.count += 1;
        self.count > EARLY_RESETS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn early_resets_are_forgotten_over_time_and_late_ones_are_free() {
        let start = clock::now();
        let mut resets = EarlyResets {
            count: 0,
            since: start,
        };
        for _ in 0..EARLY_RESETS {
            assert!(!resets.record(start, start));
        }
        let later = start + FORGET_RESET * 3;
        for _ in 0..3 {
            assert!(!resets.record(later, later));
        }
        assert!(resets.record(later, later));
        assert!(!resets.record(start, later + EARLY));
    }
}

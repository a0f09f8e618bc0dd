//! The activity of client connections: the connection that is idle for longest can make room for
//! another, those that never asked for anything before all others.
//!
//! Guarantees that a connection with a request under way is never asked to close, and that a
//! request costs two stores.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;

use tollgate_limiter::clock::{self, Instant};

/// Least idle time before a connection is asked to close: its client may be sending the next
/// request.
const LEAST_IDLE: Duration = Duration::from_millis(100);

/// Candidates of one search, and how long they serve. A search looks at every connection: its
/// result must serve for many.
const CANDIDATES: usize = 64;
const LIFETIME: Duration = Duration::from_millis(100);

/// The value of `idle_since` while a request is under way.
const ACTIVE: u64 = u64::MAX;

/// The bit of `idle_since` that tells connections which have had a request from those that have had
/// none. It is above all times, and so the others come first.
const SERVED: u64 = 1 << 62;

/// The activity of a client's connection.
#[derive(Debug)]
pub struct ClientActivity {
    /// The listener that accepted the connection.
    listener: usize,
    /// The time from which `idle_since` counts.
    epoch: Instant,
    /// Microseconds after `epoch`, with [`SERVED`] or without, or [`ACTIVE`].
    idle_since: AtomicU64,
    must_close: AtomicBool,
    waker: OnceLock<Waker>,
}

/// The client connections of the process.
#[derive(Debug)]
pub struct ClientConnections {
    epoch: Instant,
    open: Mutex<OpenClients>,
    candidates: Mutex<Candidates>,
}

#[derive(Debug, Default)]
struct OpenClients {
    next: u64,
    by_number: HashMap<u64, Arc<ClientActivity>>,
}

/// The connections that were idle for longest at the latest search, the longest first.
#[derive(Debug, Default)]
struct Candidates {
    listener: Option<usize>,
    /// Microseconds after the epoch.
    searched_at: u64,
    queue: VecDeque<(u64, Arc<ClientActivity>)>,
}

impl ClientActivity {
    /// Wakes the task of `waker` when the connection is to close. A connection has one task to its
    /// end.
    pub fn wake(&self, waker: &Waker) {
        let _ = self.waker.set(waker.clone());
    }

    /// A request is under way, or something else that must not be cut.
    pub fn set_active(&self) {
        self.idle_since.store(ACTIVE, Relaxed);
    }

    /// No request is under way since `now`, and there was one. A connection that was asked to close
    /// is not asked again.
    pub fn set_idle(&self, now: Instant) {
        self.set_idle_since(SERVED | self.micros_until(now));
    }

    /// No request has come by `now`.
    pub fn set_unused(&self, now: Instant) {
        self.set_idle_since(self.micros_until(now));
    }

    fn set_idle_since(&self, since: u64) {
        if !self.must_close() {
            self.idle_since.store(since, Relaxed);
        }
    }

    fn micros_until(&self, now: Instant) -> u64 {
        micros(now.saturating_duration_since(self.epoch))
    }

    /// The result of `opening`. `None`: the connection is to close, since its client is silent and
    /// keeps another one out.
    pub async fn unless_closing<T>(&self, opening: impl Future<Output = T>) -> Option<T> {
        let mut opening = pin!(opening);
        poll_fn(|cx| {
            self.wake(cx.waker());
            match opening.as_mut().poll(cx) {
                Poll::Ready(opened) => Poll::Ready(Some(opened)),
                // A connection that is asked to close is idle: nothing had begun.
                Poll::Pending if self.must_close() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Whether the connection is to close, after the request that may be under way.
    pub fn must_close(&self) -> bool {
        self.must_close.load(Relaxed)
    }
}

impl Default for ClientConnections {
    fn default() -> Self {
        Self {
            epoch: clock::now(),
            open: Mutex::default(),
            candidates: Mutex::default(),
        }
    }
}

impl ClientConnections {
    /// Adds a connection of `listener`, which waits for its first byte. Returns the number by which
    /// [`remove`](Self::remove) removes it.
    pub fn add(&self, listener: usize) -> (u64, Arc<ClientActivity>) {
        let activity = Arc::new(ClientActivity {
            listener,
            epoch: self.epoch,
            idle_since: AtomicU64::new(micros(clock::now().saturating_duration_since(self.epoch))),
            must_close: AtomicBool::new(false),
            waker: OnceLock::new(),
        });
        let mut open = self.open.lock();
        open.next += 1;
        let number = open.next;
        open.by_number.insert(number, Arc::clone(&activity));
        (number, activity)
    }

    /// Removes a connection that has closed.
    pub fn remove(&self, number: u64) {
        self.open.lock().by_number.remove(&number);
    }

    /// Asks the connection that is idle for longest to close, of all or of one `listener`. False:
    /// none is idle.
    pub fn close_longest_idle(&self, listener: Option<usize>) -> bool {
        let now = micros(clock::now().saturating_duration_since(self.epoch));
        let Some(latest) = now.checked_sub(micros(LEAST_IDLE)) else {
            return false;
        };
        let mut candidates = self.candidates.lock();
        let are_old = candidates.searched_at + micros(LIFETIME) <= now;
        for searched in [false, true] {
            if searched || are_old || candidates.listener != listener {
                *candidates = Candidates {
                    listener,
                    searched_at: now,
                    queue: self.search(listener, latest),
                };
            }
            while let Some((idle_since, activity)) = candidates.queue.pop_front() {
                let claimed = activity
                    .idle_since
                    .compare_exchange(idle_since, ACTIVE, Relaxed, Relaxed)
                    .is_ok();
                // A connection that has closed, and is no longer in the table, makes no room.
                if claimed && Arc::strong_count(&activity) > 1 {
                    activity.must_close.store(true, Relaxed);
                    if let Some(waker) = activity.waker.get() {
                        waker.wake_by_ref();
                    }
                    return true;
                }
            }
        }
        false
    }

    fn search(&self, listener: Option<usize>, latest: u64) -> VecDeque<(u64, Arc<ClientActivity>)> {
        let open = self.open.lock();
        let mut idle = Vec::new();
        let mut has_unused = false;
        for activity in open.by_number.values() {
            if listener.is_some_and(|only| only != activity.listener) {
                continue;
            }
            let idle_since = activity.idle_since.load(Relaxed);
            has_unused |= idle_since & SERVED == 0;
            if idle_since != ACTIVE && idle_since & !SERVED <= latest {
                idle.push((idle_since, activity));
            }
        }
        // Clients that have just come are waited for, so that they do not push out the others.
        if has_unused {
            idle.retain(|(idle_since, _)| idle_since & SERVED == 0);
        }
        if idle.len() > CANDIDATES {
            idle.select_nth_unstable_by_key(CANDIDATES, |(idle_since, _)| *idle_since);
            idle.truncate(CANDIDATES);
        }
        idle.sort_unstable_by_key(|(idle_since, _)| *idle_since);
        idle.into_iter()
            .map(|(idle_since, activity)| (idle_since, Arc::clone(activity)))
            .collect()
    }
}

fn micros(duration: Duration) -> u64 {
    duration.as_secs() * 1_000_000 + u64::from(duration.subsec_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closing(all: &[(u64, Arc<ClientActivity>)]) -> Vec<bool> {
        all.iter()
            .map(|(_, activity)| activity.must_close())
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_idle_for_longest_closes_first_and_active_ones_never() {
        let connections = ClientConnections::default();
        let mut all = Vec::new();
        for listener in [0, 0, 1, 0] {
            all.push(connections.add(listener));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        all[0].1.set_active();
        all[1].1.set_active();
        all[1].1.set_idle(clock::now());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(connections.close_longest_idle(None));
        assert_eq!(closing(&all), [false, false, true, false]);
        assert!(connections.close_longest_idle(Some(0)));
        assert_eq!(closing(&all), [false, false, true, true]);
        assert!(!connections.close_longest_idle(Some(1)));
        assert!(connections.close_longest_idle(None));
        assert!(!connections.close_longest_idle(None));
        assert_eq!(closing(&all), [false, true, true, true]);
        all[1].1.set_idle(clock::now());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(
            !connections.close_longest_idle(None),
            "it was asked already"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_never_asked_for_anything_close_before_those_that_did() {
        let connections = ClientConnections::default();
        let [served, silent, secured] = [0; 3].map(|listener| connections.add(listener));
        served.1.set_active();
        served.1.set_idle(clock::now());
        tokio::time::advance(Duration::from_secs(1)).await;
        // A handshake that has ended is no request.
        secured.1.set_active();
        secured.1.set_unused(clock::now());
        tokio::time::advance(Duration::from_secs(1)).await;
        let newest = connections.add(0);
        let mut order = Vec::new();
        while connections.close_longest_idle(None) {
            order.push([&served, &silent, &secured].map(|(_, one)| one.must_close()));
        }
        assert_eq!(order, [[false, true, false], [false, true, true]]);
        assert!(!newest.1.must_close(), "it may be about to ask");
        tokio::time::advance(LEAST_IDLE).await;
        assert!(connections.close_longest_idle(None) && newest.1.must_close());
        assert!(connections.close_longest_idle(None) && served.1.must_close());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_was_used_since_the_search_or_has_closed_is_passed_over() {
        let connections = ClientConnections::default();
        tokio::time::advance(Duration::from_secs(1)).await;
        let [gone, used, kept] = [0; 3].map(|listener| connections.add(listener));
        tokio::time::advance(Duration::from_secs(1)).await;
        let _ = connections.add(0);
        let oldest = connections.add(0);
        oldest.1.set_unused(connections.epoch);
        assert!(connections.close_longest_idle(None) && oldest.1.must_close());
        connections.remove(gone.0);
        drop(gone);
        used.1.set_idle(clock::now());
        assert!(connections.close_longest_idle(None) && kept.1.must_close());
        assert!(!used.1.must_close() && !connections.close_longest_idle(None));
    }
}

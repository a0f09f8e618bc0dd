//! The fetches of an issuer's keys, as requests see them.
//!
//! Guarantees a bound on how often the issuer is asked and on how many requests wait for it,
//! whatever clients send.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use tollgate_limiter::clock::{self, Instant};
use tollgate_wire::address_shares::{AddressShare, AddressShares};

/// The least time between two fetches that requests cause.
const COOLDOWN: Duration = Duration::from_secs(5);

/// Requests that wait at a time, at most: tokens with unknown keys are what anyone can send.
const MAX_WAITING: usize = 1_024;

/// Requests of one client address that wait.
const MAX_WAITING_OF_CLIENT: usize = 128;

/// The fetches of an issuer's keys. One runs at a time.
pub struct IssuerFetches {
    /// A request needs keys that are not known.
    wanted: Notify,
    /// Fetches that have ended.
    ended: watch::Sender<u64>,
    progress: Mutex<FetchProgress>,
    /// By the monotonic clock, in microseconds. 0: never.
    last_success: AtomicU64,
    followed: AtomicBool,
    waiting: AtomicUsize,
    /// The waiting requests of each client.
    by_client: Arc<AddressShares>,
}

#[derive(Default)]
struct FetchProgress {
    begun: u64,
    running: bool,
    last_end: Option<Instant>,
}

/// A place among the requests that wait, and among those of its client.
struct WaitingPlace {
    fetches: Arc<IssuerFetches>,
    _share: AddressShare,
}

impl Default for IssuerFetches {
    fn default() -> Self {
        Self::after(0)
    }
}

impl IssuerFetches {
    fn after(last_success: u64) -> Self {
        Self {
            wanted: Notify::new(),
            ended: watch::Sender::new(0),
            progress: Mutex::default(),
            last_success: AtomicU64::new(last_success),
            followed: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            by_client: Arc::default(),
        }
    }

    /// The fetches of an authenticator that takes over the keys of this one.
    pub fn successor(&self) -> Self {
        Self::after(self.last_success.load(Ordering::Relaxed))
    }

    /// A request of a client at `ip` waits for a fetch that begins later, `limit` long at most: a
    /// key that was published before is in it. `None`: too many requests wait.
    pub fn next(self: &Arc<Self>, limit: Duration, ip: IpAddr) -> Option<BoxFuture<'static, ()>> {
        let number = self.progress.lock().begun + 1;
        self.wait_for(number, COOLDOWN + limit * 2, ip)
    }

    /// A request of a client at `ip` waits for the fetch under way, `limit` long at most. `None`:
    /// there is none, or too many requests wait.
    pub fn current(
        self: &Arc<Self>,
        limit: Duration,
        ip: IpAddr,
    ) -> Option<BoxFuture<'static, ()>> {
        let progress = self.progress.lock();
        let begun = progress.begun;
        let is_running = progress.running;
        drop(progress);
        if is_running || begun == 0 {
            return self.wait_for(begun.max(1), limit, ip);
        }
        self.wanted.notify_one();
        None
    }

    fn wait_for(
        self: &Arc<Self>,
        number: u64,
        limit: Duration,
        ip: IpAddr,
    ) -> Option<BoxFuture<'static, ()>> {
        let place = WaitingPlace::take(self, ip)?;
        let mut ended = self.ended.subscribe();
        if self.progress.lock().begun < number {
            self.wanted.notify_one();
        }
        Some(Box::pin(async move {
            drop(timeout(limit, ended.wait_for(|ended| *ended >= number)).await);
            drop(place);
        }))
    }

    /// Whether the keys were fetched within the last `stale`.
    pub fn is_fresh(&self, stale: Duration) -> bool {
        let success = self.last_success.load(Ordering::Relaxed);
        success > 0
            && u128::from(clock::monotonic_micros().saturating_sub(success)) < stale.as_micros()
    }

    /// Whether the caller is the first who follows the keys.
    pub fn follow(&self) -> bool {
        !self.followed.swap(true, Ordering::Relaxed)
    }

    /// A fetch begins.
    pub fn begin(&self) {
        let mut progress = self.progress.lock();
        progress.begun += 1;
        progress.running = true;
    }

    /// The fetch has ended.
    pub fn end(&self, success: bool) {
        if success {
            self.last_success
                .store(clock::monotonic_micros().max(1), Ordering::Relaxed);
        }
        let ended = {
            let mut progress = self.progress.lock();
            progress.running = false;
            progress.last_end = Some(clock::now());
            progress.begun
        };
        self.ended.send_replace(ended);
    }

    /// Waits until a request needs other keys, and the issuer may be asked again.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
        let last = self.progress.lock().last_end;
        if let Some(last) = last {
            sleep(COOLDOWN.saturating_sub(clock::now().saturating_duration_since(last))).await;
        }
    }
}

impl WaitingPlace {
    fn take(fetches: &Arc<IssuerFetches>, ip: IpAddr) -> Option<Self> {
        let share = fetches.by_client.take(ip, 1, MAX_WAITING_OF_CLIENT)?;
        if fetches.waiting.fetch_add(1, Ordering::Relaxed) < MAX_WAITING {
            return Some(Self {
                fetches: fetches.clone(),
                _share: share,
            });
        }
        fetches.waiting.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        self.fetches.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::future::{self, Either};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    fn ip(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_with_an_unknown_key_waits_for_a_fetch_that_begins_later() {
        let fetches = Arc::new(IssuerFetches::default());
        fetches.begin();
        let mut next = fetches.next(LIMIT, ip(1)).expect("there is room");
        fetches.end(true);
        assert!(
            future::poll_immediate(&mut next).await.is_none(),
            "the key may be newer than what that fetch has seen"
        );
        let began = clock::now();
        fetches.wanted().await;
        assert_eq!(
            clock::now() - began,
            COOLDOWN,
            "strangers cannot make it ask more often"
        );
        fetches.begin();
        fetches.end(true);
        assert!(future::poll_immediate(&mut next).await.is_some());
        assert!(matches!(
            future::select(pin!(fetches.wanted()), pin!(sleep(LIMIT * 9))).await,
            Either::Right(_)
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_any_keys_waits_for_the_fetch_under_way_alone() {
        let fetches = Arc::new(IssuerFetches::default());
        let mut first = fetches.current(LIMIT, ip(1)).expect("it has not begun");
        fetches.begin();
        let mut second = fetches.current(LIMIT, ip(1)).expect("it is under way");
        assert!(future::poll_immediate(&mut first).await.is_none());
        fetches.end(false);
        assert!(
            future::poll_immediate(&mut first).await.is_some()
                && future::poll_immediate(&mut second).await.is_some()
        );
        assert!(
            fetches.current(LIMIT, ip(1)).is_none(),
            "the issuer was away a moment ago"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_has_an_end_and_only_so_many_wait() {
        let fetches = Arc::new(IssuerFetches::default());
        let mut waiting = Vec::new();
        for number in 0..MAX_WAITING {
            let client = ip((number / MAX_WAITING_OF_CLIENT) as u8);
            waiting.extend(fetches.next(LIMIT, client));
        }
        assert!(waiting.len() == MAX_WAITING && fetches.next(LIMIT, ip(99)).is_none());
        let began = clock::now();
        waiting.pop().expect("they wait").await;
        assert!(clock::now() - began <= COOLDOWN + LIMIT * 2 + Duration::from_millis(1));
        assert!(fetches.next(LIMIT, ip(99)).is_some(), "it has made room");
    }

    #[tokio::test(start_paused = true)]
    async fn one_client_leaves_room_for_others_to_wait() {
        let fetches = Arc::new(IssuerFetches::default());
        for wait in [IssuerFetches::next, IssuerFetches::current] {
            let waiting: Vec<_> = (0..MAX_WAITING)
                .filter_map(|_| wait(&fetches, LIMIT, ip(1)))
                .collect();
            assert_eq!(waiting.len(), MAX_WAITING_OF_CLIENT);
            assert!(fetches.next(LIMIT, ip(1)).is_none() && fetches.next(LIMIT, ip(2)).is_some());
            assert!(
                fetches.current(LIMIT, ip(1)).is_none() && fetches.current(LIMIT, ip(2)).is_some()
            );
            drop(waiting);
            assert!(fetches.next(LIMIT, ip(1)).is_some());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_fresh_for_a_while_also_in_other_hands() {
        let fetches = IssuerFetches::default();
        assert!(!fetches.is_fresh(LIMIT));
        fetches.begin();
        fetches.end(true);
        let successor = fetches.successor();
        assert!(fetches.is_fresh(LIMIT) && successor.is_fresh(LIMIT) && successor.follow());
        // The clock of a process begins at 0, which stands for never: a fetch then counts as one a
        // microsecond later.
        tokio::time::advance(LIMIT + Duration::from_micros(1)).await;
        assert!(!fetches.is_fresh(LIMIT) && !successor.is_fresh(LIMIT));
    }
}

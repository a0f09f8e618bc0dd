//! Queues of requests that wait for their tokens.
//!
//! Guarantees, for each limit and node: first come, first served among requests of one key; a bound on the requests
//! that wait, and on their time; a request that leaves, for whatever reason, makes room at once. Only the head of a
//! line asks the limiter, and not before it can pass.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use metrics::{Gauge, Histogram, gauge, histogram};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{sleep_until, timeout_at};

use crate::clock::{self, Instant};
use crate::limit::key::Key;
use crate::limit::on_limit::Queueing;

/// The queues of the node, by limit. A queue lives as long as a limit uses it or a request waits in it.
#[derive(Debug, Default)]
pub struct Queues(Mutex<HashMap<Arc<str>, Weak<Queue>>>);

/// The line that a request joins.
#[derive(Clone, Copy, Debug)]
pub struct WaitingFor<'a> {
    pub key: &'a Key,
    pub bounds: Queueing,
    /// Microseconds in which the bucket yields one such request.
    pub charge_us: u64,
}

/// The lines before one limit, one for each key with waiting requests.
pub struct Queue {
    lines: Mutex<QueueLines>,
    waiting: Gauge,
    waited: Histogram,
}

#[derive(Default)]
struct QueueLines {
    by_key: HashMap<Key, KeyLine>,
    waiting: usize,
    tickets: u64,
}

struct KeyLine {
    waiters: VecDeque<QueuedRequest>,
    /// The time at which the head may pass: it asks no earlier.
    ready_at: Instant,
}

struct QueuedRequest {
    ticket: u64,
    charge: Duration,
    called: Arc<Notify>,
}

/// A place in a line. It is left when dropped.
pub struct Ticket {
    queue: Arc<Queue>,
    key: Key,
    number: u64,
    called: Arc<Notify>,
    joined_at: Instant,
    deadline: Instant,
}

/// Waiting would be in vain: the line is full, or so long that the wait would exceed its bound. This is the least time
/// until a place is free, or until the request's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong(pub Duration);

impl Queues {
    /// The queue of the limit called `name`: the existing one, if requests wait in it or a limit uses it.
    pub fn of(&self, name: &Arc<str>) -> Arc<Queue> {
        let mut queues = self.0.lock();
        if let Some(queue) = queues.get(name).and_then(Weak::upgrade) {
            return queue;
        }
        let queue = Arc::new(Queue::of(name));
        queues.insert(name.clone(), Arc::downgrade(&queue));
        queue
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Queue")
    }
}

impl Queue {
    /// A queue for the limit called `name`.
    pub fn of(name: &Arc<str>) -> Self {
        Self {
            lines: Mutex::default(),
            waiting: gauge!("tollgate_ratelimit_queue_waiting", "limit" => name.to_string()),
            waited: histogram!("tollgate_ratelimit_queue_wait_seconds", "limit" => name.to_string()),
        }
    }

    /// Whether requests wait for `key`: a new one must not overtake them.
    pub fn has_line(&self, key: &Key) -> bool {
        let lines = self.lines.lock();
        lines.waiting > 0 && lines.by_key.contains_key(key)
    }

    /// Joins the line of a key. Where there is none, `retry_after` is how long until the bucket has room.
    ///
    /// # Errors
    /// When it is known by now that the wait would be in vain.
    pub fn join(self: &Arc<Self>, waiting_for: &WaitingFor<'_>, retry_after: Duration) -> Result<Ticket, TooLong> {
        let now = clock::now();
        let (called, charge) = (Arc::new(Notify::new()), Duration::from_micros(waiting_for.charge_us));
        let mut lines = self.lines.lock();
        let line = lines.by_key.get(waiting_for.key);
        let wait = line.map_or(retry_after, |line| line.wait(now) + charge);
        if wait > waiting_for.bounds.max_wait || lines.waiting >= waiting_for.bounds.max_waiting.get() {
            return Err(TooLong(wait));
        }
        lines.waiting += 1;
        lines.tickets += 1;
        let number = lines.tickets;
        let new = || KeyLine { waiters: VecDeque::new(), ready_at: now + retry_after };
        let line = lines.by_key.entry(waiting_for.key.clone()).or_insert_with(new);
        line.waiters.push_back(QueuedRequest { ticket: number, charge, called: called.clone() });
        self.waiting.increment(1.0);
        let deadline = now + waiting_for.bounds.max_wait;
        Ok(Ticket { queue: self.clone(), key: waiting_for.key.clone(), number, called, joined_at: now, deadline })
    }
}

impl KeyLine {
    /// The least wait of the last in the line: until its head passes, and then for the charges of the others.
    fn wait(&self, now: Instant) -> Duration {
        let others = self.waiters.iter().skip(1).map(|waiter| waiter.charge);
        self.ready_at.saturating_duration_since(now) + others.sum::<Duration>()
    }
}

impl Ticket {
    /// Waits for this request's turn. `false`: it does not come in time.
    pub async fn turn(&self) -> bool {
        while !self.is_head() {
            if timeout_at(self.deadline, self.called.notified()).await.is_err() {
                return false;
            }
        }
        let ready_at = self.ready_at();
        if ready_at > self.deadline {
            return false;
        }
        sleep_until(ready_at).await;
        true
    }

    /// Delays the head, which was denied, by `retry_after`.
    pub fn put_off(&self, retry_after: Duration) {
        if let Some(line) = self.queue.lines.lock().by_key.get_mut(&self.key) {
            line.ready_at = clock::now() + retry_after;
        }
    }

    /// The time until this request's turn.
    pub fn wait(&self) -> Duration {
        self.ready_at().saturating_duration_since(clock::now())
    }

    /// The key that is waited for.
    pub fn key(&self) -> &Key {
        &self.key
    }

    fn is_head(&self) -> bool {
        let lines = self.queue.lines.lock();
        let head = lines.by_key.get(&self.key).and_then(|line| line.waiters.front());
        head.is_some_and(|head| head.ticket == self.number)
    }

    fn ready_at(&self) -> Instant {
        self.queue.lines.lock().by_key.get(&self.key).map_or(self.deadline, |line| line.ready_at)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut lines = self.queue.lines.lock();
        lines.waiting = lines.waiting.saturating_sub(1);
        if let Some(line) = lines.by_key.get_mut(&self.key) {
            line.waiters.retain(|waiter| waiter.ticket != self.number);
            match line.waiters.front() {
                Some(head) => head.called.notify_one(),
                None => drop(lines.by_key.remove(&self.key)),
            }
        }
        drop(lines);
        self.queue.waiting.decrement(1.0);
        self.queue.waited.record(clock::now().saturating_duration_since(self.joined_at));
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use futures_util::FutureExt;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn queue() -> Arc<Queue> {
        Arc::new(Queue::of(&"l".into()))
    }

    fn join(queue: &Arc<Queue>, key: &str, retry_after: Duration) -> Result<Ticket, TooLong> {
        let bounds = Queueing { max_wait: 3 * SECOND, max_waiting: NonZeroUsize::new(4).unwrap() };
        queue.join(&WaitingFor { key: &Key::from(key), bounds, charge_us: 1_000_000 }, retry_after)
    }

    #[tokio::test(start_paused = true)]
    async fn first_come_first_served() {
        let queue = queue();
        let [first, second, third] =
            [SECOND, Duration::ZERO, Duration::ZERO].map(|wait| join(&queue, "k", wait).unwrap());
        let started = clock::now();
        assert!(first.turn().await);
        assert_eq!(started.elapsed(), SECOND);
        assert_eq!((second.turn().now_or_never(), third.turn().now_or_never()), (None, None));
        drop(first);
        assert_eq!((third.turn().now_or_never(), second.turn().now_or_never()), (None, Some(true)));
        second.put_off(SECOND);
        assert!(second.turn().await);
        assert_eq!(started.elapsed(), 2 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_leaves_makes_room_and_the_next_still_waits_for_the_bucket() {
        let queue = queue();
        let [first, second] = [SECOND, SECOND].map(|wait| join(&queue, "k", wait).unwrap());
        assert_eq!(first.turn().now_or_never(), None);
        drop(first);
        assert_eq!(second.turn().now_or_never(), None);
        let started = clock::now();
        assert!(second.turn().await);
        assert_eq!(started.elapsed(), SECOND);
        drop(second);
        assert!(!queue.has_line(&Key::from("k")));
        assert_eq!(queue.lines.lock().waiting, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn keys_do_not_wait_for_each_other() {
        let queue = queue();
        let _slow = join(&queue, "a", 3 * SECOND).unwrap();
        let fast = join(&queue, "b", Duration::ZERO).unwrap();
        assert_eq!(fast.turn().now_or_never(), Some(true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_would_wait_in_vain_does_not_join() {
        let queue = queue();
        assert_eq!(
            join(&queue, "k", 3 * SECOND + Duration::from_micros(1)).err(),
            Some(TooLong(3 * SECOND + Duration::from_micros(1)))
        );
        let _line = [SECOND, SECOND, SECOND].map(|wait| join(&queue, "k", wait).unwrap());
        assert_eq!(
            join(&queue, "k", SECOND).err(),
            Some(TooLong(4 * SECOND)),
            "three go first, one of them in a second"
        );
        let _other = join(&queue, "other", SECOND).unwrap();
        assert_eq!(join(&queue, "third", SECOND).err(), Some(TooLong(SECOND)), "four wait already");
    }

    #[tokio::test(start_paused = true)]
    async fn no_request_waits_longer_than_the_bound() {
        let queue = queue();
        let [first, second] = [SECOND, SECOND].map(|wait| join(&queue, "k", wait).unwrap());
        let started = clock::now();
        assert!(!second.turn().await);
        assert_eq!(started.elapsed(), 3 * SECOND);
        first.put_off(SECOND);
        assert!(!first.turn().await, "its turn would come after its time");
        assert_eq!(started.elapsed(), 3 * SECOND);
    }
}

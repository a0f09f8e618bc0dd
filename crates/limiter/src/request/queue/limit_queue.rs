//! The queues of a node, by limit, and their metrics.
//!
//! Guarantees that a queue outlives a change of the configuration while requests wait in it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use metrics::{Gauge, Histogram, gauge, histogram};
use parking_lot::{Mutex, MutexGuard};

use crate::limit::key::Key;
use crate::limit::on_limit::Queueing;
use crate::request::queue::lines::QueueLines;

/// The queues of the node, by limit. A queue lives as long as a limit uses it or a request waits in
/// it.
#[derive(Debug, Default)]
pub struct Queues(Mutex<HashMap<Arc<str>, Weak<Queue>>>);

/// The line that a request joins.
#[derive(Clone, Copy, Debug)]
pub struct WaitingFor<'a> {
    pub key: &'a Key,
    pub bounds: Queueing,
    /// Microseconds in which the bucket yields one such request.
    pub charge_us: u64,
    /// Charges of the limit may be refunded in part.
    pub refunded: bool,
}

/// The lines before one limit, one for each key with waiting requests.
pub struct Queue {
    lines: Mutex<QueueLines>,
    waiting: Gauge,
    waited: Histogram,
}

/// Waiting would be in vain: the line is full, or so long that the wait would exceed its bound.
/// This is the least time until a place is free, or until the request's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong(pub Duration);

impl Queues {
    /// The queue of the limit called `name`: the existing one, if requests wait in it or a limit
    /// uses it.
    pub fn queue(&self, name: &Arc<str>) -> Arc<Queue> {
        let mut queues = self.0.lock();
        if let Some(queue) = queues.get(name).and_then(Weak::upgrade) {
            return queue;
        }
        let queue = Arc::new(Queue::new(name));
        // Before the map grows: a queue costs no look at all others.
        if queues.len() == queues.capacity() {
            queues.retain(|_, queue| queue.strong_count() > 0);
        }
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
    pub fn new(name: &Arc<str>) -> Self {
        Self {
            lines: Mutex::default(),
            waiting: gauge!("tollgate_ratelimit_queue_waiting", "limit" => name.to_string()),
            waited: histogram!("tollgate_ratelimit_queue_wait_seconds", "limit" => name.to_string()),
        }
    }

    /// Whether requests wait for `key`: a new one must not overtake them.
    pub fn has_line(&self, key: &Key) -> bool {
        self.lock().has_line(key)
    }

    /// Requests that wait, whatever their keys.
    pub fn waiting(&self) -> usize {
        self.lock().waiting()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, QueueLines> {
        self.lines.lock()
    }

    /// Counts a request that has joined.
    pub(super) fn count_joined(&self) {
        self.waiting.increment(1.0);
    }

    /// Counts a request that has left after so long.
    pub(super) fn count_left(&self, waited: Duration) {
        self.waiting.decrement(1.0);
        self.waited.record(waited);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_of_limits_that_are_gone_take_no_room() {
        let queues = Queues::default();
        let used = queues.queue(&"used".into());
        for number in 0..1_000 {
            queues.queue(&format!("limit-{number}").into());
        }
        let kept = queues.0.lock().len();
        assert!(kept < 20, "{kept} queues are kept");
        assert!(Arc::ptr_eq(&used, &queues.queue(&"used".into())));
    }
}

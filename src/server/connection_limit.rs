//! How many connections a listener may have open, and how many it has.
//!
//! Guarantees that the bound holds over all workers, and that a connection counts until its socket closes, even after
//! an upgrade.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use metrics::{Counter, Gauge};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The bound on a listener's connections, shared by all workers. Its metrics belong to the recorder that is installed
/// when it is made.
#[derive(Clone)]
pub struct ConnectionLimit {
    free: Arc<Semaphore>,
    open: Gauge,
    total: Counter,
}

/// Counts an open connection until dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    _permit: Option<OwnedSemaphorePermit>,
    open: Gauge,
    connections: Arc<OpenConnections>,
}

/// The open connections that one worker accepted on one listener, upgraded ones included.
#[derive(Debug, Default)]
pub struct OpenConnections {
    count: AtomicUsize,
    all_closed: Notify,
}

impl ConnectionLimit {
    /// At most `max_connections` at once.
    pub fn new(max_connections: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS))),
            open: metrics::gauge!("tollgate_connections"),
            total: metrics::counter!("tollgate_connections_total"),
        }
    }

    /// Like `new`, without metrics: for connections that are not clients'.
    pub fn uncounted(max_connections: usize) -> Self {
        let free = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
        Self { free, open: Gauge::noop(), total: Counter::noop() }
    }

    /// Waits until one more connection may be open, and counts it among `connections`.
    pub async fn acquire(&self, connections: &Arc<OpenConnections>) -> ConnectionPermit {
        // The semaphore is never closed: an error would mean that there is no bound to keep.
        let permit = Arc::clone(&self.free).acquire_owned().await.ok();
        self.count(permit, connections)
    }

    /// Counts a connection that was accepted before, whatever the bound: it is the last one.
    pub fn exceed(&self, connections: &Arc<OpenConnections>) -> ConnectionPermit {
        self.count(None, connections)
    }

    fn count(&self, permit: Option<OwnedSemaphorePermit>, connections: &Arc<OpenConnections>) -> ConnectionPermit {
        self.open.increment(1.0);
        self.total.increment(1);
        connections.count.fetch_add(1, Ordering::Relaxed);
        ConnectionPermit { _permit: permit, open: self.open.clone(), connections: Arc::clone(connections) }
    }
}

#[cfg(test)]
impl ConnectionPermit {
    /// A permit that no limit counts.
    pub fn unlimited() -> Self {
        Self { _permit: None, open: Gauge::noop(), connections: Arc::default() }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.open.decrement(1.0);
        if self.connections.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.connections.all_closed.notify_one();
        }
    }
}

impl OpenConnections {
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Waits until none is open.
    pub async fn all_closed(&self) {
        while self.count() > 0 {
            self.all_closed.notified().await;
        }
    }
}

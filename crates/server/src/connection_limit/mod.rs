//! Bounds on open connections: of a listener, of the process, and of each client.
//!
//! Guarantees that the bounds hold over all workers, and that a connection counts until its socket
//! closes, even after an upgrade. At a bound, the connection that is idle for longest makes room.

mod activity;
mod per_client;

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use metrics::{Counter, Gauge};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

pub use self::activity::ClientActivity;
use self::activity::ClientConnections;
use self::per_client::{ClientCounts, ClientPlace};

/// Time for a connection to close as asked, before the next one is asked.
const CLOSE_TIME: Duration = Duration::from_millis(100);

/// Connections of one worker and listener that may keep memory which only their requests need.
const FEW: usize = 256;

/// The bound on the client connections of the process, which all listeners share.
#[derive(Clone)]
pub struct ProcessLimit {
    free: Arc<Semaphore>,
    connections: Arc<ClientConnections>,
}

/// The bounds on a listener's connections, shared by all workers. The metrics belong to the
/// recorder that is installed at the time of `new`.
#[derive(Clone)]
pub struct ConnectionLimit {
    listener: usize,
    free: Arc<Semaphore>,
    process: ProcessLimit,
    per_client: Option<Arc<ClientCounts>>,
    metrics: ConnectionMetrics,
}

#[derive(Clone)]
struct ConnectionMetrics {
    open: Gauge,
    total: Counter,
    made_room: Counter,
    refused: Counter,
}

/// Counts an open connection until dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    _permits: [Option<OwnedSemaphorePermit>; 2],
    client: Option<ClientPlace>,
    open: Gauge,
    connections: Arc<OpenConnections>,
    number: u64,
    activity: Arc<ClientActivity>,
    process: Arc<ClientConnections>,
}

/// A client that may have one more connection.
#[derive(Debug)]
pub struct AdmittedClient(Option<ClientPlace>);

/// The open connections that one worker accepted on one listener, upgraded ones included.
#[derive(Debug, Default)]
pub struct OpenConnections {
    count: AtomicUsize,
    all_closed: Notify,
}

impl ProcessLimit {
    /// A limit of `max_connections` at once.
    pub fn new(max_connections: usize) -> Self {
        Self {
            free: semaphore(max_connections),
            connections: Arc::default(),
        }
    }

    /// Asks the connection that is idle for longest to close, since the process has run out of
    /// something. False: none is idle.
    pub fn make_room(&self) -> bool {
        self.connections.close_longest_idle(None)
    }
}

impl ConnectionMetrics {
    fn new() -> Self {
        let metrics = Self {
            open: metrics::gauge!("tollgate_connections"),
            total: metrics::counter!("tollgate_connections_total"),
            made_room: metrics::counter!("tollgate_connections_closed_for_room_total"),
            refused: metrics::counter!("tollgate_connections_refused_total"),
        };
        metrics.made_room.increment(0);
        metrics.refused.increment(0);
        metrics
    }

    fn noop() -> Self {
        Self {
            open: Gauge::noop(),
            total: Counter::noop(),
            made_room: Counter::noop(),
            refused: Counter::noop(),
        }
    }
}

impl ConnectionLimit {
    /// A limit of `max_connections` at once.
    pub fn new(max_connections: usize) -> Self {
        Self {
            listener: 0,
            free: semaphore(max_connections),
            process: ProcessLimit::new(usize::MAX),
            per_client: None,
            metrics: ConnectionMetrics::new(),
        }
    }

    /// Like `new`, without metrics: for connections that are not clients'.
    pub fn uncounted(max_connections: usize) -> Self {
        Self {
            listener: 0,
            free: semaphore(max_connections),
            process: ProcessLimit::new(usize::MAX),
            per_client: None,
            metrics: ConnectionMetrics::noop(),
        }
    }

    /// Allows no more connections than the process has left. `listener` is the number of this
    /// listener in the process.
    pub fn within(self, process: &ProcessLimit, listener: usize) -> Self {
        Self {
            listener,
            process: process.clone(),
            ..self
        }
    }

    /// Allows each client at most this number of connections, if there is a bound.
    pub fn per_client(self, most: Option<u32>) -> Self {
        Self {
            per_client: most.map(|most| Arc::new(ClientCounts::new(most))),
            ..self
        }
    }

    /// Admits `client` if it may have one more connection. `is_exempt`: the peer stands for many.
    pub fn admit(
        &self,
        client: IpAddr,
        is_exempt: impl FnOnce() -> bool,
    ) -> Option<AdmittedClient> {
        let Some(counts) = &self.per_client else {
            return Some(AdmittedClient(None));
        };
        if is_exempt() {
            return Some(AdmittedClient(None));
        }
        let place = counts.enter(client);
        if place.is_none() {
            self.metrics.refused.increment(1);
        }
        place.map(|place| AdmittedClient(Some(place)))
    }

    /// Waits until one more connection may be open, and counts it among `connections`. The
    /// connections that are idle for longest make room for it.
    pub async fn acquire(
        &self,
        client: AdmittedClient,
        connections: &Arc<OpenConnections>,
    ) -> ConnectionPermit {
        let of_listener = self.take(&self.free, Some(self.listener)).await;
        let of_process = self.take(&self.process.free, None).await;
        self.count([of_listener, of_process], client, connections)
    }

    async fn take(
        &self,
        free: &Arc<Semaphore>,
        listener: Option<usize>,
    ) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(free).try_acquire_owned() {
            return Some(permit);
        }
        let mut turn = pin!(Arc::clone(free).acquire_owned());
        loop {
            self.make_room(listener);
            if let Ok(permit) = timeout(CLOSE_TIME, &mut turn).await {
                // The semaphore is never closed: an error would mean that there is no bound to
                // keep.
                return permit.ok();
            }
        }
    }

    /// Asks the connection that is idle for longest to close, of all connections or of one
    /// `listener`.
    pub fn make_room(&self, listener: Option<usize>) {
        if self.process.connections.close_longest_idle(listener) {
            self.metrics.made_room.increment(1);
        }
    }

    /// Counts a connection that was accepted before, whatever the bound: no other comes after it.
    pub fn exceed(
        &self,
        client: AdmittedClient,
        connections: &Arc<OpenConnections>,
    ) -> ConnectionPermit {
        self.count([None, None], client, connections)
    }

    fn count(
        &self,
        permits: [Option<OwnedSemaphorePermit>; 2],
        client: AdmittedClient,
        connections: &Arc<OpenConnections>,
    ) -> ConnectionPermit {
        self.metrics.open.increment(1.0);
        self.metrics.total.increment(1);
        connections.count.fetch_add(1, Ordering::Relaxed);
        let (number, activity) = self.process.connections.add(self.listener);
        ConnectionPermit {
            _permits: permits,
            client: client.0,
            open: self.metrics.open.clone(),
            connections: Arc::clone(connections),
            number,
            activity,
            process: Arc::clone(&self.process.connections),
        }
    }
}

impl ConnectionPermit {
    /// The connection's activity. Outlives it.
    pub fn activity(&self) -> &Arc<ClientActivity> {
        &self.activity
    }

    /// Whether this worker has few open connections of this listener.
    pub fn is_one_of_few(&self) -> bool {
        self.connections.count.load(Ordering::Relaxed) <= FEW
    }

    /// Counts the connection for `client`, in place of the peer, a proxy that speaks for the
    /// client.
    pub fn count_for(&mut self, client: AdmittedClient) {
        self.client = client.0;
    }

    /// A permit that no limit counts.
    #[cfg(test)]
    pub fn unlimited() -> Self {
        ConnectionLimit::uncounted(1).exceed(AdmittedClient(None), &Arc::default())
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.process.remove(self.number);
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

fn semaphore(permits: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)))
}

//! The connections of a worker that carry many exchanges, by endpoint.
//!
//! Guarantees that a connection is opened only when all are full, and that no more than
//! [`MOST_CONNECTIONS`] lead to one endpoint. Requests that wait share a connection that is being
//! opened. Where connections end after some streams, later ones get no more than that at once,
//! unless no other can be opened. At the bounds of its upstream, a connection gets no more streams
//! once requests wait that cannot use it.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::connection::{MOST_STREAMS, MultiplexedConnection};
use super::lifetime::LearnedLifetime;
use crate::upstream::bounds::IdleConnections;
use tollgate_limiter::clock::Instant;

/// Connections to one endpoint: with [`MOST_STREAMS`], 6 400 exchanges at once.
const MOST_CONNECTIONS: usize = 64;

/// The connections of a worker.
#[derive(Default)]
pub struct ConnectionGroups(Mutex<HashMap<Arc<str>, Arc<ConnectionGroup>>>);

/// The connections to one endpoint.
#[derive(Default)]
pub struct ConnectionGroup {
    members: Mutex<GroupMembers>,
    lifetime: LearnedLifetime,
    /// Notified when a stream may have become free, or when a connection was opened or could not
    /// be.
    freed: Arc<Notify>,
}

#[derive(Default)]
struct GroupMembers {
    connections: Vec<Arc<MultiplexedConnection>>,
    opening: usize,
    waiting: usize,
    /// The number of streams that the connection opened last takes, as its upstream says.
    announced: Option<usize>,
}

/// The next step of a request that asks for a stream.
pub enum StreamClaim {
    Take(StreamLease),
    /// Open a connection.
    Open(OpeningConnection),
    /// Wait until the group is notified.
    Wait(WaitingForStream),
}

/// A stream for one exchange, to its end.
pub struct StreamLease {
    pub connection: Arc<MultiplexedConnection>,
    group: Arc<ConnectionGroup>,
}

/// Counts a connection that is being opened. Dropped: the connection was not opened.
pub struct OpeningConnection {
    group: Arc<ConnectionGroup>,
    withdrawn: bool,
}

/// Counts a request that waits for a stream.
pub struct WaitingForStream(Arc<ConnectionGroup>);

impl ConnectionGroups {
    /// The group of the endpoint with this key.
    pub fn group(&self, key: &Arc<str>) -> Arc<ConnectionGroup> {
        Arc::clone(self.0.lock().entry_ref(&**key).or_default())
    }

    /// Drops connections that have ended or were idle for too long.
    pub fn sweep(&self, now: Instant) {
        self.0.lock().retain(|_, group| {
            let dropped =
                group.retain(|connection| !connection.is_retired() && !connection.is_expired(now));
            drop(dropped);
            Arc::strong_count(group) > 1 || !group.members.lock().connections.is_empty()
        });
    }

    /// Closes the idle connections to servers that are not `wanted` any more.
    pub fn retain(&self, wanted: impl Fn(&str) -> bool) {
        let mut unwanted = Vec::new();
        for (key, group) in self.0.lock().iter() {
            if !wanted(key) {
                unwanted.push(Arc::clone(group));
            }
        }
        for group in unwanted {
            drop(group.retain(|connection| connection.streams() > 0));
        }
    }

    /// The number of idle connections.
    pub fn idle(&self) -> usize {
        let groups = self.0.lock();
        groups.values().map(|group| group.idle()).sum()
    }
}

impl IdleConnections for ConnectionGroups {
    fn close_one(&self, key: &str) -> bool {
        let Some(group) = self.0.lock().get(key).cloned() else {
            return false;
        };
        let mut closed = false;
        let dropped = group.retain(|connection| {
            let closes = !closed && connection.streams() == 0;
            closed |= closes;
            !closes
        });
        drop(dropped);
        closed
    }
}

impl ConnectionGroup {
    /// Notified when another claim may succeed.
    pub fn freed(&self) -> &Arc<Notify> {
        &self.freed
    }

    /// The number of idle connections.
    fn idle(&self) -> usize {
        let members = self.members.lock();
        members
            .connections
            .iter()
            .filter(|connection| connection.streams() == 0)
            .count()
    }

    /// Asks for a stream of a connection that is `allowed` and not expected to end. Once no more
    /// connections can be opened, any connection will do.
    pub fn claim(
        self: &Arc<Self>,
        allowed: impl Fn(&MultiplexedConnection) -> bool,
    ) -> StreamClaim {
        drop(self.retain(|connection| !connection.is_retired()));
        let lifetime = self.lifetime.streams();
        let mut members = self.members.lock();
        let all = members.connections.len() + members.opening;
        let connections = &members.connections;
        let mut found = connections
            .iter()
            .find(|at| at.has_room(lifetime) && allowed(at));
        if found.is_none() && all >= MOST_CONNECTIONS {
            found = connections.iter().find(|at| at.has_room(usize::MAX));
        }
        if let Some(connection) = found {
            return StreamClaim::Take(self.lease(connection));
        }
        // A connection that is being opened serves the request that opens it, and this many
        // requests that wait.
        let most = members
            .announced
            .unwrap_or(usize::MAX)
            .min(MOST_STREAMS as usize);
        let served = lifetime.min(most).saturating_sub(1);
        let is_shut = members.connections.iter().any(|at| at.takes_none());
        if all < MOST_CONNECTIONS && !is_shut && members.waiting >= members.opening * served {
            members.opening += 1;
            return StreamClaim::Open(OpeningConnection {
                group: Arc::clone(self),
                withdrawn: false,
            });
        }
        members.waiting += 1;
        StreamClaim::Wait(WaitingForStream(Arc::clone(self)))
    }

    /// A stream of a connection that has room and is not expected to end.
    pub fn take(self: &Arc<Self>) -> Option<StreamLease> {
        self.take_within(self.lifetime.streams())
    }

    /// A stream of a connection that has room, whether or not it is expected to end.
    pub fn take_any(self: &Arc<Self>) -> Option<StreamLease> {
        self.take_within(usize::MAX)
    }

    fn take_within(self: &Arc<Self>, lifetime: usize) -> Option<StreamLease> {
        let members = self.members.lock();
        for connection in &members.connections {
            if !connection.is_retired() && connection.has_room(lifetime) {
                return Some(self.lease(connection));
            }
        }
        None
    }

    /// Begins to open a connection, whatever the others do.
    pub fn open(self: &Arc<Self>) -> OpeningConnection {
        self.members.lock().opening += 1;
        OpeningConnection {
            group: Arc::clone(self),
            withdrawn: false,
        }
    }

    /// Whether no connection leads to the endpoint.
    pub fn is_empty(&self) -> bool {
        self.members.lock().connections.is_empty()
    }

    fn lease(self: &Arc<Self>, connection: &Arc<MultiplexedConnection>) -> StreamLease {
        connection.begin_stream();
        StreamLease {
            connection: Arc::clone(connection),
            group: Arc::clone(self),
        }
    }

    /// Takes the connections out that are not to be kept. The caller drops them outside of the
    /// lock: requests may wait for their end.
    fn retain(
        &self,
        mut keep: impl FnMut(&MultiplexedConnection) -> bool,
    ) -> Vec<Arc<MultiplexedConnection>> {
        self.members
            .lock()
            .connections
            .extract_if(.., |connection| !keep(connection))
            .collect()
    }
}

impl OpeningConnection {
    /// Adds the connection to its group, and takes its first stream. `None`: the upstream takes no
    /// stream yet.
    pub fn opened(self, connection: &Arc<MultiplexedConnection>) -> Option<StreamLease> {
        let mut members = self.group.members.lock();
        members.announced = connection.announced().or(members.announced);
        members.connections.push(Arc::clone(connection));
        drop(members);
        if connection.has_room(usize::MAX) {
            Some(self.group.lease(connection))
        } else {
            None
        }
    }

    /// Stops counting while the request waits for a turn. Requests that wait for the connection are
    /// not notified: they would all ask for a turn again. If it is dropped after that, one of them
    /// is notified and opens the connection instead.
    pub fn withdraw(&mut self) {
        self.withdrawn = true;
        self.group.members.lock().opening -= 1;
    }

    /// Counts again: the turn of the request has come.
    pub fn resume(&mut self) {
        self.withdrawn = false;
        self.group.members.lock().opening += 1;
    }
}

impl Drop for OpeningConnection {
    fn drop(&mut self) {
        if self.withdrawn {
            return self.group.freed.notify_one();
        }
        self.group.members.lock().opening -= 1;
        self.group.freed.notify_waiters();
    }
}

impl Drop for WaitingForStream {
    fn drop(&mut self) {
        self.0.members.lock().waiting -= 1;
    }
}

impl StreamLease {
    /// The stream was not processed, since the upstream was about to close the connection.
    /// `before`: streams in front of it.
    pub fn record_unprocessed(&self, before: usize) {
        let processed = self.connection.counts().count_unprocessed(before);
        // A connection that processed nothing teaches nothing about the next one.
        let lifetime = if processed == 0 {
            usize::MAX
        } else {
            processed
        };
        self.group.lifetime.learn(lifetime);
    }

    /// No stream could be opened any more.
    pub fn record_unsent(&self) {
        self.connection.counts().count_unprocessed(usize::MAX);
    }

    /// The stream was answered, with `before` streams in front of it.
    pub fn record_answered(&self, before: usize) {
        if self.group.lifetime.outlive(before) {
            self.group.freed.notify_waiters();
        }
    }
}

impl Drop for StreamLease {
    fn drop(&mut self) {
        self.connection.end_stream();
        if self.connection.gives_way() {
            drop(
                self.group
                    .retain(|connection| !std::ptr::eq(connection, &*self.connection)),
            );
        }
        self.group.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn a_request_that_leaves_before_it_has_opened_a_connection_tells_one_that_relies_on_it() {
        let group = Arc::new(ConnectionGroup::default());
        let StreamClaim::Open(mut opening) = group.claim(|_| true) else {
            panic!("does not open")
        };
        let StreamClaim::Wait(_waiting) = group.claim(|_| true) else {
            panic!("does not wait")
        };
        let mut freed = Box::pin(group.freed().notified());
        assert!(poll!(&mut freed).is_pending());
        opening.withdraw();
        assert!(poll!(&mut freed).is_pending());
        drop(opening);
        assert!(poll!(&mut freed).is_ready());
        assert!(matches!(group.claim(|_| true), StreamClaim::Open(_)));
    }
}

//! Bounds of an upstream: on its connections, on the requests that wait for one, and on its
//! requests in flight.
//!
//! Guarantees that no more connections are open than the bound says, by all workers together, and
//! that requests which wait for one are served in their order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use metrics::Gauge;
use parking_lot::Mutex;
use tokio::sync::oneshot;

pub use super::spec::bounds::{HeadBound, RESPONSE_HEAD, UpstreamBounds};

/// The bound on an upstream's connections, and the requests that wait for one.
pub struct ConnectionBound {
    most: usize,
    most_pending: usize,
    queue: Mutex<ConnectionQueue>,
    /// The length of the queue, to be read without its lock.
    waiting: AtomicUsize,
    pools: Mutex<Vec<Weak<dyn IdleConnections>>>,
    /// Shared connections that will leave their slots to those that wait.
    leaving: AtomicUsize,
    pending: Gauge,
}

#[derive(Default)]
struct ConnectionQueue {
    open: usize,
    /// By their numbers: the lowest waits in front. One that leaves is found without a look at the
    /// others.
    waiting: BTreeMap<i64, QueuedConnect>,
}

struct QueuedConnect {
    place: PoolPlace,
    sender: oneshot::Sender<Vacancy>,
}

/// Where an idle connection can be taken up: a pool, and the key in it.
#[derive(Clone, PartialEq, Eq)]
pub struct PoolPlace {
    pub pool: usize,
    pub key: Arc<str>,
}

/// Where an upstream's shared connection can be used: by the requests of its own place, and by no
/// others.
pub struct BoundedPlace {
    bound: Arc<ConnectionBound>,
    place: PoolPlace,
}

/// Counts a connection that closes as soon as its exchanges have ended, for a request that waits.
pub struct LeavingConnection(Arc<ConnectionBound>);

/// The right to have one connection open, until it is dropped.
pub struct ConnectionSlot(Option<Arc<ConnectionBound>>);

/// The outcome of a wait.
pub enum Vacancy {
    /// The request may open a connection.
    Slot(ConnectionSlot),
    /// A connection was put into its pool.
    Idle,
}

/// The outcome of asking for a connection.
pub enum Entry {
    Slot(ConnectionSlot),
    Pending(PendingConnect),
    /// The queue is full.
    Full,
}

/// A request that waits for a connection, until it is dropped.
pub struct PendingConnect {
    bound: Arc<ConnectionBound>,
    place: PoolPlace,
    number: i64,
    vacancy: oneshot::Receiver<Vacancy>,
}

/// A pool, as far as a bound needs it.
pub trait IdleConnections: Send + Sync {
    /// Closes an idle connection with this key. Returns whether there was one.
    fn close_one(&self, key: &str) -> bool;
}

impl ConnectionBound {
    /// `None`: connections are not bounded. `pending` shows how many requests wait.
    pub fn new(bounds: &UpstreamBounds, pending: Gauge) -> Option<Arc<Self>> {
        let most = bounds.connections?.get();
        let most_pending = bounds.pending.unwrap_or(usize::MAX);
        Some(Arc::new(Self {
            most,
            most_pending,
            queue: Mutex::default(),
            waiting: AtomicUsize::new(0),
            pools: Mutex::default(),
            leaving: AtomicUsize::new(0),
            pending,
        }))
    }

    /// Whether requests wait for a connection.
    pub fn is_crowded(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Asks for a connection. `in_front`: it has waited already, and its turn has come.
    pub fn enter(self: &Arc<Self>, place: PoolPlace, in_front: bool) -> Entry {
        let mut queue = self.queue.lock();
        if queue.open < self.most && (in_front || queue.waiting.is_empty()) {
            queue.open += 1;
            return Entry::Slot(ConnectionSlot(Some(Arc::clone(self))));
        }
        if queue.waiting.len() >= self.most_pending && !in_front {
            return Entry::Full;
        }
        let (sender, vacancy) = oneshot::channel();
        let number = queue.number(in_front);
        queue.waiting.insert(
            number,
            QueuedConnect {
                place: place.clone(),
                sender,
            },
        );
        self.record(&queue);
        Entry::Pending(PendingConnect {
            bound: Arc::clone(self),
            place,
            number,
            vacancy,
        })
    }

    /// Lets the bound close idle connections of `pool` when others wait.
    pub fn watch(&self, pool: &Arc<impl IdleConnections + 'static>) {
        let pool = Arc::downgrade(pool) as Weak<dyn IdleConnections>;
        let mut pools = self.pools.lock();
        pools.retain(|known| known.strong_count() > 0);
        if !pools.iter().any(|known| known.ptr_eq(&pool)) {
            pools.push(pool);
        }
    }

    /// Closes an idle connection with one of these keys, so that the first request in the queue may
    /// open one: its own worker may have none, and those of other workers are of no use to it.
    pub fn close_an_idle_one<'a>(&self, mut keys: impl Iterator<Item = &'a str>) {
        let pools: Vec<_> = self.pools.lock().iter().filter_map(Weak::upgrade).collect();
        keys.any(|key| pools.iter().any(|pool| pool.close_one(key)));
    }

    /// A connection lies idle in `place`. If requests wait, the first is told if it can take it up
    /// there, and gets the slot of one that is closed otherwise. To be called once the connection
    /// is in its pool: a request that began to wait before has not found it there.
    pub fn offer_idle(&self, place: &PoolPlace) {
        while self.is_crowded() {
            let Some(first) = self.next(|queued| queued.place == *place) else {
                return self.close_an_idle_one(std::iter::once(&*place.key));
            };
            // Otherwise it has left meanwhile.
            if first.send(Vacancy::Idle).is_ok() {
                return;
            }
        }
    }

    fn record(&self, queue: &ConnectionQueue) {
        self.waiting.store(queue.waiting.len(), Ordering::SeqCst);
        self.pending.set(queue.waiting.len() as f64);
    }

    fn next(&self, fits: impl FnOnce(&QueuedConnect) -> bool) -> Option<oneshot::Sender<Vacancy>> {
        let mut queue = self.queue.lock();
        let first = queue
            .waiting
            .first_entry()
            .filter(|first| fits(first.get()))?;
        let next = first.remove();
        self.record(&queue);
        Some(next.sender)
    }

    /// Gives the slot of a closed connection to the first that waits.
    fn pass_on(self: Arc<Self>) {
        let mut slot = ConnectionSlot(Some(Arc::clone(&self)));
        loop {
            let mut queue = self.queue.lock();
            let Some((_, next)) = queue.waiting.pop_first() else {
                queue.open -= 1;
                drop(slot.0.take());
                return;
            };
            self.record(&queue);
            drop(queue);
            match next.sender.send(Vacancy::Slot(slot)) {
                Err(Vacancy::Slot(unwanted)) => slot = unwanted,
                _ => return,
            }
        }
    }
}

impl ConnectionSlot {
    /// The bound that it counts at.
    pub fn bound(&self) -> Option<&Arc<ConnectionBound>> {
        self.0.as_ref()
    }
}

impl BoundedPlace {
    pub fn new(bound: Arc<ConnectionBound>, place: PoolPlace) -> Self {
        Self { bound, place }
    }

    /// Begins to leave, if the request that waits longest cannot use this connection and no other
    /// one leaves for it.
    pub fn leave(&self) -> Option<LeavingConnection> {
        if !self.bound.is_crowded() {
            return None;
        }
        let queue = self.bound.queue.lock();
        let first = queue.waiting.values().next()?;
        if first.place == self.place
            || self.bound.leaving.load(Ordering::Relaxed) >= queue.waiting.len()
        {
            return None;
        }
        self.bound.leaving.fetch_add(1, Ordering::Relaxed);
        Some(LeavingConnection(Arc::clone(&self.bound)))
    }
}

impl Drop for LeavingConnection {
    fn drop(&mut self) {
        self.0.leaving.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConnectionQueue {
    fn number(&self, in_front: bool) -> i64 {
        if in_front {
            let first = self.waiting.first_key_value();
            first.map_or(0, |(number, _)| number - 1)
        } else {
            let last = self.waiting.last_key_value();
            last.map_or(0, |(number, _)| number + 1)
        }
    }
}

impl PendingConnect {
    /// Waits for its turn.
    pub async fn turn(&mut self) -> Vacancy {
        // The sender is in the queue or has sent: the queue never drops one.
        (&mut self.vacancy).await.unwrap_or(Vacancy::Idle)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if let Some(bound) = self.0.take() {
            bound.pass_on();
        }
    }
}

/// Gives its place in the queue back, and what it was given and did not take.
impl Drop for PendingConnect {
    fn drop(&mut self) {
        self.vacancy.close();
        match self.vacancy.try_recv() {
            Ok(Vacancy::Slot(slot)) => drop(slot),
            Ok(Vacancy::Idle) => self.bound.offer_idle(&self.place),
            Err(_) => {
                let mut queue = self.bound.queue.lock();
                // The number may be another request's by now, if this one has left the queue.
                if queue
                    .waiting
                    .get(&self.number)
                    .is_some_and(|queued| queued.sender.is_closed())
                {
                    queue.waiting.remove(&self.number);
                    self.bound.record(&queue);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    fn bound(connections: usize, pending: usize) -> Arc<ConnectionBound> {
        let connections = NonZeroUsize::new(connections);
        let bounds = UpstreamBounds {
            connections,
            pending: Some(pending),
            ..UpstreamBounds::default()
        };
        ConnectionBound::new(&bounds, Gauge::noop()).unwrap()
    }

    fn place(pool: usize) -> PoolPlace {
        PoolPlace {
            pool,
            key: "a".into(),
        }
    }

    fn slot(bound: &Arc<ConnectionBound>) -> ConnectionSlot {
        match bound.enter(place(0), false) {
            Entry::Slot(slot) => slot,
            _ => panic!("no slot"),
        }
    }

    fn pending(bound: &Arc<ConnectionBound>, pool: usize) -> PendingConnect {
        match bound.enter(place(pool), false) {
            Entry::Pending(pending) => pending,
            _ => panic!("does not wait"),
        }
    }

    #[tokio::test]
    async fn the_slot_of_a_closed_connection_goes_to_the_request_that_waits_longest() {
        let bound = bound(2, 3);
        let one = slot(&bound);
        let other = slot(&bound);
        let mut first = pending(&bound, 0);
        let gone = pending(&bound, 0);
        let mut second = pending(&bound, 0);
        assert!(matches!(bound.enter(place(0), false), Entry::Full));
        drop(gone);
        let mut third = pending(&bound, 0);
        drop(one);
        let Vacancy::Slot(first) = first.turn().await else {
            panic!("no slot")
        };
        assert!(futures_util::poll!(Box::pin(second.turn())).is_pending());
        drop((first, other));
        assert!(matches!(second.turn().await, Vacancy::Slot(_)));
        assert!(matches!(third.turn().await, Vacancy::Slot(_)));
        assert!(!bound.is_crowded());
        assert_eq!(bound.queue.lock().open, 0);
    }

    #[tokio::test]
    async fn a_slot_that_was_given_to_a_request_which_left_goes_on_to_the_next() {
        let bound = bound(1, 9);
        let held = slot(&bound);
        let left = pending(&bound, 0);
        let mut next = pending(&bound, 0);
        drop(held);
        drop(left);
        assert!(matches!(next.turn().await, Vacancy::Slot(_)));
    }

    #[tokio::test]
    async fn an_idle_connection_is_offered_to_the_first_only_and_only_in_its_own_pool() {
        let bound = bound(1, 9);
        let _held = slot(&bound);
        let mut first = pending(&bound, 1);
        let _second = pending(&bound, 0);
        bound.offer_idle(&place(0));
        assert!(futures_util::poll!(Box::pin(first.turn())).is_pending());
        bound.offer_idle(&place(1));
        assert!(matches!(first.turn().await, Vacancy::Idle));
        assert!(matches!(bound.enter(place(1), true), Entry::Pending(_)));
    }

    /// Holds the connection that lies idle in it.
    struct FakePool(Mutex<Option<ConnectionSlot>>);

    impl IdleConnections for FakePool {
        fn close_one(&self, _: &str) -> bool {
            let idle = self.0.lock().take();
            idle.is_some()
        }
    }

    #[tokio::test]
    async fn an_idle_connection_whose_request_has_left_goes_to_the_next_or_makes_room_for_it() {
        for next in [1, 0] {
            let bound = bound(1, 9);
            let pool = Arc::new(FakePool(Mutex::new(Some(slot(&bound)))));
            bound.watch(&pool);
            let left = pending(&bound, 1);
            let mut next_one = pending(&bound, next);
            bound.offer_idle(&place(1));
            drop(left);
            match next_one.turn().await {
                Vacancy::Idle => assert_eq!(next, 1),
                Vacancy::Slot(_) => assert_eq!(next, 0),
            }
        }
    }

    #[tokio::test]
    async fn requests_that_leave_in_any_order_leave_nothing_behind() {
        let bound = bound(1, usize::MAX);
        let held = slot(&bound);
        let mut waiting: Vec<_> = (0..100).map(|_| Some(pending(&bound, 0))).collect();
        for n in (0..100).step_by(2).chain((1..99).step_by(2).rev()) {
            waiting[n] = None;
        }
        assert_eq!(bound.queue.lock().waiting.len(), 1);
        drop(held);
        assert!(matches!(
            waiting[99].as_mut().unwrap().turn().await,
            Vacancy::Slot(_)
        ));
    }
}

//! Idle connections, per server. Each worker has a pool of its own, so the lock is never contended.
//!
//! Guarantees that the connection used last is used next, so the others expire. More connections
//! than the limit are kept while they are in use now and then. Otherwise, under a load that comes
//! in waves, each wave would close what the next wave has to open.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::upstream::bounds::{IdleConnections, PoolPlace};

/// A connection that a pool can keep.
pub trait Pooled {
    /// Equal for all connections that may carry the same requests.
    fn key(&self) -> &Arc<str>;

    /// Whether it can carry nothing any more.
    fn is_closed(&mut self) -> bool;

    /// Frees what an idle connection does not need.
    fn release_buffer(&mut self) {}
}

/// Idle connections.
pub struct Pool<C> {
    idle: Mutex<HashMap<Arc<str>, IdleStack<C>>>,
}

/// The idle connections to one server, the one used last on top.
struct IdleStack<C> {
    idle: Vec<IdleConnection<C>>,
    /// The smallest number of idle connections since the last sweep: that many were not needed.
    fewest: usize,
}

struct IdleConnection<C> {
    connection: C,
    expires: Instant,
    /// The number of connections that are kept although they are not needed.
    limit: usize,
}

/// The place of `pool` where requests of `key` find idle connections.
pub fn place<C>(pool: &Arc<Pool<C>>, key: &Arc<str>) -> PoolPlace {
    PoolPlace {
        pool: Arc::as_ptr(pool) as usize,
        key: Arc::clone(key),
    }
}

impl<C> IdleStack<C> {
    /// The connection used longest ago.
    fn take_oldest(&mut self) -> Option<IdleConnection<C>> {
        if self.idle.is_empty() {
            return None;
        }
        let oldest = self.idle.remove(0);
        self.fewest = self.fewest.min(self.idle.len());
        Some(oldest)
    }
}

impl<C> Default for IdleStack<C> {
    fn default() -> Self {
        Self {
            idle: Vec::new(),
            fewest: 0,
        }
    }
}

impl<C> Default for Pool<C> {
    fn default() -> Self {
        Self {
            idle: Mutex::new(HashMap::new()),
        }
    }
}

impl<C: Pooled> Pool<C> {
    /// The connection to `key` that was used last. Connections that have expired by `now` are
    /// dropped on the way.
    pub fn take(&self, key: &str, now: Instant) -> Option<C> {
        let mut idle = self.idle.lock();
        let stack = idle.get_mut(key)?;
        while let Some(mut newest) = stack.idle.pop() {
            stack.fewest = stack.fewest.min(stack.idle.len());
            if now < newest.expires && !newest.connection.is_closed() {
                return Some(newest.connection);
            }
        }
        None
    }

    /// Keeps `connection` until `expires`, or until the next sweep that finds more than `limit` and
    /// this one not needed.
    pub fn put(&self, connection: C, limit: usize, expires: Instant) {
        let mut idle = self.idle.lock();
        let stack = idle.entry_ref(&**connection.key()).or_default();
        stack.idle.push(IdleConnection {
            connection,
            expires,
            limit,
        });
    }

    /// Drops connections that are expired or closed, and those over the limit that were not needed
    /// since the last sweep.
    pub fn sweep(&self, now: Instant) {
        self.idle.lock().retain(|_, stack| {
            let limit = stack.idle.last().map_or(0, |idle| idle.limit);
            let surplus = stack.idle.len().saturating_sub(limit).min(stack.fewest);
            // The bottom of the stack was used longest ago.
            stack.idle.drain(..surplus);
            stack
                .idle
                .retain_mut(|idle| now < idle.expires && !idle.connection.is_closed());
            stack
                .idle
                .iter_mut()
                .for_each(|idle| idle.connection.release_buffer());
            stack.fewest = stack.idle.len();
            !stack.idle.is_empty()
        });
    }

    /// Closes the connections to servers that are not `wanted` any more.
    pub fn retain(&self, wanted: impl Fn(&str) -> bool) {
        let unwanted: Vec<_> = self.idle.lock().extract_if(|key, _| !wanted(key)).collect();
        // Dropped without the lock: their ends may wake requests that ask this pool.
        drop(unwanted);
    }

    /// Closes a connection of the server that has most, the one used longest ago. Returns whether
    /// there was one.
    pub fn close_any(&self) -> bool {
        let mut idle = self.idle.lock();
        let most = idle.values_mut().max_by_key(|stack| stack.idle.len());
        let closed = most.and_then(IdleStack::take_oldest);
        // Unlocked first: the end of the connection may wake a request that asks this pool.
        drop(idle);
        closed.is_some()
    }

    /// The number of connections kept.
    pub fn len(&self) -> usize {
        self.idle
            .lock()
            .values()
            .map(|stack| stack.idle.len())
            .sum()
    }
}

impl<C: Pooled + Send> IdleConnections for Pool<C> {
    fn close_one(&self, key: &str) -> bool {
        let mut idle = self.idle.lock();
        let oldest = idle.get_mut(key).and_then(IdleStack::take_oldest);
        // Unlocked first: the end of the connection may wake a request that asks this pool.
        drop(idle);
        oldest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use tollgate_limiter::clock;

    struct Fake {
        key: Arc<str>,
        number: u32,
        closed: bool,
    }

    impl Pooled for Fake {
        fn key(&self) -> &Arc<str> {
            &self.key
        }

        fn is_closed(&mut self) -> bool {
            self.closed
        }
    }

    fn fake(number: u32) -> Fake {
        Fake {
            key: "a:80".into(),
            number,
            closed: false,
        }
    }

    fn seconds(count: u64) -> Instant {
        clock::now() + Duration::from_secs(count)
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_one_in_is_the_first_one_out() {
        let pool = Pool::default();
        (0..3).for_each(|number| pool.put(fake(number), 8, seconds(10)));
        let order: Vec<_> = std::iter::from_fn(|| pool.take("a:80", clock::now()))
            .map(|fake| fake.number)
            .collect();
        assert_eq!(order, [2, 1, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn connections_over_the_limit_are_kept_while_they_are_needed() {
        let pool = Pool::default();
        for number in 0..6 {
            pool.put(fake(number), 2, seconds(10));
        }
        pool.sweep(clock::now());
        assert_eq!(pool.len(), 6);
        // Two were needed. Two of the four others may stay.
        for _ in 0..2 {
            assert!(pool.take("a:80", clock::now()).is_some());
        }
        for number in 6..8 {
            pool.put(fake(number), 2, seconds(10));
        }
        pool.sweep(clock::now());
        assert_eq!(pool.len(), 2);
        assert_eq!(pool.take("a:80", clock::now()).unwrap().number, 7);
    }

    #[tokio::test(start_paused = true)]
    async fn expired_and_closed_connections_are_never_handed_out_and_are_swept() {
        let pool = Pool::default();
        pool.put(fake(0), 8, seconds(1));
        pool.put(
            Fake {
                closed: true,
                ..fake(1)
            },
            8,
            seconds(10),
        );
        assert!(pool.take("a:80", seconds(1)).is_none());
        pool.put(fake(2), 8, seconds(1));
        pool.put(fake(3), 8, seconds(10));
        pool.sweep(seconds(1));
        assert_eq!(pool.len(), 1);
    }
}

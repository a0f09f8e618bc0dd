//! Connections without work, per server. One pool per worker, so its lock is never contended.
//!
//! Guarantees that the connection used last is used next, which lets the others grow old and go, and that no more are
//! kept than asked for. Knows nothing of what a connection is.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

/// What can be kept.
pub trait Pooled {
    /// The server it leads to.
    fn key(&self) -> &Arc<str>;

    /// It can carry nothing any more.
    fn is_closed(&self) -> bool;

    /// It has been idle for a while.
    fn rest(&mut self) {}
}

/// Idle connections.
pub struct Pool<C> {
    idle: Mutex<HashMap<Arc<str>, Vec<Idle<C>>>>,
}

struct Idle<C> {
    connection: C,
    expires: Instant,
}

impl<C> Default for Pool<C> {
    fn default() -> Self {
        Self { idle: Mutex::new(HashMap::new()) }
    }
}

impl<C: Pooled> Pool<C> {
    /// The connection to `key` that was used last. Those that are too old by `now` are dropped on the way.
    pub fn take(&self, key: &str, now: Instant) -> Option<C> {
        let mut idle = self.idle.lock();
        let stack = idle.get_mut(key)?;
        while let Some(newest) = stack.pop() {
            if now < newest.expires && !newest.connection.is_closed() {
                return Some(newest.connection);
            }
        }
        None
    }

    /// Keeps `connection` until `expires`, unless `limit` others to the same server are there already.
    pub fn put(&self, connection: C, limit: usize, expires: Instant) {
        let mut idle = self.idle.lock();
        let stack = idle.entry_ref(&**connection.key()).or_default();
        if stack.len() >= limit {
            stack.retain(|idle| !idle.connection.is_closed());
        }
        if stack.len() < limit {
            stack.push(Idle { connection, expires });
        }
    }

    /// Drops what is too old or closed.
    pub fn sweep(&self, now: Instant) {
        self.idle.lock().retain(|_, stack| {
            stack.retain(|idle| now < idle.expires && !idle.connection.is_closed());
            stack.iter_mut().for_each(|idle| idle.connection.rest());
            !stack.is_empty()
        });
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.idle.lock().values().map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock;

    struct Fake {
        key: Arc<str>,
        number: u32,
        closed: bool,
    }

    impl Pooled for Fake {
        fn key(&self) -> &Arc<str> {
            &self.key
        }

        fn is_closed(&self) -> bool {
            self.closed
        }
    }

    fn fake(number: u32) -> Fake {
        Fake { key: "a:80".into(), number, closed: false }
    }

    fn seconds(count: u64) -> Instant {
        clock::now() + Duration::from_secs(count)
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_one_in_is_the_first_one_out() {
        let pool = Pool::default();
        (0..3).for_each(|number| pool.put(fake(number), 8, seconds(10)));
        let order: Vec<_> = std::iter::from_fn(|| pool.take("a:80", clock::now())).map(|fake| fake.number).collect();
        assert_eq!(order, [2, 1, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_are_kept_than_asked_for() {
        let pool = Pool::default();
        (0..5).for_each(|number| pool.put(fake(number), 2, seconds(10)));
        assert_eq!(pool.len(), 2);
        pool.put(Fake { key: "b:80".into(), ..fake(9) }, 0, seconds(10));
        assert_eq!(pool.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_one_makes_room() {
        let pool = Pool::default();
        pool.put(Fake { closed: true, ..fake(0) }, 1, seconds(10));
        pool.put(fake(1), 1, seconds(10));
        assert_eq!(pool.take("a:80", clock::now()).unwrap().number, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn old_and_closed_ones_are_never_handed_out_and_are_swept() {
        let pool = Pool::default();
        pool.put(fake(0), 8, seconds(1));
        pool.put(Fake { closed: true, ..fake(1) }, 8, seconds(10));
        assert!(pool.take("a:80", seconds(1)).is_none());
        pool.put(fake(2), 8, seconds(1));
        pool.put(fake(3), 8, seconds(10));
        pool.sweep(seconds(1));
        assert_eq!(pool.len(), 1);
    }
}

//! The keys of a hash as far as this node has read them.
//!
//! Guarantees bounds on what it holds, however many keys clients make up, and that made-up keys
//! displace no key that a client has. No operation looks at more than one entry.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tollgate_limiter::limit::key::CallerIdentity;

use crate::generations::Generations;
use crate::key_table::CredentialHash;
use tollgate_limiter::clock::{self, Instant};

/// Keys of clients that are kept for certain. There is room for twice as many.
const KNOWN: usize = 65_536;

/// Keys that the store does not have.
const UNKNOWN: usize = 16_384;

/// How long an unknown key is not looked up again. A client may have just got it.
const UNKNOWN_FOR: Duration = Duration::from_secs(5);

/// The keys that were read.
pub struct StoredKeyCache {
    remember: Duration,
    grace: Duration,
    keys: RwLock<CachedKeys>,
}

struct CachedKeys {
    known: Generations<(Arc<CallerIdentity>, Instant)>,
    unknown: Generations<Instant>,
}

/// The cache's word on a key.
pub enum CachedKey {
    /// The key was read a moment ago.
    Known(Arc<CallerIdentity>),
    /// The store did not have the key a moment ago.
    Unknown,
    /// The key has to be read. If that fails, it is still this client's.
    Stale(Option<Arc<CallerIdentity>>),
}

impl StoredKeyCache {
    pub fn new(remember: Duration, grace: Duration) -> Self {
        let keys = CachedKeys {
            known: Generations::new(KNOWN),
            unknown: Generations::new(UNKNOWN),
        };
        Self {
            remember,
            grace,
            keys: RwLock::new(keys),
        }
    }

    pub fn find(&self, key: &CredentialHash) -> CachedKey {
        let keys = self.keys.read();
        let now = clock::now();
        if let Some((identity, read_at)) = keys.known.get(key) {
            let age = now.saturating_duration_since(*read_at);
            if age < self.remember {
                return CachedKey::Known(identity.clone());
            }
            if age < self.remember.saturating_add(self.grace) {
                return CachedKey::Stale(Some(identity.clone()));
            }
            return CachedKey::Stale(None);
        }
        match keys.unknown.get(key) {
            Some(since) if now.saturating_duration_since(*since) < UNKNOWN_FOR => {
                CachedKey::Unknown
            }
            _ => CachedKey::Stale(None),
        }
    }

    /// Takes note of what was read for `key`, by a call that began at `read_at`.
    pub fn learn(
        &self,
        key: CredentialHash,
        identity: Option<Arc<CallerIdentity>>,
        read_at: Instant,
    ) {
        let mut keys = self.keys.write();
        let forgotten = match identity {
            Some(identity) => {
                keys.unknown.remove(&key);
                (keys.known.insert(key, (identity, read_at)), None)
            }
            None => {
                keys.known.remove(&key);
                (None, keys.unknown.insert(key, read_at))
            }
        };
        // First the lock, for which all workers may wait.
        drop(keys);
        drop(forgotten);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> CredentialHash {
        crate::key_table::hash(&number.to_be_bytes())
    }

    fn ada() -> Option<Arc<CallerIdentity>> {
        Some(Arc::new(CallerIdentity::new("partners", "ada")))
    }

    fn cache() -> StoredKeyCache {
        StoredKeyCache::new(Duration::from_secs(30), Duration::from_secs(600))
    }

    fn stale(found: &CachedKey) -> Option<bool> {
        match found {
            CachedKey::Stale(identity) => Some(identity.is_some()),
            _ => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_fresh_for_a_while_then_good_in_need_and_then_forgotten() {
        let cache = cache();
        assert_eq!(stale(&cache.find(&key(1))), Some(false));
        cache.learn(key(1), ada(), clock::now());
        assert!(matches!(cache.find(&key(1)), CachedKey::Known(_)));
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(stale(&cache.find(&key(1))), Some(true));
        tokio::time::advance(Duration::from_secs(600)).await;
        assert_eq!(stale(&cache.find(&key(1))), Some(false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_was_taken_away_is_unknown_and_one_that_came_is_known_soon() {
        let cache = cache();
        cache.learn(key(1), ada(), clock::now());
        cache.learn(key(1), None, clock::now());
        assert!(matches!(cache.find(&key(1)), CachedKey::Unknown));
        tokio::time::advance(UNKNOWN_FOR).await;
        assert_eq!(stale(&cache.find(&key(1))), Some(false));
        cache.learn(key(1), ada(), clock::now());
        assert!(matches!(cache.find(&key(1)), CachedKey::Known(_)));
    }

    #[test]
    fn keys_that_clients_make_up_fill_no_memory_and_displace_no_client() {
        let cache = cache();
        cache.learn(key(0), ada(), clock::now());
        for number in 1..4 * UNKNOWN {
            cache.learn(key(number), None, clock::now());
        }
        assert!(cache.keys.read().unknown.len() <= 2 * UNKNOWN);
        assert!(matches!(cache.find(&key(0)), CachedKey::Known(_)));
    }
}

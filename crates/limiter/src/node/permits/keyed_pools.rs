//! The pools of the keys under one lock. Each operation takes the key's hash along, so that a
//! request hashes its key once.

use hashbrown::HashTable;

use crate::limit::key::Key;
use crate::node::permits::pool::PermitPool;

/// Pools by key.
#[derive(Default)]
pub(super) struct KeyedPools(HashTable<KeyedPool>);

struct KeyedPool {
    hash: u64,
    key: Key,
    pool: PermitPool,
}

impl KeyedPools {
    pub fn get(&self, hash: u64, key: &Key) -> Option<&PermitPool> {
        let known = self.0.find(hash, |known| known.key == *key);
        known.map(|known| &known.pool)
    }

    pub fn get_mut(&mut self, hash: u64, key: &Key) -> Option<&mut PermitPool> {
        let known = self.0.find_mut(hash, |known| known.key == *key);
        known.map(|known| &mut known.pool)
    }

    pub fn get_or_insert(&mut self, hash: u64, key: &Key) -> &mut PermitPool {
        let is_key = |known: &KeyedPool| known.key == *key;
        let entry = self.0.entry(hash, is_key, |known| known.hash);
        let known = entry.or_insert_with(|| KeyedPool {
            hash,
            key: key.clone(),
            pool: PermitPool::default(),
        });
        &mut known.into_mut().pool
    }

    /// Calls `visit` with the pool of `key`, if there is one, and forgets it if that says so.
    pub fn visit(&mut self, hash: u64, key: &Key, visit: impl FnOnce(&mut PermitPool) -> bool) {
        if let Ok(mut known) = self.0.find_entry(hash, |known| known.key == *key)
            && visit(&mut known.get_mut().pool)
        {
            known.remove();
        }
    }

    pub fn retain(&mut self, mut is_kept: impl FnMut(&PermitPool) -> bool) {
        self.0.retain(|known| is_kept(&known.pool));
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Key, &mut PermitPool)> {
        self.0.iter_mut().map(|known| (&known.key, &mut known.pool))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

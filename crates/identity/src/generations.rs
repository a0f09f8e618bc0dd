//! A table of what was found out about credentials lately, which forgets half of its entries at
//! once.
//!
//! Guarantees a bound on its entries, and that no operation looks at more than one of them.

use std::collections::HashMap;

use super::key_table::CredentialHash;

/// A table that forgets the older half of its entries at once when the newer half is full.
pub struct Generations<V> {
    newer: HashMap<CredentialHash, V>,
    older: HashMap<CredentialHash, V>,
    half: usize,
}

impl<V> Generations<V> {
    /// For `half` entries that are kept for certain. There is room for twice as many.
    pub fn new(half: usize) -> Self {
        Self {
            newer: HashMap::new(),
            older: HashMap::new(),
            half,
        }
    }

    pub fn get(&self, key: &CredentialHash) -> Option<&V> {
        self.newer.get(key).or_else(|| self.older.get(key))
    }

    /// Returns the half that is forgotten for it, if one is: to be dropped once no lock is held any
    /// more, since there may be thousands.
    #[must_use = "it is to be dropped behind the lock"]
    pub fn insert(&mut self, key: CredentialHash, value: V) -> Option<HashMap<CredentialHash, V>> {
        let forgotten = (self.newer.len() >= self.half).then(|| {
            let newer = std::mem::take(&mut self.newer);
            std::mem::replace(&mut self.older, newer)
        });
        self.newer.insert(key, value);
        forgotten
    }

    /// Whether the key is in the newer half.
    pub fn is_newer(&self, key: &CredentialHash) -> bool {
        self.newer.contains_key(key)
    }

    pub fn remove(&mut self, key: &CredentialHash) {
        self.newer.remove(key);
        self.older.remove(key);
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.newer.len() + self.older.len()
    }
}

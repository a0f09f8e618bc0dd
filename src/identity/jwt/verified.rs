//! Tokens that were verified, by their hash: a token that comes again costs no signature.
//!
//! Guarantees its bound, and that no entry outlives its token or the keys that verified it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tollgate_limiter::limit::key::CallerIdentity;

use crate::identity::api_key::CredentialHash;

/// Locks that workers share.
const SHARDS: usize = 16;

/// Tokens that were verified.
pub struct VerifiedTokens {
    shards: [Mutex<HashMap<CredentialHash, VerifiedToken>>; SHARDS],
    /// Entries of a shard at most.
    most: usize,
}

/// A token that was verified.
#[derive(Clone)]
pub struct VerifiedToken {
    pub identity: Arc<CallerIdentity>,
    /// In seconds since 1970, with the leeway.
    pub expires: f64,
    /// The version of the keys that it was verified by.
    pub key_set: CredentialHash,
}

impl VerifiedTokens {
    /// Room for `places` tokens, or a few more.
    pub fn new(places: usize) -> Self {
        Self { shards: Default::default(), most: places.div_ceil(SHARDS) }
    }

    /// The client whose token has this hash, if it is still good at `now`.
    pub fn find(&self, hash: &CredentialHash, key_set: &CredentialHash, now: f64) -> Option<Arc<CallerIdentity>> {
        let shard = self.shard(hash).lock();
        let token = shard.get(hash).filter(|token| token.key_set == *key_set && now < token.expires)?;
        Some(token.identity.clone())
    }

    /// Remembers a token. In a full table, those that are no good any more make room, or else any.
    pub fn insert(&self, hash: CredentialHash, token: VerifiedToken, now: f64) {
        let mut shard = self.shard(&hash).lock();
        if shard.len() >= self.most && !shard.contains_key(&hash) {
            let key_set = token.key_set;
            shard.retain(|_, known| known.key_set == key_set && now < known.expires);
            if shard.len() >= self.most
                && let Some(any) = shard.keys().next().copied()
            {
                shard.remove(&any);
            }
        }
        shard.insert(hash, token);
    }

    fn shard(&self, hash: &CredentialHash) -> &Mutex<HashMap<CredentialHash, VerifiedToken>> {
        &self.shards[usize::from(hash[0]) % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(expires: f64, key_set: u8) -> VerifiedToken {
        let identity = Arc::new(CallerIdentity::new("a", "b"));
        VerifiedToken { identity, expires, key_set: hash(key_set, 0) }
    }

    fn hash(first: u8, last: u8) -> CredentialHash {
        let mut hash = [0; 32];
        (hash[0], hash[31]) = (first, last);
        hash
    }

    #[test]
    fn a_token_is_known_until_it_expires_or_its_keys_are_others() {
        let tokens = VerifiedTokens::new(100);
        tokens.insert(hash(1, 1), token(10.0, 7), 0.0);
        let found = |key_set, now| tokens.find(&hash(1, 1), &hash(key_set, 0), now).is_some();
        assert_eq!([found(7, 9.9), found(7, 10.0), found(8, 1.0)], [true, false, false]);
    }

    #[test]
    fn the_table_keeps_its_bound_and_drops_the_expired_first() {
        let tokens = VerifiedTokens::new(SHARDS * 2);
        tokens.insert(hash(0, 0), token(1.0, 1), 0.0);
        for last in 1..=100 {
            tokens.insert(hash(0, last), token(9.0, 1), 2.0);
            assert!(tokens.find(&hash(0, last), &hash(1, 0), 2.0).is_some());
        }
        assert_eq!(tokens.shards[0].lock().len(), 2);
    }
}

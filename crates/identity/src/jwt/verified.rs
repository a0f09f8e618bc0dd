//! Tokens that were verified, by their hash: a token that comes again costs no signature.
//!
//! Guarantees bounds on their number and on the room that their claims take, and that no token is
//! good beyond its end or the keys that verified it. No operation looks at more than one entry.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tollgate_limiter::limit::key::CallerIdentity;

use crate::key_table::CredentialHash;

/// Locks that workers share.
const SHARDS: usize = 16;

/// Bytes of claims per token, on average. Tokens with longer ones displace others.
const MEAN_CLAIMS: usize = 1024;

/// Tokens that were verified.
pub struct VerifiedTokens {
    shards: [Mutex<TokenGenerations>; SHARDS],
    /// Entries of a generation at most.
    most: usize,
}

/// Tokens of a shard. When the newer ones are many, the older ones are forgotten at once.
#[derive(Default)]
struct TokenGenerations {
    newer: HashMap<CredentialHash, VerifiedToken>,
    older: HashMap<CredentialHash, VerifiedToken>,
    /// Bytes of claims of the newer ones.
    claims: usize,
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
        Self {
            shards: Default::default(),
            most: places.div_ceil(2 * SHARDS),
        }
    }

    /// The client whose token has this hash, if it is still good at `now`.
    pub fn find(
        &self,
        hash: &CredentialHash,
        key_set: &CredentialHash,
        now: f64,
    ) -> Option<Arc<CallerIdentity>> {
        let shard = self.shard(hash).lock();
        let token = shard.newer.get(hash).or_else(|| shard.older.get(hash))?;
        (token.key_set == *key_set && now < token.expires).then(|| token.identity.clone())
    }

    /// Remembers a token.
    pub fn insert(&self, hash: CredentialHash, token: VerifiedToken) {
        let size: usize = token
            .identity
            .claims
            .iter()
            .map(|(name, text)| name.len() + text.len())
            .sum();
        if size > self.most.saturating_mul(MEAN_CLAIMS) {
            return;
        }
        let mut shard = self.shard(&hash).lock();
        if shard.newer.len() >= self.most || shard.claims + size > self.most * MEAN_CLAIMS {
            // Dropped behind the lock: there may be many.
            let forgotten = shard.rotate();
            drop(shard);
            drop(forgotten);
            shard = self.shard(&hash).lock();
        }
        if shard.newer.insert(hash, token).is_none() {
            shard.claims += size;
        }
    }

    fn shard(&self, hash: &CredentialHash) -> &Mutex<TokenGenerations> {
        &self.shards[usize::from(hash[0]) % SHARDS]
    }
}

impl TokenGenerations {
    /// Returns the tokens that are forgotten.
    fn rotate(&mut self) -> HashMap<CredentialHash, VerifiedToken> {
        self.claims = 0;
        let newer = std::mem::take(&mut self.newer);
        std::mem::replace(&mut self.older, newer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(expires: f64, key_set: u8) -> VerifiedToken {
        let identity = Arc::new(CallerIdentity::new("a", "b"));
        VerifiedToken {
            identity,
            expires,
            key_set: hash(key_set, 0),
        }
    }

    fn hash(first: u8, last: u8) -> CredentialHash {
        let mut hash = [0; 32];
        hash[0] = first;
        hash[31] = last;
        hash
    }

    #[test]
    fn a_token_is_known_until_it_expires_or_its_keys_are_others() {
        let tokens = VerifiedTokens::new(100);
        tokens.insert(hash(1, 1), token(10.0, 7));
        for (key_set, now, is_known) in [(7, 9.9, true), (7, 10.0, false), (8, 1.0, false)] {
            let found = tokens.find(&hash(1, 1), &hash(key_set, 0), now);
            assert_eq!(found.is_some(), is_known, "{key_set} {now}");
        }
    }

    #[test]
    fn the_table_keeps_its_bound_and_forgets_the_oldest() {
        let tokens = VerifiedTokens::new(SHARDS * 8);
        for last in 0..100 {
            tokens.insert(hash(0, last), token(9.0, 1));
            for kept in last.saturating_sub(3)..=last {
                assert!(
                    tokens.find(&hash(0, kept), &hash(1, 0), 2.0).is_some(),
                    "{kept} of {last}"
                );
            }
        }
        let shard = tokens.shards[0].lock();
        assert!(shard.newer.len() + shard.older.len() <= 8);
    }

    #[test]
    fn claims_take_a_bounded_room_however_long_they_are() {
        let tokens = VerifiedTokens::new(SHARDS * 8);
        fn long(length: usize) -> VerifiedToken {
            let mut identity = CallerIdentity::new("a", "b");
            identity.claims.insert("x".into(), "x".repeat(length));
            VerifiedToken {
                identity: Arc::new(identity),
                expires: 9.0,
                key_set: hash(1, 0),
            }
        }
        for last in 0..8 {
            tokens.insert(hash(0, last), long(3_000));
        }
        tokens.insert(hash(0, 8), long(100_000));
        let mut known = Vec::new();
        for number in 0..=8 {
            if tokens.find(&hash(0, number), &hash(1, 0), 2.0).is_some() {
                known.push(number);
            }
        }
        assert!(
            known.contains(&7) && known.len() <= 2,
            "2 generations of 4 KiB: {known:?}"
        );
    }
}

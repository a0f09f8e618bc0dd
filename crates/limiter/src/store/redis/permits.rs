//! Slots for requests in flight, as nodes hold them together.
//!
//! Guarantees that claims are answered in their order, wherever their keys live. Refuses to know who is in a slot.

use fred::types::{Key, Value};
use futures_util::future::join_all;

use crate::algorithm::concurrency::{GrantedPermits, LEASE_US};
use crate::limit::key::Key as BucketKey;
use crate::store::redis::topology::link::CallError;
use crate::store::redis::{RedisStore, integer, script};
use crate::store::{PermitClaim, StoreError};

/// `!` starts no limit's name, so no bucket has such a key: a limit that counted tokens may count requests in flight now.
const KEYS: &str = "!in-flight:";

impl RedisStore {
    pub(crate) async fn claim_all(&self, claims: &[PermitClaim]) -> Result<Vec<GrantedPermits>, StoreError> {
        let keys: Vec<Vec<u8>> = claims.iter().map(|said| key(&said.key)).collect();
        let slots = self.by_slot(keys.iter().zip(claims).enumerate(), |(_, (key, _))| key);
        let parts = slots.iter().map(|(slot, part)| {
            let said: Vec<(&[u8], &PermitClaim)> =
                part.iter().map(|(_, (key, said))| (key.as_slice(), *said)).collect();
            async move { self.claim_slot(&said, *slot).await }
        });
        let mut held = vec![GrantedPermits::default(); claims.len()];
        for ((_, part), heard) in slots.iter().zip(join_all(parts).await) {
            for ((place, _), heard) in part.iter().zip(heard.map_err(CallError::of_one_key)?) {
                held[*place] = heard;
            }
        }
        Ok(held)
    }

    /// While their slot moves, keys may be apart, and are asked for one by one.
    async fn claim_slot(&self, said: &[(&[u8], &PermitClaim)], slot: u16) -> Result<Vec<GrantedPermits>, CallError> {
        match self.claim_part(said, slot).await {
            Err(CallError::Apart) if said.len() > 1 => {
                let each = said.iter().map(|one| self.claim_part(std::slice::from_ref(one), slot));
                join_all(each).await.into_iter().collect::<Result<Vec<_>, _>>().map(|parts| parts.concat())
            }
            other => other,
        }
    }

    async fn claim_part(&self, said: &[(&[u8], &PermitClaim)], slot: u16) -> Result<Vec<GrantedPermits>, CallError> {
        let keys = || said.iter().map(|(key, _)| self.key(key)).collect::<Vec<Key>>();
        let claims: Vec<&PermitClaim> = said.iter().map(|(_, said)| *said).collect();
        let input = |deadline| (keys(), args(&claims, deadline));
        let reply: Vec<i64> = self.link.run(&script::CONCURRENCY, slot, input).await?;
        parse(&reply, said.len()).ok_or(CallError::Store(StoreError::Protocol))
    }
}

/// Where the slots of a limit's key are.
pub(crate) fn key(of: &BucketKey) -> Vec<u8> {
    [KEYS.as_bytes(), of.as_bytes()].concat()
}

/// The script's ARGV: see its head. All are of one node.
pub(crate) fn args(said: &[&PermitClaim], deadline: i64) -> Vec<Value> {
    let node = said.first().map_or(0, |first| first.node);
    let mut args = vec![Value::Integer(deadline), Value::from(node.to_string()), integer(LEASE_US)];
    for PermitClaim { most, claim, .. } in said {
        args.extend([*most, claim.wanted, claim.needed, claim.turn].map(integer));
    }
    args
}

/// The script's reply for so many claims: see its head.
pub(crate) fn parse(reply: &[i64], claims: usize) -> Option<Vec<GrantedPermits>> {
    let pairs = reply.get(2..)?;
    let held =
        |pair: &[i64]| Some(GrantedPermits { own: u64::try_from(pair[0]).ok()?, others: u64::try_from(pair[1]).ok()? });
    (pairs.len() == 2 * claims).then(|| pairs.chunks_exact(2).map(held).collect())?
}

//! Claims of permits for requests in flight.
//!
//! Guarantees that claims are answered in their order, wherever their keys are.

use fred::types::{Key, Value};
use futures_util::future::join_all;

use crate::algorithm::concurrency::{
    DEMAND_US, GrantedPermits, LEASE_US, PermitRequest, ROTATION_US,
};
use crate::store::redis::permit_key;
use crate::store::redis::redis_store::RedisStore;
use crate::store::redis::script::{self, Integers, integer};
use crate::store::redis::topology::server::CallError;
use crate::store::{PermitClaim, StoreError};

impl RedisStore {
    pub(super) async fn claim_all(
        &self,
        claims: &[PermitClaim],
    ) -> Result<Vec<GrantedPermits>, StoreError> {
        let keys: Vec<Vec<u8>> = claims
            .iter()
            .map(|claim| permit_key::new(&claim.key))
            .collect();
        let hash_slots =
            self.by_hash_slot(keys.iter().zip(claims).enumerate(), |(_, (key, _))| key);
        let calls = hash_slots.iter().map(|(hash_slot, part)| {
            let claims: Vec<(&[u8], &PermitClaim)> = part
                .iter()
                .map(|(_, (key, claim))| (key.as_slice(), *claim))
                .collect();
            async move { self.claim_slot(&claims, *hash_slot).await }
        });
        let mut granted = vec![GrantedPermits::default(); claims.len()];
        for ((_, part), reply) in hash_slots.iter().zip(join_all(calls).await) {
            for ((place, _), permits) in part.iter().zip(reply.map_err(CallError::for_one_key)?) {
                granted[*place] = permits;
            }
        }
        Ok(granted)
    }

    /// Claims of one hash slot: in one call, or one by one while the slot moves between servers.
    async fn claim_slot(
        &self,
        claims: &[(&[u8], &PermitClaim)],
        hash_slot: u16,
    ) -> Result<Vec<GrantedPermits>, CallError> {
        match self.claim_together(claims, hash_slot).await {
            Err(CallError::SlotMoving) if claims.len() > 1 => {
                let each = claims
                    .iter()
                    .map(|one| self.claim_together(std::slice::from_ref(one), hash_slot));
                join_all(each)
                    .await
                    .into_iter()
                    .collect::<Result<Vec<_>, _>>()
                    .map(|parts| parts.concat())
            }
            other => other,
        }
    }

    async fn claim_together(
        &self,
        keyed: &[(&[u8], &PermitClaim)],
        hash_slot: u16,
    ) -> Result<Vec<GrantedPermits>, CallError> {
        let claims: Vec<&PermitClaim> = keyed.iter().map(|(_, claim)| *claim).collect();
        let Integers(reply) = self
            .topology
            .run(&script::CONCURRENCY, hash_slot, |deadline| {
                let mut keys: Vec<Key> = keyed.iter().map(|(key, _)| self.key(key)).collect();
                let since = self.since_key();
                let args = args(&claims, deadline, since.is_some());
                keys.extend(since);
                (keys, args)
            })
            .await?;
        parse(&reply, claims.len()).ok_or(CallError::Store(StoreError::Protocol))
    }
}

/// The script's ARGV: see its head. All claims are of one node.
pub(super) fn args(claims: &[&PermitClaim], deadline: i64, has_since: bool) -> Vec<Value> {
    let node = claims.first().map_or(0, |first| first.node);
    let mut args = vec![Value::Integer(deadline), Value::from(node.to_string())];
    args.extend([LEASE_US, DEMAND_US, ROTATION_US, has_since.into()].map(integer));
    for PermitClaim { most, claim, .. } in claims {
        let PermitRequest {
            wanted,
            demand,
            kept,
            needed,
            largest_cost,
            turn,
        } = *claim;
        args.extend([*most, wanted, demand, kept, needed, largest_cost, turn].map(integer));
    }
    args
}

/// The script's reply for `claims` claims: see its head.
pub(super) fn parse(reply: &[i64], claims: usize) -> Option<Vec<GrantedPermits>> {
    let (numbers, []) = reply.get(2..)?.as_chunks::<3>() else {
        return None;
    };
    if numbers.len() != claims {
        return None;
    }
    numbers
        .iter()
        .map(|[own, others, share]| {
            Some(GrantedPermits {
                own: u64::try_from(*own).ok()?,
                others: u64::try_from(*others).ok()?,
                share: u64::try_from(*share).ok()?,
            })
        })
        .collect()
}

//! Calls whose keys are in several hash slots of a cluster, where no script reaches all of them.
//!
//! Guarantees all or nothing, from below: the hash slots are charged in turn, each as many units as
//! those before it granted, and units that a later slot denies are refunded to the earlier ones. A
//! request is never admitted without a charge to each of its buckets. A refund that fails, and a
//! charge whose reply is lost, leave a bucket emptier than it need be until it has filled up. When
//! the time limit has passed, no further slot is charged. On a single server, and within one hash
//! slot, it is one group.

use smallvec::SmallVec;
use tokio::time::timeout_at;

use crate::algorithm::level::Level;
use crate::clock::{self, Instant};
use crate::limit::key::Key;
use crate::store::adjustment::{Adjustment, AdjustmentBatch, Change};
use crate::store::merged_charges::{MergedCharge, MergedCharges};
use crate::store::redis::redis_store::RedisStore;
use crate::store::redis::slot_call::SlotReply;
use crate::store::redis::topology::server::CallError;
use crate::store::{Grant, Store, StoreError, StoreFailure, late_answer_limit};

/// The reply of one hash slot, and the places of its charges in the request.
struct SlotGrant {
    places: Vec<usize>,
    reply: SlotReply,
}

impl RedisStore {
    /// Charges each bucket, wherever its key is.
    pub(super) async fn take_all(
        &self,
        charges: &MergedCharges<'_>,
        units: u32,
    ) -> Result<Grant, StoreFailure> {
        if self.topology.is_single_server() {
            let all: SmallVec<[&MergedCharge<'_>; 4]> = charges.list.iter().collect();
            let reply = self
                .take_slot(&all, 0, units)
                .await
                .map_err(CallError::for_one_key)?;
            return Ok(grant_of(charges, &reply));
        }
        Box::pin(self.take_by_hash_slot(charges, units)).await
    }

    async fn take_by_hash_slot(
        &self,
        charges: &MergedCharges<'_>,
        units: u32,
    ) -> Result<Grant, StoreFailure> {
        let sent = clock::now();
        let last = sent + late_answer_limit(self.timeout);
        let mut hash_slots =
            self.by_hash_slot(charges.list.iter().enumerate(), |(_, charge)| charge.key);
        if let [(hash_slot, all)] = &hash_slots[..] {
            let all: Vec<&MergedCharge<'_>> = all.iter().map(|(_, charge)| *charge).collect();
            match within(last, self.take_slot(&all, *hash_slot, units)).await {
                Ok(reply) => return Ok(grant_of(charges, &reply)),
                Err(CallError::SlotMoving) => {}
                Err(error) => {
                    return Err(StoreFailure {
                        server: self.topology.server_of(*hash_slot),
                        error: error.for_one_key(),
                    });
                }
            }
            let (hash_slot, all) = hash_slots.swap_remove(0);
            hash_slots = all.into_iter().map(|one| (hash_slot, vec![one])).collect();
        }
        self.take_in_turn(charges, hash_slots, units, sent).await
    }

    async fn take_in_turn<'a>(
        &self,
        charges: &MergedCharges<'a>,
        hash_slots: Vec<(u16, Vec<(usize, &MergedCharge<'a>)>)>,
        units: u32,
        sent: Instant,
    ) -> Result<Grant, StoreFailure> {
        let deadline = sent + self.timeout;
        let mut grants = Vec::with_capacity(hash_slots.len());
        let mut granted = units;
        // After a denial, the remaining slots are asked for 0 units: the answer has their levels
        // all the same.
        for (hash_slot, part) in hash_slots {
            let (places, list): (Vec<_>, Vec<_>) = part.into_iter().unzip();
            let reply = if clock::now() < deadline {
                within(
                    sent + late_answer_limit(self.timeout),
                    self.take_slot(&list, hash_slot, granted),
                )
                .await
            } else {
                Err(CallError::Store(StoreError::Timeout))
            };
            match reply {
                Ok(reply) => {
                    granted = reply.units;
                    grants.push(SlotGrant { places, reply });
                }
                Err(error) => {
                    // The refund goes on by itself: the request has its answer.
                    drop(self.refund(charges, &mut grants, 0));
                    let server = self.topology.server_of(hash_slot);
                    return Err(StoreFailure {
                        server,
                        error: error.for_one_key(),
                    });
                }
            }
        }
        if let Some(refund) = self.refund(charges, &mut grants, granted) {
            // Past the deadline the refund goes on by itself.
            let _ = timeout_at(deadline, refund).await;
        }
        Ok(merged(charges, &grants, granted))
    }

    /// Refunds what was taken beyond `granted` units, and corrects the levels. In a task, since the
    /// request may be dropped.
    ///
    /// A refund is less the tokens that flowed in since: another refund may have filled the bucket
    /// meanwhile, and then there was no room for this one. A bucket that fills by many tokens in
    /// the time of a call loses some to each denial elsewhere.
    fn refund(
        &self,
        charges: &MergedCharges<'_>,
        grants: &mut [SlotGrant],
        granted: u32,
    ) -> Option<tokio::task::JoinHandle<()>> {
        let mut adjustments = Vec::new();
        for SlotGrant { places, reply } in grants {
            let extra = u64::from(reply.units.saturating_sub(granted));
            for (index, (place, level)) in places.iter().zip(&mut reply.levels).enumerate() {
                if extra == 0 || reply.foreign.contains(&index) {
                    continue;
                }
                let Some(charge) = charges.list.get(*place) else {
                    continue;
                };
                let tokens = charge.cost.saturating_mul(extra);
                *level = Level {
                    remaining: level.remaining.saturating_add(tokens),
                    retry_after_us: 0,
                    reset_after_us: level
                        .reset_after_us
                        .saturating_sub(charge.quota.flow_us(tokens)),
                };
                let change = Change::Refund {
                    charge: charge.quota.charge(tokens),
                    taken_at_us: reply.at_us,
                };
                adjustments.push(Adjustment {
                    key: Key::from(charge.key),
                    quota: charge.quota,
                    change,
                });
            }
        }
        let store = self.clone();
        (!adjustments.is_empty()).then(|| {
            tokio::spawn(async move {
                let results = store.adjust(&AdjustmentBatch::once(adjustments)).await;
                if let Some(error) = results.iter().find_map(|result| result.as_ref().err()) {
                    tracing::debug!(%error, "tokens that another limit's denial made useless could not be refunded");
                }
            })
        })
    }
}

/// The grant of a single reply for all charges.
fn grant_of(charges: &MergedCharges<'_>, reply: &SlotReply) -> Grant {
    // Nearly always there is none.
    let foreign = if reply.foreign.is_empty() {
        SmallVec::new()
    } else {
        charges.charges_at(&reply.foreign)
    };
    Grant {
        units: reply.units,
        levels: charges.spread(&reply.levels),
        at_us: reply.at_us,
        foreign,
        whole: charges.spread(&reply.whole).into_vec().into(),
    }
}

async fn within<T>(
    deadline: Instant,
    call: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    timeout_at(deadline, call)
        .await
        .unwrap_or(Err(CallError::Store(StoreError::Timeout)))
}

/// The grant of all hash slots together. Its time is the earliest of several clocks: a refund
/// subtracts the tokens that flowed in since then, and must not subtract too few.
fn merged(charges: &MergedCharges<'_>, grants: &[SlotGrant], units: u32) -> Grant {
    let mut levels = vec![Level::default(); charges.list.len()];
    let mut foreign = Vec::new();
    for SlotGrant { places, reply } in grants {
        foreign.extend(reply.foreign.iter().filter_map(|index| places.get(*index)));
        for (place, replied) in places.iter().zip(&reply.levels) {
            if let Some(level) = levels.get_mut(*place) {
                *level = *replied;
            }
        }
    }
    let mut whole = Vec::new();
    if grants.iter().any(|grant| !grant.reply.whole.is_empty()) {
        whole.clone_from(&levels);
        for SlotGrant { places, reply } in grants {
            for (place, replied) in places.iter().zip(&reply.whole) {
                if let Some(level) = whole.get_mut(*place) {
                    *level = *replied;
                }
            }
        }
    }
    let at_us = grants
        .iter()
        .map(|grant| grant.reply.at_us)
        .min()
        .unwrap_or_default();
    Grant {
        units,
        levels: charges.spread(&levels),
        at_us,
        foreign: charges.charges_at(&foreign),
        whole: charges.spread(&whole).into_vec().into(),
    }
}

//! A request whose buckets live in several slots of a cluster, where no script reaches all of them.
//!
//! Guarantees all or nothing, from below: the slots are charged in turn, each as many units as those before it granted, and
//! what a later one denies is given back to the earlier ones. Nothing is admitted that one of them did not charge. A
//! give-back that fails, and a charge whose answer is lost, leave a bucket emptier than it need be until it has filled up.
//! On a single server, and within one slot, it is one call.

use fred::util::redis_keyslot;
use smallvec::SmallVec;
use tokio::time::timeout_at;

use crate::algorithm::level::Level;
use crate::clock::{self, Instant};
use crate::limit::key::Key;
use crate::store::redis::RedisStore;
use crate::store::redis::topology::link::{CallError, Topology};
use crate::store::{Adjustment, Change, Grant, Levels, MergedCharge, MergedCharges, StoreError};

/// What one slot said of its buckets.
pub(crate) struct SlotReply {
    pub units: u32,
    pub levels: Levels,
    /// Microseconds of its server's clock.
    pub at_us: u64,
}

/// Places of charges, and what their slot said.
struct Taken {
    places: Vec<usize>,
    part: SlotReply,
}

impl RedisStore {
    /// Takes what is charged, wherever it lives, within the time limit.
    pub(crate) async fn take_all(&self, charges: &MergedCharges<'_>, units: u32) -> Result<Grant, StoreError> {
        if self.link.is_one() {
            let all: SmallVec<[&MergedCharge<'_>; 4]> = charges.list.iter().collect();
            // It is one call, which ends in time by itself.
            let part = self.take_part(&all, 0, units).await.map_err(CallError::of_one_key)?;
            return Ok(Grant { units: part.units, levels: charges.spread(&part.levels), at_us: part.at_us });
        }
        Box::pin(self.take_by_slot(charges, units)).await
    }

    async fn take_by_slot(&self, charges: &MergedCharges<'_>, units: u32) -> Result<Grant, StoreError> {
        let deadline = clock::now() + self.timeout;
        let mut slots = self.by_slot(charges.list.iter().enumerate(), |(_, charge)| charge.key);
        if let [(slot, all)] = &slots[..] {
            let all: Vec<&MergedCharge<'_>> = all.iter().map(|(_, charge)| *charge).collect();
            match within(deadline, self.take_part(&all, *slot, units)).await {
                Ok(part) => {
                    let levels = charges.spread(&part.levels);
                    return Ok(Grant { units: part.units, levels, at_us: part.at_us });
                }
                Err(CallError::Apart) => {}
                Err(CallError::Store(error)) => return Err(error),
            }
            let (slot, all) = slots.swap_remove(0);
            slots = all.into_iter().map(|one| (slot, vec![one])).collect();
        }
        self.take_in_turn(charges, slots, units, deadline).await
    }

    async fn take_in_turn<'a>(
        &self,
        charges: &MergedCharges<'a>,
        slots: Vec<(u16, Vec<(usize, &MergedCharge<'a>)>)>,
        units: u32,
        deadline: Instant,
    ) -> Result<Grant, StoreError> {
        let mut taken = Vec::with_capacity(slots.len());
        let mut granted = units;
        // Those after a denial are asked for nothing: their levels are told all the same.
        for (slot, part) in slots {
            let (places, list): (Vec<_>, Vec<_>) = part.into_iter().unzip();
            match within(deadline, self.take_part(&list, slot, granted)).await {
                Ok(part) => {
                    granted = part.units;
                    taken.push(Taken { places, part });
                }
                Err(trouble) => {
                    // Nobody waits for it: the request has its answer.
                    drop(self.give_back(charges, &mut taken, 0));
                    return Err(trouble.of_one_key());
                }
            }
        }
        if let Some(giving) = self.give_back(charges, &mut taken, granted) {
            // It goes on when this is too late for it.
            let _ = timeout_at(deadline, giving).await;
        }
        Ok(grant(charges, &taken, granted))
    }

    /// Gives back what was taken beyond `granted` units, and corrects the levels. On its own, as the request may be dropped.
    ///
    /// Less what flowed in since: another's give-back may have filled the bucket meanwhile, and then this one had no room for
    /// it. So a bucket that fills by many tokens in the time of a call loses some to each denial elsewhere.
    fn give_back(
        &self,
        charges: &MergedCharges<'_>,
        taken: &mut [Taken],
        granted: u32,
    ) -> Option<tokio::task::JoinHandle<()>> {
        let mut adjustments = Vec::new();
        for Taken { places, part } in taken {
            let extra = u64::from(part.units.saturating_sub(granted));
            for (place, level) in places.iter().zip(&mut part.levels).filter(|_| extra > 0) {
                let Some(charge) = charges.list.get(*place) else { continue };
                let tokens = charge.cost.saturating_mul(extra);
                *level = Level {
                    remaining: level.remaining.saturating_add(tokens),
                    retry_after_us: 0,
                    reset_after_us: level.reset_after_us.saturating_sub(charge.quota.flow_us(tokens)),
                };
                let change = Change::Refund { charge: charge.quota.charge(tokens), taken_at_us: part.at_us };
                adjustments.push(Adjustment { key: Key::from(charge.key), quota: charge.quota, change });
            }
        }
        let store = self.clone();
        (!adjustments.is_empty()).then(|| {
            tokio::spawn(async move {
                if let Err(error) = crate::store::redis::Store::adjust(&store, &adjustments).await {
                    tracing::debug!(%error, "what one limit denied could not be given back to another");
                }
            })
        })
    }

    /// Items by the slot of their key, in the order of their first ones. All together where there are no slots.
    pub(crate) fn by_slot<'k, T>(
        &self,
        items: impl Iterator<Item = T>,
        key: impl Fn(&T) -> &'k [u8],
    ) -> Vec<(u16, Vec<T>)> {
        let mut slots: Vec<(u16, Vec<T>)> = Vec::new();
        for item in items {
            let slot = match &*self.link {
                Topology::Cluster(_) => redis_keyslot(self.key(key(&item)).as_bytes()),
                Topology::One(_) | Topology::Watched(..) => 0,
            };
            match slots.iter_mut().find(|(known, _)| *known == slot) {
                Some((_, items)) => items.push(item),
                None => slots.push((slot, vec![item])),
            }
        }
        slots
    }
}

async fn within<T>(deadline: Instant, call: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
    timeout_at(deadline, call).await.unwrap_or(Err(CallError::Store(StoreError::Timeout)))
}

/// Of several clocks the earliest: giving back counts what flowed in since, and must not count too little.
fn grant(charges: &MergedCharges<'_>, taken: &[Taken], units: u32) -> Grant {
    let mut levels = vec![Level::default(); charges.list.len()];
    for Taken { places, part } in taken {
        for (place, told) in places.iter().zip(&part.levels) {
            if let Some(level) = levels.get_mut(*place) {
                *level = *told;
            }
        }
    }
    let at_us = taken.iter().map(|taken| taken.part.at_us).min().unwrap_or_default();
    Grant { units, levels: charges.spread(&levels), at_us }
}

//! Charges to buckets whose keys share a hash slot: one command to one server.
//!
//! Guarantees that clients are told neither of tokens that are held back nor to wait longer than
//! they are.

use smallvec::SmallVec;

use crate::algorithm::held_back::{HeldBack, Reserve};
use crate::algorithm::level::Level;
use crate::clock;
use crate::store::Levels;
use crate::store::merged_charges::MergedCharge;
use crate::store::redis::redis_store::RedisStore;
use crate::store::redis::take::group::{Group, GroupReply, KeyCharge};
use crate::store::redis::topology::server::CallError;

/// A group is asked for again where its fixed window was that of another time: once to learn the
/// server's time, and once more where that is at the end of a window.
const TRIES: u32 = 3;

/// The reply for the buckets of one hash slot.
pub(crate) struct SlotReply {
    pub units: u32,
    pub levels: Levels,
    /// Microseconds of its server's clock.
    pub at_us: u64,
    /// The places of buckets whose keys hold a foreign value.
    pub foreign: SmallVec<[usize; 2]>,
    /// The levels of the whole limits, while parts of them are held back. Empty: they are the
    /// levels.
    pub whole: Vec<Level>,
}

/// A bucket to charge, and what is held back of it.
struct ReservedCharge<'a> {
    charge: &'a MergedCharge<'a>,
    reserve: Reserve,
}

impl RedisStore {
    /// Charges buckets of one hash slot.
    pub(super) async fn take_slot(
        &self,
        charges: &[&MergedCharge<'_>],
        hash_slot: u16,
        units: u32,
    ) -> Result<SlotReply, CallError> {
        let mut is_any_held_back = false;
        let mut reserved = SmallVec::<[_; 4]>::new();
        for charge in charges {
            let reserve = self.held_back(charge);
            is_any_held_back |= reserve.part != HeldBack::Nothing;
            reserved.push(ReservedCharge { charge, reserve });
        }
        let mut reply = self.call_slot(&reserved, hash_slot, units).await?;
        if is_any_held_back {
            // Boxed, like all that few calls need.
            Box::pin(self.hide_reserves(&reserved, hash_slot, &mut reply)).await;
        }
        Ok(reply)
    }

    /// Makes the levels of `reply` those of clients, for whom less than the whole limits is left. A
    /// window may deny for longer than a part of it is held back: then it is looked at without
    /// that.
    async fn hide_reserves(
        &self,
        charges: &[ReservedCharge<'_>],
        hash_slot: u16,
        reply: &mut SlotReply,
    ) {
        let mut whole = Vec::with_capacity(charges.len());
        let mut waits_too_long = false;
        for (ReservedCharge { charge, reserve }, level) in charges.iter().zip(&reply.levels) {
            let is_held_back = reserve.part != HeldBack::Nothing && charge.quota.tokens_expire();
            waits_too_long |= is_held_back && level.retry_after_us > reserve.left_us;
            let tokens = charge.quota.burst();
            let kept = if is_held_back {
                tokens - reserve.part.quota(tokens)
            } else {
                0
            };
            whole.push(Level {
                remaining: level.remaining.saturating_add(kept),
                retry_after_us: 0,
                ..*level
            });
        }
        if waits_too_long {
            let all: SmallVec<[_; 4]> = charges
                .iter()
                .map(|ReservedCharge { charge, .. }| ReservedCharge {
                    charge,
                    reserve: Reserve::NOTHING,
                })
                .collect();
            if let Ok(levels) = self.call_slot(&all, hash_slot, 0).await {
                whole = levels.levels.to_vec();
            }
        }
        let levels = reply.levels.iter_mut().zip(&whole);
        for (ReservedCharge { charge, reserve }, (level, whole)) in charges.iter().zip(levels) {
            let MergedCharge { quota, cost, .. } = **charge;
            *level = quota.level_holding_back(*reserve, cost, *level, whole.retry_after_us);
        }
        reply.whole = whole;
    }

    async fn call_slot(
        &self,
        charges: &[ReservedCharge<'_>],
        hash_slot: u16,
        units: u32,
    ) -> Result<SlotReply, CallError> {
        let since_us = clock::monotonic_micros();
        let mut reply = Err(CallError::Outside);
        for _ in 0..TRIES {
            let group = self.group(charges, units);
            reply = self.gatherers.ask(group, hash_slot, since_us).await;
            if !matches!(reply, Err(CallError::Outside)) {
                break;
            }
        }
        let GroupReply {
            units,
            levels,
            at_us,
            foreign,
        } = reply?;
        Ok(SlotReply {
            units,
            levels,
            at_us,
            foreign,
            whole: Vec::new(),
        })
    }

    fn group(&self, charges: &[ReservedCharge<'_>], units: u32) -> Group {
        let charges = charges.iter().map(|ReservedCharge { charge, reserve }| {
            let MergedCharge {
                key, quota, cost, ..
            } = **charge;
            let (charge, quota) = quota.holding_back(reserve.part, cost);
            KeyCharge {
                key: self.key(key),
                quota,
                charge,
            }
        });
        Group {
            units,
            charges: charges.collect(),
        }
    }
}

//! Charges to buckets whose keys share a hash slot: one command to one server.
//!
//! Guarantees that a reply which is not of the form that the script's head describes is an error,
//! never a grant, and that clients are told neither of tokens that are held back nor to wait longer
//! than they are.

use fred::types::Value;
use smallvec::SmallVec;

use crate::algorithm::held_back::{HeldBack, Reserve};
use crate::algorithm::level::Level;
use crate::store::merged_charges::MergedCharge;
use crate::store::redis::redis_store::RedisStore;
use crate::store::redis::script::{self, integer, integer_of};
use crate::store::redis::topology::server::CallError;
use crate::store::{Levels, StoreError};

/// Stands in a reply for the tokens left of a key that holds a foreign value.
const FOREIGN: i64 = -1;

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
        let script = script::take(charges.iter().map(|one| one.charge.quota));
        let reply: Value = self
            .topology
            .run(script, hash_slot, |deadline| {
                (
                    charges.iter().map(|one| self.key(one.charge.key)).collect(),
                    self.take_args(charges, units, deadline),
                )
            })
            .await?;
        parse(&reply, charges.len(), units).ok_or(CallError::Store(StoreError::Protocol))
    }

    /// The script's ARGV: see its head.
    fn take_args(&self, charges: &[ReservedCharge<'_>], units: u32, deadline: i64) -> Vec<Value> {
        let mut args = Vec::with_capacity(2 + 6 * charges.len());
        args.extend([Value::Integer(deadline), Value::Integer(units.into())]);
        for ReservedCharge { charge, reserve } in charges {
            let MergedCharge { quota, cost, .. } = **charge;
            let (cost, quota) = quota.holding_back(reserve.part, cost);
            args.extend([script::letter(quota), integer(cost)]);
            args.extend(script::numbers(quota, deadline, self.timeout));
        }
        args
    }
}

/// The script's reply for `buckets` buckets, which were asked for so many units: see its head.
pub(super) fn parse(reply: &Value, buckets: usize, asked: u32) -> Option<SlotReply> {
    let Value::Array(integers) = reply else {
        return None;
    };
    let ([units, now], rest) = integers.split_first_chunk()?;
    if rest.len() != 3 * buckets {
        return None;
    }
    let mut levels = Levels::new();
    let mut foreign = SmallVec::new();
    for (place, integers) in rest.chunks_exact(3).enumerate() {
        if let [
            Value::Integer(FOREIGN),
            Value::Integer(_),
            Value::Integer(_),
        ] = integers
        {
            foreign.push(place);
            levels.push(Level::default());
        } else {
            levels.push(level(integers)?);
        }
    }
    let units = u32::try_from(unsigned(units)?).ok()?;
    if units > asked {
        return None;
    }
    Some(SlotReply {
        units,
        levels,
        at_us: unsigned(now)?,
        foreign,
        whole: Vec::new(),
    })
}

fn level(integers: &[Value]) -> Option<Level> {
    let [remaining, retry_after, reset_after] = integers else {
        return None;
    };
    Some(Level {
        remaining: unsigned(remaining)?,
        retry_after_us: unsigned(retry_after)?,
        reset_after_us: unsigned(reset_after)?,
    })
}

fn unsigned(integer: &Value) -> Option<u64> {
    u64::try_from(integer_of(integer)?).ok()
}

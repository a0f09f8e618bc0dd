//! Script calls whose keys share a hash slot: one command to one server.
//!
//! Guarantees that a reply which is not of the form that the script's head describes is an error, never a grant.

use fred::types::Value;
use futures_util::future::join_all;

use crate::algorithm::level::Level;
use crate::algorithm::token_bucket::MAX_TICKS;
use crate::store::merged_charges::MergedCharge;
use crate::store::redis::redis_store::RedisStore;
use crate::store::redis::script::{self, integer};
use crate::store::redis::topology::server::CallError;
use crate::store::{Adjustment, Change, Levels, StoreError};

/// The reply for the buckets of one hash slot.
pub(crate) struct SlotReply {
    pub units: u32,
    pub levels: Levels,
    /// Microseconds of its server's clock.
    pub at_us: u64,
}

impl RedisStore {
    /// Charges buckets of one hash slot.
    pub(super) async fn take_slot(
        &self,
        charges: &[&MergedCharge<'_>],
        hash_slot: u16,
        units: u32,
    ) -> Result<SlotReply, CallError> {
        let keys = || charges.iter().map(|charge| self.key(charge.key)).collect();
        let input = |deadline| (keys(), self.take_args(charges, units, deadline));
        let script = script::take(charges.iter().map(|charge| charge.quota));
        let reply: Value = self.topology.run(script, hash_slot, input).await?;
        parse(&reply, charges.len()).ok_or(CallError::Store(StoreError::Protocol))
    }

    /// Corrects buckets of one hash slot: in one call, or one by one while the slot moves between servers.
    pub(super) async fn adjust_slot(&self, adjustments: &[&Adjustment], hash_slot: u16) -> Result<(), CallError> {
        match self.adjust_together(adjustments, hash_slot).await {
            Err(CallError::SlotMoving) if adjustments.len() > 1 => {
                let each = adjustments.iter().map(|one| self.adjust_together(std::slice::from_ref(one), hash_slot));
                join_all(each).await.into_iter().collect()
            }
            other => other,
        }
    }

    async fn adjust_together(&self, adjustments: &[&Adjustment], hash_slot: u16) -> Result<(), CallError> {
        let keys = || adjustments.iter().map(|adjustment| self.key(adjustment.key.as_bytes())).collect();
        let input = |deadline| (keys(), self.adjust_args(adjustments, deadline));
        self.topology.run::<Vec<i64>>(&script::ADJUST, hash_slot, input).await.map(drop)
    }

    /// The script's ARGV: see its head.
    fn take_args(&self, charges: &[&MergedCharge<'_>], units: u32, deadline: i64) -> Vec<Value> {
        let mut args = Vec::with_capacity(2 + 6 * charges.len());
        args.extend([Value::Integer(deadline), Value::Integer(units.into())]);
        for charge in charges {
            let MergedCharge { quota, cost, .. } = **charge;
            let (cost, quota) = quota.holding_back(self.held_back(charge), cost);
            args.extend([script::letter(quota), integer(cost)]);
            args.extend(script::numbers(quota, deadline, self.timeout));
        }
        args
    }

    /// The script's ARGV: see its head.
    fn adjust_args(&self, adjustments: &[&Adjustment], deadline: i64) -> Vec<Value> {
        let mut args = Vec::with_capacity(1 + 8 * adjustments.len());
        args.push(Value::Integer(deadline));
        for Adjustment { quota, change, .. } in adjustments {
            let [charged, refunded, taken_at] = match *change {
                Change::ForceCharge(charge) => [charge, 0, 0],
                Change::Charge(charge) => [charge.min(MAX_TICKS), 0, 0],
                Change::Refund { charge, taken_at_us } => [0, charge, taken_at_us],
            };
            args.push(script::letter(*quota));
            args.extend([charged, refunded, taken_at].map(integer));
            let bound = if let Change::Charge(_) = change { quota.unbounded() } else { *quota };
            args.extend(script::numbers(bound, deadline, self.timeout));
        }
        args
    }
}

/// The script's reply for so many buckets: see its head.
fn parse(reply: &Value, buckets: usize) -> Option<SlotReply> {
    let Value::Array(integers) = reply else { return None };
    let ([units, now], rest) = integers.split_first_chunk()?;
    if rest.len() != 3 * buckets {
        return None;
    }
    let levels = rest.chunks_exact(3).map(level).collect::<Option<Levels>>()?;
    Some(SlotReply { units: u32::try_from(unsigned(units)?).ok()?, levels, at_us: unsigned(now)? })
}

fn level(integers: &[Value]) -> Option<Level> {
    let [remaining, retry_after, reset_after] = integers else { return None };
    Some(Level {
        remaining: unsigned(remaining)?,
        retry_after_us: unsigned(retry_after)?,
        reset_after_us: unsigned(reset_after)?,
    })
}

fn unsigned(integer: &Value) -> Option<u64> {
    u64::try_from(integer.as_i64()?).ok()
}

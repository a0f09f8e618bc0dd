//! Charges to buckets whose keys share a hash slot: one command to one server.
//!
//! Guarantees that a reply which is not of the form that the script's head describes is an error,
//! never a grant.

use fred::types::Value;
use smallvec::SmallVec;

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
}

impl RedisStore {
    /// Charges buckets of one hash slot.
    pub(super) async fn take_slot(
        &self,
        charges: &[&MergedCharge<'_>],
        hash_slot: u16,
        units: u32,
    ) -> Result<SlotReply, CallError> {
        let script = script::take(charges.iter().map(|charge| charge.quota));
        let reply: Value = self
            .topology
            .run(script, hash_slot, |deadline| {
                (
                    charges.iter().map(|charge| self.key(charge.key)).collect(),
                    self.take_args(charges, units, deadline),
                )
            })
            .await?;
        parse(&reply, charges.len(), units).ok_or(CallError::Store(StoreError::Protocol))
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

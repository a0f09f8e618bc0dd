//! Buckets in Redis, shared by the fleet. The only place that names the client library.
//!
//! Guarantees that a call ends within the store's time limit, and that one that did charges nothing long after: each call
//! carries a deadline in Redis's own time, past which the script refuses. That covers what no client can take back, a command
//! that already left for a server that is stopped or behind. A call is given up at the time limit; the script refuses it at
//! the latest two time limits after it was sent.
//! Refuses to know what happens to requests meanwhile.

pub mod address;
mod client;
mod error;
mod fields;
pub mod heartbeat;
pub mod inspect;
mod permits;
mod script;
pub mod spec;
mod time;
pub mod tls;
mod topology;

use std::sync::Arc;
use std::time::Duration;

use fred::types::{Key, Value};
use futures_util::future::{BoxFuture, join_all};
use tokio::time::timeout_at;

use crate::algorithm::concurrency::GrantedPermits;
use crate::algorithm::level::Level;
use crate::algorithm::token_bucket::MAX_TICKS;
use crate::clock;
pub use crate::store::redis::client::ConnectError;
use crate::store::redis::client::Voice;
use crate::store::redis::spec::RedisSpec;
use crate::store::redis::topology::link::{CallError, Topology};
use crate::store::redis::topology::multi_slot::SlotReply;
use crate::store::{
    Adjustment, BucketCharge, Change, Grant, Levels, MergedCharge, MergedCharges, PermitClaim, Store, StoreError,
};

/// A worker's way to Redis. Clones use the same connections.
#[derive(Clone)]
pub struct RedisStore {
    link: Arc<Topology>,
    prefix: Arc<str>,
    timeout: Duration,
}

impl RedisStore {
    /// Starts connecting, in the current runtime, and returns at once: a Redis that is away is an outage like any other.
    ///
    /// # Errors
    /// When the URL is not one, or TLS cannot be set up.
    pub fn connect(spec: &RedisSpec) -> Result<Self, ConnectError> {
        let link = Arc::new(Topology::start(spec, spec.timeout, Voice::Quiet)?);
        Ok(Self { link, prefix: spec.key_prefix.clone(), timeout: spec.timeout })
    }

    /// Closes the connections, for this store and its clones.
    pub async fn close(&self) {
        self.link.quit().await;
    }

    /// MergedCharges buckets of one slot, in one call.
    async fn take_part(&self, charges: &[&MergedCharge<'_>], slot: u16, units: u32) -> Result<SlotReply, CallError> {
        let keys = || charges.iter().map(|charge| self.key(charge.key)).collect();
        let input = |deadline| (keys(), self.args(charges, units, deadline));
        let script = script::take(charges.iter().map(|charge| charge.quota));
        let reply: Value = self.link.run(script, slot, input).await?;
        parse(&reply, charges.len()).ok_or(CallError::Store(StoreError::Protocol))
    }

    /// Corrects buckets of one slot, in one call.
    async fn adjust_part(&self, adjustments: &[&Adjustment], slot: u16) -> Result<(), CallError> {
        let keys = || adjustments.iter().map(|adjustment| self.key(adjustment.key.as_bytes())).collect();
        let input = |deadline| (keys(), self.adjust_args(adjustments, deadline));
        self.link.run::<Vec<i64>>(&script::ADJUST, slot, input).await.map(drop)
    }

    async fn adjust_slot(&self, adjustments: &[&Adjustment], slot: u16) -> Result<(), CallError> {
        match self.adjust_part(adjustments, slot).await {
            Err(CallError::Apart) if adjustments.len() > 1 => {
                let each = adjustments.iter().map(|one| self.adjust_part(std::slice::from_ref(one), slot));
                join_all(each).await.into_iter().collect()
            }
            other => other,
        }
    }

    /// Slots are tried all, also when one fails: what is owed to one is not owed to another.
    async fn adjust_all(&self, adjustments: &[Adjustment]) -> Result<(), StoreError> {
        let parts = self.by_slot(adjustments.iter(), |adjustment| adjustment.key.as_bytes());
        let done = join_all(parts.iter().map(|(slot, part)| self.adjust_slot(part, *slot))).await;
        done.into_iter().collect::<Result<(), _>>().map_err(CallError::of_one_key)
    }

    /// The script's ARGV: see its head.
    fn args(&self, charges: &[&MergedCharge<'_>], units: u32, deadline: i64) -> Vec<Value> {
        let mut args = Vec::with_capacity(2 + 6 * charges.len());
        args.extend([Value::Integer(deadline), Value::Integer(units.into())]);
        for MergedCharge { quota, cost, .. } in charges {
            args.extend([script::letter(*quota), integer(*cost)]);
            args.extend(script::numbers(*quota, deadline, self.timeout));
        }
        args
    }

    /// The script's ARGV: see its head.
    fn adjust_args(&self, adjustments: &[&Adjustment], deadline: i64) -> Vec<Value> {
        let mut args = Vec::with_capacity(1 + 8 * adjustments.len());
        args.push(Value::Integer(deadline));
        for Adjustment { quota, change, .. } in adjustments {
            let [owed, back, taken_at] = match *change {
                Change::ForceCharge(charge) => [charge, 0, 0],
                Change::Charge(charge) => [charge.min(MAX_TICKS), 0, 0],
                Change::Refund { charge, taken_at_us } => [0, charge, taken_at_us],
            };
            args.push(script::letter(*quota));
            args.extend([owed, back, taken_at].map(integer));
            let bound = if let Change::Charge(_) = change { quota.unbounded() } else { *quota };
            args.extend(script::numbers(bound, deadline, self.timeout));
        }
        args
    }

    fn key(&self, key: &[u8]) -> Key {
        let mut bytes = Vec::with_capacity(self.prefix.len() + key.len());
        bytes.extend_from_slice(self.prefix.as_bytes());
        bytes.extend_from_slice(key);
        Key::from(bytes.into_boxed_slice())
    }
}

impl Store for RedisStore {
    fn take<'a>(&'a self, charges: &'a [BucketCharge], units: u32) -> BoxFuture<'a, Result<Grant, StoreError>> {
        Box::pin(async move {
            let charges = MergedCharges::of(charges);
            self.take_all(&charges, units).await
        })
    }

    fn adjust<'a>(&'a self, adjustments: &'a [Adjustment]) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let answer = timeout_at(clock::now() + self.timeout, self.adjust_all(adjustments)).await;
            answer.unwrap_or(Err(StoreError::Timeout))
        })
    }

    fn claim<'a>(&'a self, claims: &'a [PermitClaim]) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>> {
        Box::pin(async move {
            let answer = timeout_at(clock::now() + self.timeout, self.claim_all(claims)).await;
            answer.unwrap_or(Err(StoreError::Timeout))
        })
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }
}

/// What is beyond can never be granted anyway.
fn integer(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
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

//! Buckets in Redis, shared by the fleet. The only place that names the client library.
//!
//! Guarantees that a call ends within the store's time limit, and that one that did charges nothing long after: each call
//! carries a deadline in Redis's own time, past which the script refuses. That covers what no client can take back, a command
//! that already left for a server that is stopped or behind. A call is given up at the time limit; the script refuses it at
//! the latest two time limits after it was sent.
//! Refuses to know what happens to requests meanwhile.

mod client;
mod error;
pub mod fleet;
pub mod inspect;
mod script;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::{Key, Value};
use futures_util::future::BoxFuture;

pub use self::client::ConnectError;
use super::{Adjustment, Ask, Change, Charge, Charges, Grant, Levels, RedisSpec, Store, StoreError};
use crate::clock;
use crate::rate_limit::decision::Level;

/// One connection to Redis. Clones use the same one.
#[derive(Clone)]
pub struct RedisStore {
    client: Client,
    prefix: Arc<str>,
    timeout: Duration,
    time: Arc<ServerTime>,
}

impl RedisStore {
    /// Starts connecting, in the current runtime, and returns at once: a Redis that is away is an outage like any other.
    ///
    /// # Errors
    /// When the URL is not one, or TLS cannot be set up.
    pub fn connect(spec: &RedisSpec) -> Result<Self, ConnectError> {
        Ok(Self {
            client: client::start(spec, spec.timeout)?,
            prefix: spec.key_prefix.clone(),
            timeout: spec.timeout,
            time: Arc::default(),
        })
    }

    /// Closes the connection, for this store and its clones.
    pub async fn close(&self) {
        // A connection that cannot even be closed is gone already.
        let _ = tokio::time::timeout(self.timeout, self.client.quit()).await;
    }

    /// A refusal for being late is right for calls that nobody waits for any more. For one that is still awaited it means
    /// that this node does not know Redis's time, or no longer: once it does, the call is repeated.
    async fn take_charges(&self, charges: &Charges<'_>, units: u32) -> Result<Grant, StoreError> {
        for _ in 0..2 {
            let sent_us = clock::monotonic_micros();
            let deadline = self.time.after(sent_us, self.timeout);
            let keys = || charges.list.iter().map(|charge| self.key(charge.key)).collect();
            let input = || (keys(), args(charges, units, deadline));
            let reply = script::TOKEN_BUCKET.run(&self.client, input).await;
            let reply = reply.map_err(|error| error::store_error(&error))?;
            let (now, grant) = parse(&reply, charges)?;
            self.time.learn(sent_us, now);
            if let Some(grant) = grant {
                return Ok(grant);
            }
        }
        Err(StoreError::Timeout)
    }

    /// A refusal for being late has changed nothing, so it may be repeated here as well.
    async fn adjust_buckets(&self, adjustments: &[Adjustment]) -> Result<(), StoreError> {
        for _ in 0..2 {
            let sent_us = clock::monotonic_micros();
            let deadline = self.time.after(sent_us, self.timeout);
            let keys = || adjustments.iter().map(|adjustment| self.key(adjustment.key.as_bytes())).collect();
            let reply = script::ADJUST.run(&self.client, || (keys(), adjust_args(adjustments, deadline))).await;
            let reply = reply.map_err(|error| error::store_error(&error))?;
            let [done, now] = *reply.as_slice() else { return Err(StoreError::Protocol) };
            self.time.learn(sent_us, now);
            if done == 1 {
                return Ok(());
            }
        }
        Err(StoreError::Timeout)
    }

    fn key(&self, key: &[u8]) -> Key {
        let mut bytes = Vec::with_capacity(self.prefix.len() + key.len());
        bytes.extend_from_slice(self.prefix.as_bytes());
        bytes.extend_from_slice(key);
        Key::from(bytes.into_boxed_slice())
    }
}

impl Store for RedisStore {
    fn take<'a>(&'a self, asks: &'a [Ask], units: u32) -> BoxFuture<'a, Result<Grant, StoreError>> {
        Box::pin(async move {
            let charges = Charges::of(asks);
            let answer = tokio::time::timeout(self.timeout, self.take_charges(&charges, units)).await;
            answer.unwrap_or(Err(StoreError::Timeout))
        })
    }

    fn adjust<'a>(&'a self, adjustments: &'a [Adjustment]) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let answer = tokio::time::timeout(self.timeout, self.adjust_buckets(adjustments)).await;
            answer.unwrap_or(Err(StoreError::Timeout))
        })
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }
}

/// The script's ARGV: see its head.
fn args(charges: &Charges<'_>, units: u32, deadline: i64) -> Vec<Value> {
    let mut args = Vec::with_capacity(2 + 5 * charges.list.len());
    args.extend([Value::Integer(deadline), Value::Integer(units.into())]);
    for Charge { shape, cost, .. } in &charges.list {
        args.extend([shape.emission(), shape.capacity(), shape.ticks_per_us(), *cost, shape.reserve()].map(integer));
    }
    args
}

/// The script's ARGV: see its head.
fn adjust_args(adjustments: &[Adjustment], deadline: i64) -> Vec<Value> {
    let mut args = Vec::with_capacity(1 + 6 * adjustments.len());
    args.push(Value::Integer(deadline));
    for Adjustment { shape, change, .. } in adjustments {
        let [owed, back, taken_at] = match *change {
            Change::Owe(ticks) => [ticks, 0, 0],
            Change::GiveBack { ticks, taken_at_us } => [0, ticks, taken_at_us],
        };
        args.extend([shape.emission(), shape.capacity(), shape.ticks_per_us(), owed, back, taken_at].map(integer));
    }
    args
}

/// What is beyond can never be granted anyway.
fn integer(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Redis's time, and the grant; none when the deadline had passed.
fn parse(integers: &[i64], charges: &Charges<'_>) -> Result<(i64, Option<Grant>), StoreError> {
    let (head, rest) = integers.split_first_chunk::<2>().ok_or(StoreError::Protocol)?;
    let [units, now] = *head;
    let Ok(units) = u32::try_from(units) else { return Ok((now, None)) };
    if rest.len() != 3 * charges.list.len() {
        return Err(StoreError::Protocol);
    }
    let levels = rest.chunks_exact(3).map(level).collect::<Option<Levels>>().ok_or(StoreError::Protocol)?;
    let at_us = u64::try_from(now).map_err(|_| StoreError::Protocol)?;
    Ok((now, Some(Grant { units, levels: charges.spread(&levels), at_us })))
}

fn level(integers: &[i64]) -> Option<Level> {
    let [remaining, retry_after, reset_after] = integers else { return None };
    Some(Level {
        remaining: u64::try_from(*remaining).ok()?,
        retry_after_us: u64::try_from(*retry_after).ok()?,
        reset_after_us: u64::try_from(*reset_after).ok()?,
    })
}

/// Redis's clock, as far as this node can tell: never used for the arithmetic of buckets, only to tell when to give up.
struct ServerTime {
    /// Redis's microseconds less this node's monotonic ones.
    offset_us: AtomicI64,
}

/// Before any reply: every deadline has passed, so that the first call asks for the time instead of charging.
const UNKNOWN: i64 = i64::MIN;

impl Default for ServerTime {
    fn default() -> Self {
        Self { offset_us: AtomicI64::new(UNKNOWN) }
    }
}

impl ServerTime {
    /// Redis's time when `timeout` has passed since `sent_us`, or up to the latency of the last reply later.
    fn after(&self, sent_us: u64, timeout: Duration) -> i64 {
        match self.offset_us.load(Ordering::Relaxed) {
            UNKNOWN => 0,
            offset => offset.saturating_add(signed(sent_us)).saturating_add(signed(timeout.as_micros())),
        }
    }

    /// A call sent at `sent_us` found Redis at `now`. It ran after it was sent, so this offset is not too small.
    fn learn(&self, sent_us: u64, now: i64) {
        self.offset_us.store(now.saturating_sub(signed(sent_us)), Ordering::Relaxed);
    }
}

fn signed(micros: impl TryInto<i64>) -> i64 {
    micros.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(20_000);

    #[test]
    fn before_the_first_reply_every_deadline_has_passed() {
        assert_eq!(ServerTime::default().after(u64::MAX, LIMIT), 0);
    }

    #[test]
    fn a_deadline_is_a_time_limit_after_sending_and_at_most_a_latency_more() {
        let time = ServerTime::default();
        // Redis's clock reads 5_000_000 when this node's reads 1_000; the reply took some of the time from 900 on.
        time.learn(900, 5_000_000);
        assert_eq!(time.after(2_000, LIMIT), 5_001_000 + 20_000 + 100);
    }

    #[test]
    fn a_clock_that_steps_is_learned_anew_in_both_directions() {
        let time = ServerTime::default();
        for now in [5_000_000, 9_000_000_000, 1_000_000] {
            time.learn(1_000, now);
            assert_eq!(time.after(1_000, LIMIT), now + 20_000);
        }
    }
}

//! Looking at buckets in Redis, giving tokens back, and telling every node of it.
//!
//! Over a connection of its own: no request waits for an operator. Changes go through a stream that each node reads, a few
//! times a second. A node that can reach Redis learns of a change within `HEAR_EVERY` and a call; one that cannot, when
//! it can again, if that is within `KEPT`. Unlike a subscription, a stream survives a connection that breaks.

use std::sync::Arc;
use std::time::Duration;

use fred::types::{FromValue, Key, Value};
use fred::util::redis_keyslot;
use futures_util::future::BoxFuture;

use crate::algorithm::concurrency::{MAX_PERMITS, PermitRequest};
use crate::algorithm::quota::Quota;
use crate::algorithm::state::StoredState;
use crate::algorithm::token_bucket as bucket;

use crate::limit::key::Key as BucketKey;
use crate::store::inspect::{BeforeAndAfter, BucketState, ChangeNotice, Inspect, TokenGrant};
use crate::store::redis::client::{ConnectError, Voice};
use crate::store::redis::script::{self, Input, Script};
use crate::store::redis::spec::RedisSpec;
use crate::store::redis::topology::link::{CallError, Topology};
use crate::store::redis::{integer, permits as slots};
use crate::store::{BucketCharge, PermitClaim, StoreError};

/// An operator has this much patience.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(500);

/// Pause between two looks at the stream.
const HEAR_EVERY: Duration = Duration::from_millis(250);

/// How long a change can be read.
const KEPT: Duration = Duration::from_secs(600);

/// Changes read at once; more are read at once after.
const BATCH: usize = 500;

/// `!` starts no limit's name, so no bucket has this key.
const CHANGES_KEY: &str = "!changes";

/// Clones use the same connection.
#[derive(Clone)]
pub struct RedisInspector {
    pub(crate) link: Arc<Topology>,
    prefix: Arc<str>,
}

/// How far the stream was read. Starts as `default`, which hears all that is kept.
#[derive(Debug, Default)]
pub struct Heard(String);

impl RedisInspector {
    /// Starts connecting, in the current runtime, and returns at once.
    ///
    /// # Errors
    /// When the URL is not one, or TLS cannot be set up.
    pub fn connect(spec: &RedisSpec) -> Result<Self, ConnectError> {
        let link = Arc::new(Topology::start(spec, TIMEOUT, Voice::Quiet)?);
        Ok(Self { link, prefix: spec.key_prefix.clone() })
    }

    /// Closes the connection, for all clones.
    pub async fn close(&self) {
        self.link.quit().await;
    }

    /// Hands every change of any node, this one included, to `apply`. Runs until dropped.
    pub async fn listen(&self, apply: impl AsyncFn(ChangeNotice)) {
        let mut heard = Heard::default();
        loop {
            match self.hear(&mut heard).await {
                Ok(notices) => {
                    let more = notices.len() >= BATCH;
                    for notice in notices {
                        apply(notice).await;
                    }
                    if more {
                        continue;
                    }
                }
                Err(error) => tracing::debug!(%error, "this node could not ask what operators changed"),
            }
            tokio::time::sleep(HEAR_EVERY).await;
        }
    }

    /// The changes since the last time, oldest first.
    ///
    /// # Errors
    /// When Redis could not be asked; the next time hears what this one missed.
    pub async fn hear(&self, heard: &mut Heard) -> Result<Vec<ChangeNotice>, StoreError> {
        let batch = Value::Integer(i64::try_from(BATCH).unwrap_or(i64::MAX));
        let input = |_| (vec![self.changes()], vec![Value::from(heard.0.as_str()), batch.clone()]);
        let reply: Vec<Vec<u8>> = self.run(&script::CHANGES_POLL, &self.changes(), input).await?;
        let (place, changes) = reply.split_first().ok_or(StoreError::Protocol)?;
        let notices = changes.chunks(2).map(notice).collect::<Option<_>>().ok_or(StoreError::Protocol)?;
        heard.0 = String::from_utf8(place.clone()).map_err(|_| StoreError::Protocol)?;
        Ok(notices)
    }

    /// What there is before and after.
    async fn adjust(&self, charge: &BucketCharge, tokens: i64) -> Result<[BucketState; 2], StoreError> {
        let key = self.key(charge.key.as_bytes());
        let args = |deadline| {
            let mut args = vec![Value::Integer(deadline), Value::Integer(tokens), script::letter(charge.quota)];
            args.extend(script::numbers(charge.quota, deadline, TIMEOUT));
            args
        };
        let input = |deadline| (vec![key.clone()], args(deadline));
        let reply: Vec<i64> = self.run(&script::GRANT, &key, input).await?;
        seen(&reply, charge.quota).ok_or(StoreError::Protocol)
    }

    /// Permits that are held, as a node hears that holds none and wants none.
    async fn held_permits(&self, key: &BucketKey) -> Result<u64, StoreError> {
        let nobody = PermitRequest { wanted: 0, needed: 0, turn: 0 };
        let said = PermitClaim { key: key.clone(), most: MAX_PERMITS, node: 0, claim: nobody };
        let key = self.key(&slots::key(key));
        let input = |deadline| (vec![key.clone()], slots::args(&[&said], deadline));
        let reply: Vec<i64> = self.run(&script::CONCURRENCY, &key, input).await?;
        let held = slots::parse(&reply, 1).ok_or(StoreError::Protocol)?;
        Ok(held.first().map_or(0, |held| held.others))
    }

    /// The client's own time limit does not cover its waiting for a connection.
    async fn run<R: FromValue>(
        &self,
        script: &Script,
        key: &Key,
        input: impl Fn(i64) -> Input,
    ) -> Result<R, StoreError> {
        let answer = tokio::time::timeout(TIMEOUT, self.link.run(script, redis_keyslot(key.as_bytes()), input)).await;
        answer.map_err(|_| StoreError::Timeout)?.map_err(CallError::of_one_key)
    }

    pub(crate) fn key(&self, key: &[u8]) -> Key {
        Key::from([self.prefix.as_bytes(), key].concat().as_slice())
    }

    fn changes(&self) -> Key {
        self.key(CHANGES_KEY.as_bytes())
    }
}

fn notice(pair: &[Vec<u8>]) -> Option<ChangeNotice> {
    let [key, full_in] = pair else { return None };
    let full_in_us = str::from_utf8(full_in).ok()?.parse().ok()?;
    Some(ChangeNotice { key: BucketKey(key.as_slice().into()), full_in_us })
}

impl Inspect for RedisInspector {
    fn peek<'a>(&'a self, charge: &'a BucketCharge) -> BoxFuture<'a, Result<BucketState, StoreError>> {
        Box::pin(async move {
            let [before, _] = self.adjust(charge, 0).await?;
            Ok(before)
        })
    }

    fn permits_in_use<'a>(&'a self, key: &'a BucketKey) -> BoxFuture<'a, Result<u64, StoreError>> {
        Box::pin(self.held_permits(key))
    }

    fn give<'a>(
        &'a self,
        charge: &'a BucketCharge,
        gift: TokenGrant,
    ) -> BoxFuture<'a, Result<BeforeAndAfter, StoreError>> {
        let tokens = match gift {
            TokenGrant::All => -1,
            // More than any bucket holds is all of it, and stays exact in Lua's doubles.
            TokenGrant::Tokens(tokens) => i64::try_from(tokens.min(bucket::MAX_BURST)).unwrap_or(-1),
        };
        Box::pin(async move {
            let [before, after] = self.adjust(charge, tokens).await?;
            Ok(BeforeAndAfter { before, after })
        })
    }

    fn tell<'a>(&'a self, notice: &'a ChangeNotice) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let key = || Value::Bytes(notice.key.as_bytes().to_vec().into());
            let kept = Value::Integer(i64::try_from(KEPT.as_millis()).unwrap_or(i64::MAX));
            let input = |_| (vec![self.changes()], vec![key(), integer(notice.full_in_us), kept.clone()]);
            self.run::<Vec<i64>>(&script::CHANGES_PUBLISH, &self.changes(), input).await.map(drop)
        })
    }
}

/// The states that a script replied, as the limit sees them. `None`: no such reply.
fn seen(reply: &[i64], part: Quota) -> Option<[BucketState; 2]> {
    let number = |at: usize| u64::try_from(*reply.get(at)?).ok();
    let now_us = number(1)?;
    let middle = 3 + usize::try_from(number(2)?).ok()?;
    let numbers = |from, to| (from..to).map(number).collect::<Option<Vec<u64>>>();
    let (before, after) = (numbers(3, middle)?, numbers(middle + 1, reply.len())?);
    let seen = |numbers: &[u64]| {
        Some(BucketState {
            part,
            state: StoredState::from_reply(part, numbers, now_us)?.read_as(part, part.timestamp(now_us, 0)),
        })
    };
    Some([seen(&before)?, seen(&after)?])
}

impl std::fmt::Debug for RedisInspector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RedisInspector")
    }
}

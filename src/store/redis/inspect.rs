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

use super::client::{ConnectError, Voice};
use super::integer;
use super::link::{Link, Trouble};
use super::script::{self, Input, Script};
use crate::rate_limit::bucket::{self, Pace, Shape};
use crate::rate_limit::carry::Backlog;
use crate::rate_limit::key::Key as BucketKey;
use crate::store::inspect::{Changed, Gift, Inspect, Notice, Seen};
use crate::store::{Ask, RedisSpec, StoreError};

/// An operator has this much patience.
pub(super) const TIMEOUT: Duration = Duration::from_millis(500);

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
    pub(super) link: Arc<Link>,
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
        let link = Arc::new(Link::start(spec, TIMEOUT, Voice::Quiet)?);
        Ok(Self { link, prefix: spec.key_prefix.clone() })
    }

    /// Closes the connection, for all clones.
    pub async fn close(&self) {
        self.link.quit().await;
    }

    /// Hands every change of any node, this one included, to `apply`. Runs until dropped.
    pub async fn listen(&self, apply: impl AsyncFn(Notice)) {
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
    pub async fn hear(&self, heard: &mut Heard) -> Result<Vec<Notice>, StoreError> {
        let batch = Value::Integer(i64::try_from(BATCH).unwrap_or(i64::MAX));
        let input = |_| (vec![self.changes()], vec![Value::from(heard.0.as_str()), batch.clone()]);
        let reply: Vec<Vec<u8>> = self.run(&script::CHANGES_HEAR, &self.changes(), input).await?;
        let (place, changes) = reply.split_first().ok_or(StoreError::Protocol)?;
        let notices = changes.chunks(2).map(notice).collect::<Option<_>>().ok_or(StoreError::Protocol)?;
        heard.0 = String::from_utf8(place.clone()).map_err(|_| StoreError::Protocol)?;
        Ok(notices)
    }

    /// The bucket before and after.
    async fn adjust(&self, ask: &Ask, tokens: i64) -> Result<[Seen; 2], StoreError> {
        let key = self.key(ask.key.as_bytes());
        let args = |deadline| vec![Value::Integer(deadline), Value::Integer(tokens), integer(ask.shape.burst())];
        let input = |deadline| (vec![key.clone()], args(deadline));
        let reply: Vec<i64> = self.run(&script::BUCKET_ADJUST, &key, input).await?;
        let states = reply.get(2..).ok_or(StoreError::Protocol)?;
        let [before, after] = [0, 3].map(|at| seen(states.get(at..at + 3)?, ask.shape));
        Ok([before.ok_or(StoreError::Protocol)?, after.ok_or(StoreError::Protocol)?])
    }

    /// The client's own time limit does not cover its waiting for a connection.
    async fn run<R: FromValue>(
        &self,
        script: &Script,
        key: &Key,
        input: impl Fn(i64) -> Input,
    ) -> Result<R, StoreError> {
        let answer = tokio::time::timeout(TIMEOUT, self.link.run(script, redis_keyslot(key.as_bytes()), input)).await;
        answer.map_err(|_| StoreError::Timeout)?.map_err(Trouble::of_one_key)
    }

    pub(super) fn key(&self, key: &[u8]) -> Key {
        Key::from([self.prefix.as_bytes(), key].concat().as_slice())
    }

    fn changes(&self) -> Key {
        self.key(CHANGES_KEY.as_bytes())
    }
}

fn notice(pair: &[Vec<u8>]) -> Option<Notice> {
    let [key, full_in] = pair else { return None };
    let full_in_us = str::from_utf8(full_in).ok()?.parse().ok()?;
    Some(Notice { key: BucketKey(key.as_slice().into()), full_in_us })
}

impl Inspect for RedisInspector {
    fn peek<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Result<Seen, StoreError>> {
        Box::pin(async move {
            let [before, _] = self.adjust(ask, 0).await?;
            Ok(before)
        })
    }

    fn give<'a>(&'a self, ask: &'a Ask, gift: Gift) -> BoxFuture<'a, Result<Changed, StoreError>> {
        let tokens = match gift {
            Gift::All => -1,
            // More than any bucket holds is all of it, and stays exact in Lua's doubles.
            Gift::Tokens(tokens) => i64::try_from(tokens.min(bucket::MAX_BURST)).unwrap_or(-1),
        };
        Box::pin(async move {
            let [before, after] = self.adjust(ask, tokens).await?;
            Ok(Changed { before, after })
        })
    }

    fn tell<'a>(&'a self, notice: &'a Notice) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let key = || Value::Bytes(notice.key.as_bytes().to_vec().into());
            let kept = Value::Integer(i64::try_from(KEPT.as_millis()).unwrap_or(i64::MAX));
            let input = |_| (vec![self.changes()], vec![key(), integer(notice.full_in_us), kept.clone()]);
            self.run::<Vec<i64>>(&script::CHANGES_TELL, &self.changes(), input).await.map(drop)
        })
    }
}

/// A bucket as `shape` sees it. `None`: not a bucket.
fn seen(integers: &[i64], shape: Shape) -> Option<Seen> {
    let [ticks, emission, ticks_per_us] = integers else { return None };
    let [ticks, emission, ticks_per_us] = [*ticks, *emission, *ticks_per_us].map(|number| u64::try_from(number).ok());
    // One that is not there has no pace.
    let pace = if emission? == 0 { shape.pace() } else { Pace::new(emission?, ticks_per_us?)? };
    Some(Seen::of(shape, Backlog { ticks: ticks?, pace }.carried(shape)))
}

impl std::fmt::Debug for RedisInspector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RedisInspector")
    }
}

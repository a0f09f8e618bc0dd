//! An operator's view of buckets in Redis: reads them, grants tokens, and publishes each change to
//! the nodes.
//!
//! The connection is of its own: no request waits for an operator. Changes go through a stream
//! that each node polls, a few times a second. A node that reaches Redis learns of a change within
//! `POLL_INTERVAL` and a call. A node that does not learns of it when it reaches Redis again, if
//! that is within `RETENTION`. Unlike a subscription, a stream survives a broken connection.

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
use crate::store::inspect::{
    BeforeAndAfter, BucketState, ChangeNotice, FleetNode, Inspect, TokenGrant,
};
use crate::store::redis::connection::connector::{CallLimits, ConnectError, ConnectionEvents};
use crate::store::redis::connection::spec::RedisSpec;
use crate::store::redis::script::{self, Input, Integers, Script, integer};
use crate::store::redis::topology::any_topology::Topology;
use crate::store::redis::topology::evictions;
use crate::store::redis::topology::server::CallError;
use crate::store::redis::{permit_key, permits};
use crate::store::{BucketCharge, PermitClaim, ServerId, StoreError};

/// For an answer to an operator.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(500);

/// Pause between two polls of the stream.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// How long a change stays in the stream.
const RETENTION: Duration = Duration::from_secs(600);

/// Changes of one poll. After a full one, the next follows at once.
const BATCH: usize = 500;

/// `!` starts no limit's name, so no bucket has this key.
const CHANGES_KEY: &str = "!changes";

/// Reads and changes buckets in Redis. Clones use the same connection.
///
/// ```no_run
/// use tollgate_limiter::limit::key::Key;
/// use tollgate_limiter::store::inspect::Inspect;
/// use tollgate_limiter::store::redis::inspect::RedisInspector;
/// use tollgate_limiter::store::redis::spec::RedisSpec;
///
/// # async fn doc() -> Result<(), Box<dyn std::error::Error>> {
/// let inspector = RedisInspector::connect(&RedisSpec::new("redis://127.0.0.1"))?;
/// let in_flight = inspector.permits_in_use(&Key::from("uploads:192.0.2.1")).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RedisInspector {
    pub(super) topology: Arc<Topology>,
    pub(super) prefix: Arc<str>,
}

/// A position in the stream of changes. The default is its start.
#[derive(Debug, Default)]
pub struct ChangePosition(String);

impl RedisInspector {
    /// Starts connecting, in the current runtime, and returns at once.
    ///
    /// # Errors
    /// When the URL is invalid, or TLS cannot be set up.
    pub fn connect(spec: &RedisSpec) -> Result<Self, ConnectError> {
        let topology = Arc::new(Topology::start(
            spec,
            CallLimits::strict(TIMEOUT),
            ConnectionEvents::Silent,
        )?);
        Ok(Self {
            topology,
            prefix: spec.key_prefix.clone(),
        })
    }

    /// Closes the connection, for all clones.
    pub async fn close(&self) {
        self.topology.quit().await;
    }

    /// Hands every change of any node, this one included, to `apply`. Runs until dropped.
    pub async fn listen<F: Future<Output = ()>>(&self, apply: impl Fn(ChangeNotice) -> F) {
        let mut position = ChangePosition::default();
        loop {
            match self.poll(&mut position).await {
                Ok(notices) => {
                    let more = notices.len() >= BATCH;
                    for notice in notices {
                        apply(notice).await;
                    }
                    if more {
                        continue;
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "this node could not read the changes of operators")
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Counts the keys that Redis evicts, and warns of them once. Runs until dropped.
    pub async fn watch_evictions(&self) {
        evictions::watch(&self.topology).await;
    }

    /// The changes since `position`, oldest first, which moves behind them.
    ///
    /// # Errors
    /// When Redis could not be asked. The next poll has what this one missed.
    pub async fn poll(
        &self,
        position: &mut ChangePosition,
    ) -> Result<Vec<ChangeNotice>, StoreError> {
        let batch = Value::Integer(i64::try_from(BATCH).unwrap_or(i64::MAX));
        let reply: Vec<Vec<u8>> = self
            .run(&script::CHANGES_POLL, &self.changes(), |_| {
                (
                    vec![self.changes()],
                    vec![Value::from(position.0.as_str()), batch.clone()],
                )
            })
            .await?;
        let (end, notices) = notices(&reply)?;
        position.0 = end;
        Ok(notices)
    }

    /// Grants tokens: the bucket before and after.
    async fn grant_tokens(
        &self,
        charge: &BucketCharge,
        tokens: i64,
    ) -> Result<[BucketState; 2], StoreError> {
        let key = self.key(charge.key.as_bytes());
        let Integers(reply) = self
            .run(&script::GRANT, &key, |deadline| {
                let mut args = vec![
                    Value::Integer(deadline),
                    Value::Integer(tokens),
                    script::letter(charge.quota),
                ];
                args.extend(script::numbers(charge.quota, deadline, TIMEOUT).map(script::integer));
                (vec![key.clone()], args)
            })
            .await?;
        states(&reply, charge.quota).ok_or(StoreError::Protocol)
    }

    /// Permits that the nodes hold: the answer to a node that has none and claims none.
    async fn claimed_permits(&self, key: &BucketKey) -> Result<u64, StoreError> {
        let none = PermitRequest::default();
        let claim = PermitClaim {
            key: key.clone(),
            most: MAX_PERMITS,
            node: 0,
            claim: none,
        };
        let key = self.key(&permit_key::new(key));
        let Integers(reply) = self
            .run(&script::CONCURRENCY, &key, |deadline| {
                (vec![key.clone()], permits::args(&[&claim], deadline, false))
            })
            .await?;
        let granted = permits::parse(&reply, 1).ok_or(StoreError::Protocol)?;
        Ok(granted.first().map_or(0, |granted| granted.others))
    }

    /// Runs a script within the time limit: the client's own limit does not cover the wait for a
    /// connection.
    pub(super) async fn run<R: FromValue>(
        &self,
        script: &Script,
        key: &Key,
        input: impl Fn(i64) -> Input,
    ) -> Result<R, StoreError> {
        let answer = tokio::time::timeout(
            TIMEOUT,
            self.topology
                .run(script, redis_keyslot(key.as_bytes()), input),
        )
        .await;
        answer
            .map_err(|_| StoreError::Timeout)?
            .map_err(CallError::for_one_key)
    }

    pub(crate) fn key(&self, key: &[u8]) -> Key {
        Key::from([self.prefix.as_bytes(), key].concat().as_slice())
    }

    fn changes(&self) -> Key {
        self.key(CHANGES_KEY.as_bytes())
    }
}

/// The end of the stream, and the changes before it: the script's reply, see its head.
pub(super) fn notices(reply: &[Vec<u8>]) -> Result<(String, Vec<ChangeNotice>), StoreError> {
    let (end, changes) = reply.split_first().ok_or(StoreError::Protocol)?;
    let notices: Option<_> = changes.chunks(2).map(notice).collect();
    let end = String::from_utf8(end.clone()).map_err(|_| StoreError::Protocol)?;
    Ok((end, notices.ok_or(StoreError::Protocol)?))
}

fn notice(pair: &[Vec<u8>]) -> Option<ChangeNotice> {
    let [key, full_in] = pair else { return None };
    let full_in_us = str::from_utf8(full_in).ok()?.parse().ok()?;
    Some(ChangeNotice {
        key: BucketKey(key.as_slice().into()),
        full_in_us,
    })
}

impl Inspect for RedisInspector {
    fn peek<'a>(
        &'a self,
        charge: &'a BucketCharge,
    ) -> BoxFuture<'a, Result<BucketState, StoreError>> {
        Box::pin(async move {
            let [before, _] = self.grant_tokens(charge, 0).await?;
            Ok(before)
        })
    }

    fn permits_in_use<'a>(&'a self, key: &'a BucketKey) -> BoxFuture<'a, Result<u64, StoreError>> {
        Box::pin(self.claimed_permits(key))
    }

    fn grant<'a>(
        &'a self,
        charge: &'a BucketCharge,
        tokens: TokenGrant,
    ) -> BoxFuture<'a, Result<BeforeAndAfter, StoreError>> {
        let tokens = match tokens {
            TokenGrant::All => -1,
            // More than any bucket holds is all of it, and stays exact in Lua's doubles.
            TokenGrant::Tokens(tokens) => {
                i64::try_from(tokens.min(bucket::MAX_BURST)).unwrap_or(-1)
            }
        };
        Box::pin(async move {
            let [before, after] = self.grant_tokens(charge, tokens).await?;
            Ok(BeforeAndAfter { before, after })
        })
    }

    fn publish<'a>(&'a self, notice: &'a ChangeNotice) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let retention =
                Value::Integer(i64::try_from(RETENTION.as_millis()).unwrap_or(i64::MAX));
            self.run::<Integers>(&script::CHANGES_PUBLISH, &self.changes(), |_| {
                (
                    vec![self.changes()],
                    vec![
                        (Value::Bytes(notice.key.as_bytes().to_vec().into())),
                        integer(notice.full_in_us),
                        retention.clone(),
                    ],
                )
            })
            .await
            .map(drop)
        })
    }

    fn nodes(&self) -> BoxFuture<'_, Result<Vec<FleetNode>, StoreError>> {
        Box::pin(self.fleet_nodes())
    }

    fn server_of(&self, key: &BucketKey) -> ServerId {
        self.topology
            .server_of(redis_keyslot(self.key(key.as_bytes()).as_bytes()))
    }

    fn server_of_permits(&self, key: &BucketKey) -> ServerId {
        self.topology
            .server_of(redis_keyslot(self.key(&permit_key::new(key)).as_bytes()))
    }
}

/// The states that a script replied, before and after, as the limit reads them. `None`: no such
/// reply.
pub(super) fn states(reply: &[i64], quota: Quota) -> Option<[BucketState; 2]> {
    let numbers: Vec<u64> = reply
        .iter()
        .map(|number| u64::try_from(*number).ok())
        .collect::<Option<_>>()?;
    let [_, now_us, length, states @ ..] = numbers.as_slice() else {
        return None;
    };
    let (before, after) = states.split_at_checked(usize::try_from(*length).ok()?)?;
    let (_, after) = after.split_first()?;
    Some([
        state(before, quota, *now_us)?,
        state(after, quota, *now_us)?,
    ])
}

fn state(numbers: &[u64], quota: Quota, now_us: u64) -> Option<BucketState> {
    let stored = StoredState::from_reply(quota, numbers, now_us)?;
    let state = stored.read_as(quota, quota.timestamp(now_us, 0));
    Some(BucketState::whole(state))
}

impl std::fmt::Debug for RedisInspector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RedisInspector")
    }
}

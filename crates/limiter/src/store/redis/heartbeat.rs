//! Announces this node to the fleet, and learns how many nodes share the limits and which of them
//! this is.
//!
//! Guarantees that the count comes from Redis and by Redis's clock, that it outlives Redis (the
//! last one known stays), and that a count that falls is believed only after nodes had time to
//! announce themselves: an emptied Redis must not make each node take the whole of every limit. A
//! node that falls silent counts for the store's `autonomy`: it may be enforcing its share alone.

use std::sync::Arc;
use std::time::Duration;

use fred::types::{Key, Value};
use fred::util::redis_keyslot;

use crate::algorithm::share::Share;
use crate::clock::{self, Instant};
use crate::store::StoreError;
use crate::store::fleet_share::{FleetShare, NOTICE_US};
use crate::store::redis::connection::connector::{CallLimits, ConnectError, ConnectionEvents};
use crate::store::redis::connection::spec::RedisSpec;
use crate::store::redis::fleet_nodes;
use crate::store::redis::script::{self, Integers};
use crate::store::redis::topology::any_topology::Topology;
use crate::store::redis::topology::server::CallError;

/// How often a node announces itself.
const BEAT: Duration = Duration::from_millis(500);

/// A node that was not heard of for so long is silent: one beat may be lost, and the next be late
/// by half of its time.
const SILENCE: Duration = Duration::from_millis(1_250);

// The others learn of a silent node with their own next beat and its round trip.
const _: () = assert!(SILENCE.as_micros() + BEAT.as_micros() < NOTICE_US as u128);

/// A lower count is believed after so long: nodes have connected to a Redis that lost its data, and
/// announced themselves.
const BELIEF: Duration = Duration::from_secs(3);

/// No request waits for a beat. A lost one delays no other.
const TIMEOUT: Duration = BEAT;

/// The statement of this node about itself, as of now, for those who ask Redis for the nodes of the
/// fleet.
pub type NodeStatement = Arc<dyn Fn() -> Vec<u8> + Send + Sync>;

/// This process's membership.
pub struct Heartbeat {
    topology: Topology,
    /// The keys of the set of nodes, and of their statements.
    keys: Vec<Key>,
    id: String,
    share: Arc<FleetShare>,
    /// A node that was silent for so long is gone.
    autonomy: Duration,
    statement: Option<NodeStatement>,
}

/// The answer to a beat.
pub(super) struct Beat {
    share: Share,
    /// The ranks of the nodes that are silent.
    silent: Vec<u32>,
}

/// Since when the count is lower than the one that is believed.
type LowerSince = Option<Instant>;

impl Heartbeat {
    /// Starts connecting, in the current runtime, and returns at once. The node is announced by
    /// [`Self::run`].
    ///
    /// # Errors
    /// When the URL is invalid, or TLS cannot be set up.
    pub fn join(spec: &RedisSpec, share: Arc<FleetShare>) -> Result<Self, ConnectError> {
        Ok(Self {
            topology: Topology::start(spec, CallLimits::strict(TIMEOUT), ConnectionEvents::Logged)?,
            keys: fleet_nodes::keys(&spec.key_prefix),
            id: format!("{:032x}", fastrand::u128(..)),
            share,
            autonomy: spec.autonomy.max(SILENCE),
            statement: None,
        })
    }

    /// Tells, with each beat, what this node says of itself.
    #[must_use]
    pub fn stating(mut self, statement: NodeStatement) -> Self {
        self.statement = Some(statement);
        self
    }

    /// The id that this node is announced by.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Announces this node twice a second and keeps the share up to date. Runs until dropped.
    pub async fn run(&self) {
        let mut lower_since = LowerSince::None;
        let mut answered_at = clock::now();
        loop {
            let begun_at = clock::now();
            let begun_us = clock::monotonic_micros();
            match self.beat(self.autonomy).await {
                Ok(mut beat) => {
                    if begun_at.saturating_duration_since(answered_at) >= SILENCE {
                        // Nobody may have reached Redis: those who look silent are heard of in a
                        // moment.
                        beat.silent.clear();
                    }
                    answered_at = clock::now();
                    self.share.note_announced(begun_us);
                    self.learn(beat, &mut lower_since);
                }
                Err(error) => {
                    tracing::debug!(%error, "this node could not announce itself");
                    if clock::now().saturating_duration_since(answered_at) >= self.autonomy {
                        // Nobody is known to be silent any more.
                        self.share.set(self.share.get(), Vec::new());
                    }
                }
            }
            // By the beginning of the last one: a node that loses a beat must not fall silent by
            // it.
            tokio::time::sleep_until(begun_at + BEAT).await;
        }
    }

    /// Takes this node out, so that the others need not wait for its silence, and closes the
    /// connection.
    pub async fn leave(&self) {
        if let Err(error) = self.beat(Duration::ZERO).await {
            tracing::debug!(%error, "this node could not take itself out of the fleet");
        }
        self.topology.quit().await;
    }

    async fn beat(&self, ttl: Duration) -> Result<Beat, StoreError> {
        // A store that is late for requests may be in time for this.
        let alone = Value::Integer((self.share.alone_for() >= SILENCE - BEAT).into());
        let statement = Value::Bytes(self.statement().into());
        let slot = redis_keyslot(self.keys[0].as_bytes());
        let reply: Result<Integers, _> = self
            .topology
            .run(&script::HEARTBEAT, slot, |_| {
                let args = vec![
                    Value::from(self.id.as_str()),
                    millis(ttl),
                    millis(SILENCE),
                    alone.clone(),
                    statement.clone(),
                ];
                (self.keys.clone(), args)
            })
            .await;
        let Integers(reply) = reply.map_err(CallError::for_one_key)?;
        beat(&reply)
    }

    fn statement(&self) -> Vec<u8> {
        let statement = self
            .statement
            .as_ref()
            .map(|statement| statement())
            .unwrap_or_default();
        if statement.len() > fleet_nodes::LONGEST_STATEMENT {
            Vec::new()
        } else {
            statement
        }
    }

    fn learn(&self, beat: Beat, lower_since: &mut LowerSince) {
        let fewer = beat.share.nodes() < self.share.get().nodes();
        let since = *lower_since.get_or_insert_with(clock::now);
        if !fewer || clock::now().saturating_duration_since(since) >= BELIEF {
            *lower_since = None;
            self.share.set(beat.share, beat.silent);
        }
    }
}

/// The script's reply: see its head.
pub(super) fn beat(reply: &[i64]) -> Result<Beat, StoreError> {
    let numbers: Result<Vec<u32>, _> = reply.iter().map(|number| u32::try_from(*number)).collect();
    match numbers.as_deref() {
        Ok([nodes, rank, silent @ ..]) => Ok(Beat {
            share: Share::new(*nodes, *rank),
            silent: silent.to_vec(),
        }),
        _ => Err(StoreError::Protocol),
    }
}

fn millis(duration: Duration) -> Value {
    Value::Integer(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}

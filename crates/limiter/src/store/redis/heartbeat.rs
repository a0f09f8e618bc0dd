//! Announces this node to the fleet, and learns how many nodes share the limits and which of them
//! this is.
//!
//! Guarantees that the count comes from Redis and by Redis's clock, and that it outlives Redis: the
//! last one known stays, and a Redis that lost its data is told who was there. A node that falls
//! silent counts for its own `autonomy`: it may be enforcing its share alone. Not so a node whose
//! process is known to have ended (`witness`).

mod known_fleet;
mod member;
mod witness;

use std::sync::Arc;
use std::time::Duration;

use fred::types::{Key, Value};
use fred::util::redis_keyslot;

use crate::clock;
use crate::store::StoreError;
use crate::store::fleet_share::{FleetShare, NOTICE_US};
use crate::store::redis::connection::connector::{CallLimits, ConnectError, ConnectionEvents};
use crate::store::redis::connection::spec::RedisSpec;
use crate::store::redis::heartbeat::known_fleet::KnownFleet;
use crate::store::redis::heartbeat::member::{Beat, Member, SILENCE};
use crate::store::redis::heartbeat::witness::Witness;
use crate::store::redis::topology::any_topology::Topology;
use crate::store::redis::topology::server::CallError;
use crate::store::redis::{fleet_nodes, script};

/// How often a node announces itself.
const BEAT: Duration = Duration::from_millis(500);

// The others learn of a silent node with their own next beat and its round trip.
const _: () = assert!(SILENCE.as_micros() + BEAT.as_micros() < NOTICE_US as u128);

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
    /// When this node was silent for so long, the others count it as gone.
    autonomy: Duration,
    statement: Option<NodeStatement>,
    witness: Witness,
    /// The address of the store, without its password.
    url: String,
}

/// Changes of the set of nodes, beside this node's own.
#[derive(Default)]
struct Corrections {
    /// Nodes whose processes ended.
    ended: Vec<Member>,
    /// Nodes that Redis lost.
    lost: Vec<Member>,
}

impl Heartbeat {
    /// Starts connecting, in the current runtime, and returns at once. The node is announced by
    /// [`Self::run`].
    ///
    /// # Errors
    /// When the URL is invalid, or TLS cannot be set up.
    pub fn join(spec: &RedisSpec, share: Arc<FleetShare>) -> Result<Self, ConnectError> {
        let limits = CallLimits::strict(TIMEOUT);
        Ok(Self {
            topology: Topology::start(spec, limits, ConnectionEvents::Logged)?,
            keys: fleet_nodes::keys(&spec.key_prefix),
            id: format!("{:032x}", fastrand::u128(..)),
            share,
            autonomy: spec.autonomy.max(SILENCE),
            statement: None,
            witness: Witness::connect(spec)?,
            url: spec.redacted_url(),
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
        let mut known = KnownFleet::new(&self.id, self.share.get());
        self.witness.look(self.hash_slot()).await;
        let mut is_reached = false;
        loop {
            let begun_at = clock::now();
            let begun_us = clock::monotonic_micros();
            match self.beat(&known).await {
                Ok(beat) => {
                    // A beat writes, as requests do. Its answer proves more than a connection.
                    if !is_reached {
                        tracing::info!(store = %self.url, "the store is reached");
                        is_reached = true;
                    }
                    self.share.note_announced(begun_us);
                    let silent = known.learn(beat, begun_at);
                    self.share.set(known.share(), silent);
                    self.witness.look(self.hash_slot()).await;
                }
                Err(error) => {
                    let unheard = known.unanswered_for();
                    if unheard >= SILENCE {
                        self.share.note_unannounced(&error);
                    }
                    if unheard >= self.autonomy {
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
    /// connections.
    pub async fn leave(&self) {
        let left = self.call(String::new(), &Corrections::default()).await;
        if let Err(error) = left {
            tracing::debug!(%error, "this node could not take itself out of the fleet");
        }
        tokio::join!(self.topology.quit(), self.witness.quit());
    }

    /// Announces this node: once more, where Redis is wrong about the others.
    async fn beat(&self, known: &KnownFleet) -> Result<Beat, StoreError> {
        let connection = self.witness.announced();
        let connection = connection.map_or_else(String::new, |known| known.to_string());
        let own = format!("{}:{}:{connection}", self.id, self.autonomy.as_millis());
        let beat = self.call(own.clone(), &Corrections::default()).await?;
        let slot = self.hash_slot();
        let silent = beat
            .members
            .iter()
            .filter(|member| member.is_silent() && member.id() != self.id);
        let mut corrections = Corrections {
            ended: self.witness.ended(silent, slot).await,
            lost: Vec::new(),
        };
        if !beat.was_known {
            corrections.lost = known.others();
        }
        if corrections.ended.is_empty() && corrections.lost.is_empty() {
            return Ok(beat);
        }
        let corrected = self.call(own, &corrections).await?;
        Ok(Beat {
            was_known: beat.was_known,
            ..corrected
        })
    }

    /// Runs the script. `own`: see there.
    async fn call(&self, own: String, corrections: &Corrections) -> Result<Beat, StoreError> {
        let mut args = vec![Value::from(self.id.as_str()), Value::from(own)];
        // A store that is late for requests may be in time for this.
        let alone = self.share.alone_for() >= SILENCE - BEAT;
        args.push(millis(if alone { SILENCE } else { Duration::ZERO }));
        args.push(Value::Bytes(self.statement().into()));
        let Corrections { ended, lost } = corrections;
        args.push(Value::Integer(
            i64::try_from(ended.len()).unwrap_or(i64::MAX),
        ));
        args.extend(ended.iter().map(|member| Value::from(member.text())));
        for member in lost {
            args.extend([Value::from(member.text()), millis(member.unheard_for())]);
        }
        let reply: Result<Vec<String>, _> = self
            .topology
            .run(&script::HEARTBEAT, self.hash_slot(), |_| {
                (self.keys.clone(), args.clone())
            })
            .await;
        read_beat(&reply.map_err(CallError::for_one_key)?)
    }

    fn hash_slot(&self) -> u16 {
        redis_keyslot(self.keys[0].as_bytes())
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
}

/// The script's reply: see its head.
pub(super) fn read_beat(reply: &[String]) -> Result<Beat, StoreError> {
    let (was_known, members) = reply.split_first().ok_or(StoreError::Protocol)?;
    Ok(Beat {
        was_known: was_known == "1",
        members: members.chunks(2).filter_map(Member::read).collect(),
    })
}

fn millis(duration: Duration) -> Value {
    Value::Integer(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}

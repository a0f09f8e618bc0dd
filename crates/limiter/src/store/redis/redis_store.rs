//! The store that a worker asks: buckets and permits in Redis.
//!
//! Guarantees that a call which was given up charges nothing long after. Each call carries a
//! deadline in Redis's own time, past which the script refuses: no client can take back a command
//! that already left for a server that is stopped or behind. The script refuses a call at the
//! latest two time limits after it was sent. A call that takes waits longer for its answer than any
//! request, since it may have been carried out.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use fred::types::Key;
use fred::util::redis_keyslot;
use futures_util::TryFutureExt;
use futures_util::future::{BoxFuture, ready};
use tokio::time::timeout_at;

use crate::algorithm::concurrency::GrantedPermits;
use crate::algorithm::held_back::Reserve;
use crate::clock;
use crate::limit::key::Key as BucketKey;
use crate::store::adjustment::{AdjustmentBatch, AdjustmentResult};
use crate::store::fleet_share::FleetShare;
use crate::store::merged_charges::{MergedCharge, MergedCharges};
use crate::store::redis::connection::connector::{CallLimits, ConnectError, ConnectionEvents};
use crate::store::redis::connection::spec::RedisSpec;
use crate::store::redis::permit_key;
use crate::store::redis::take::gatherer::Gatherers;
use crate::store::redis::topology::any_topology::Topology;
use crate::store::redis::topology::marker::{AnsweredBatches, HASH_TAGS};
use crate::store::{
    BucketCharge, Grant, PROBE_KEY, PermitClaim, ServerId, Store, StoreError, StoreFailure,
    late_answer_limit, probe_bucket,
};

/// Keys that are tried for one on a certain server: with any 16 of 16 384 hash slots it has, one of
/// them is there.
const PROBE_KEYS: u32 = 8_192;

/// A worker's connections to Redis. Clones use the same connections.
#[derive(Clone)]
pub struct RedisStore {
    pub(super) topology: Arc<Topology>,
    prefix: Arc<str>,
    pub(super) timeout: Duration,
    pub(super) gatherers: Arc<Gatherers>,
    fleet: Option<Arc<FleetShare>>,
    pub(super) answered: Arc<AnsweredBatches>,
}

impl RedisStore {
    /// Starts connecting, in the current runtime, and returns at once: a Redis that is away is an
    /// outage like any other.
    ///
    /// # Errors
    /// When the URL is invalid, or TLS cannot be set up.
    pub fn connect(spec: &RedisSpec) -> Result<Self, ConnectError> {
        let limits = CallLimits {
            timeout: spec.timeout,
            answer: late_answer_limit(spec.timeout),
        };
        let topology = Arc::new(Topology::start(spec, limits, ConnectionEvents::Silent)?);
        if !topology.is_single_server() {
            // Now, since it would hold up requests later.
            LazyLock::force(&HASH_TAGS);
        }
        let prefix = spec.key_prefix.clone();
        let timeout = spec.timeout;
        let gatherers = Arc::new(Gatherers::new(topology.clone(), timeout));
        Ok(Self {
            topology,
            prefix,
            timeout,
            gatherers,
            fleet: None,
            answered: Arc::default(),
        })
    }

    /// This store for a node that holds back what silent nodes may be admitting.
    #[must_use]
    pub fn in_fleet(self, fleet: Arc<FleetShare>) -> Self {
        Self {
            fleet: Some(fleet),
            ..self
        }
    }

    /// Nodes of the fleet, as far as is known.
    pub(super) fn nodes(&self) -> u32 {
        self.fleet.as_ref().map_or(1, |fleet| fleet.get().nodes())
    }

    pub(super) fn held_back(&self, charge: &MergedCharge<'_>) -> Reserve {
        self.fleet
            .as_ref()
            .map_or(Reserve::NOTHING, |fleet| fleet.held_back(charge))
    }

    /// The key of the time since which Redis has known the fleet's claims of permits: where this
    /// node can tell that Redis should have known them for long. A cluster has no such key in each
    /// hash slot.
    pub(super) fn since_key(&self) -> Option<Key> {
        let fleet = self.fleet.as_ref()?;
        let has_others = fleet.get().nodes() > 1;
        (self.topology.is_single_server() && has_others && fleet.has_been_announced())
            .then(|| permit_key::since(&self.prefix))
    }

    /// Closes the connections, for this store and its clones.
    pub async fn close(&self) {
        self.topology.quit().await;
    }

    /// The name of a key in Redis.
    pub(super) fn key(&self, key: &[u8]) -> Key {
        let mut bytes = Vec::with_capacity(self.prefix.len() + key.len());
        bytes.extend_from_slice(self.prefix.as_bytes());
        bytes.extend_from_slice(key);
        Key::from(bytes.into_boxed_slice())
    }

    fn hash_slot(&self, key: &[u8]) -> u16 {
        redis_keyslot(self.key(key).as_bytes())
    }

    /// A key of its own on `server`. `None`: keys with this prefix are never there.
    fn probe_key(&self, server: ServerId) -> Option<BucketKey> {
        let keys = std::iter::once(PROBE_KEY.to_owned())
            .chain((0..PROBE_KEYS).map(|n| format!("{PROBE_KEY}:{n}")));
        let mut keys = keys.map(|key| BucketKey::from(key.as_str()));
        keys.find(|key| self.server_of(key) == server)
    }

    /// Items by the hash slot of their key, in the order of their first ones. All together where
    /// there are no hash slots.
    pub(super) fn by_hash_slot<'k, T>(
        &self,
        items: impl Iterator<Item = T>,
        key: impl Fn(&T) -> &'k [u8],
    ) -> Vec<(u16, Vec<T>)> {
        let mut hash_slots: Vec<(u16, Vec<T>)> = Vec::new();
        for item in items {
            let hash_slot = match &*self.topology {
                Topology::Cluster(_) => self.hash_slot(key(&item)),
                Topology::Single(_) | Topology::Sentinel(..) => 0,
            };
            match hash_slots.iter_mut().find(|(known, _)| *known == hash_slot) {
                Some((_, items)) => items.push(item),
                None => hash_slots.push((hash_slot, vec![item])),
            }
        }
        hash_slots
    }
}

impl Store for RedisStore {
    fn take<'a>(
        &'a self,
        charges: &'a [BucketCharge],
        units: u32,
    ) -> BoxFuture<'a, Result<Grant, StoreFailure>> {
        Box::pin(async move {
            let charges = MergedCharges::new(charges);
            self.take_all(&charges, units).await
        })
    }

    fn adjust<'a>(&'a self, batch: &'a AdjustmentBatch) -> BoxFuture<'a, Vec<AdjustmentResult>> {
        Box::pin(self.adjust_all(batch))
    }

    fn claim<'a>(
        &'a self,
        claims: &'a [PermitClaim],
    ) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>> {
        Box::pin(async move {
            let answer = timeout_at(clock::now() + self.timeout, self.claim_all(claims)).await;
            answer.unwrap_or(Err(StoreError::Timeout))
        })
    }

    fn probe(&self, server: ServerId) -> BoxFuture<'_, Result<(), StoreError>> {
        match self.probe_key(server) {
            Some(key) => Box::pin(probe_bucket(self, key).map_err(|failure| failure.error)),
            None => Box::pin(ready(Ok(()))),
        }
    }

    fn server_of(&self, key: &BucketKey) -> ServerId {
        match &*self.topology {
            Topology::Cluster(cluster) => cluster.server_of(self.hash_slot(key.as_bytes())),
            Topology::Single(_) | Topology::Sentinel(..) => ServerId::ONLY,
        }
    }

    fn server_of_permits(&self, key: &BucketKey) -> ServerId {
        match &*self.topology {
            Topology::Cluster(cluster) => cluster.server_of(self.hash_slot(&permit_key::new(key))),
            Topology::Single(_) | Topology::Sentinel(..) => ServerId::ONLY,
        }
    }

    fn server_name(&self, server: ServerId) -> String {
        match &*self.topology {
            Topology::Cluster(cluster) => cluster
                .server_name(server)
                .unwrap_or_else(|| "unknown".to_owned()),
            Topology::Single(_) | Topology::Sentinel(..) => String::new(),
        }
    }

    fn charges_at_once(&self) -> bool {
        self.topology.is_single_server()
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }
}

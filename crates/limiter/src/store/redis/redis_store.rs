//! The store that a worker asks: buckets and permits in Redis.
//!
//! Guarantees that a call ends within the store's time limit, and that a call which was given up charges nothing long
//! after. Each call carries a deadline in Redis's own time, past which the script refuses: no client can take back a
//! command that already left for a server that is stopped or behind. A call is given up at the time limit; the script
//! refuses it at the latest two time limits after it was sent.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use fred::types::Key;
use fred::util::redis_keyslot;
use futures_util::future::BoxFuture;
use tokio::time::timeout_at;

use crate::algorithm::concurrency::GrantedPermits;
use crate::clock;
use crate::store::adjustment::{AdjustmentBatch, AdjustmentResult};
use crate::store::merged_charges::MergedCharges;
use crate::store::redis::connection::connector::{ConnectError, ConnectionEvents};
use crate::store::redis::connection::spec::RedisSpec;
use crate::store::redis::topology::any_topology::Topology;
use crate::store::redis::topology::marker::{AnsweredBatches, HASH_TAGS};
use crate::store::{BucketCharge, Grant, PermitClaim, Store, StoreError};

/// A worker's connections to Redis. Clones use the same connections.
#[derive(Clone)]
pub struct RedisStore {
    pub(super) topology: Arc<Topology>,
    prefix: Arc<str>,
    pub(super) timeout: Duration,
    pub(super) answered: Arc<AnsweredBatches>,
}

impl RedisStore {
    /// Starts connecting, in the current runtime, and returns at once: a Redis that is away is an outage like any
    /// other.
    ///
    /// # Errors
    /// When the URL is invalid, or TLS cannot be set up.
    pub fn connect(spec: &RedisSpec) -> Result<Self, ConnectError> {
        let topology = Arc::new(Topology::start(spec, spec.timeout, ConnectionEvents::Silent)?);
        if !topology.is_single_server() {
            // Now, since it would hold up requests later.
            LazyLock::force(&HASH_TAGS);
        }
        Ok(Self { topology, prefix: spec.key_prefix.clone(), timeout: spec.timeout, answered: Arc::default() })
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

    /// Items by the hash slot of their key, in the order of their first ones. All together where there are no hash
    /// slots.
    pub(super) fn by_hash_slot<'k, T>(
        &self,
        items: impl Iterator<Item = T>,
        key: impl Fn(&T) -> &'k [u8],
    ) -> Vec<(u16, Vec<T>)> {
        let mut hash_slots: Vec<(u16, Vec<T>)> = Vec::new();
        for item in items {
            let hash_slot = match &*self.topology {
                Topology::Cluster(_) => redis_keyslot(self.key(key(&item)).as_bytes()),
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
    fn take<'a>(&'a self, charges: &'a [BucketCharge], units: u32) -> BoxFuture<'a, Result<Grant, StoreError>> {
        Box::pin(async move {
            let charges = MergedCharges::of(charges);
            self.take_all(&charges, units).await
        })
    }

    fn adjust<'a>(&'a self, batch: &'a AdjustmentBatch) -> BoxFuture<'a, Vec<AdjustmentResult>> {
        Box::pin(self.adjust_all(batch))
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

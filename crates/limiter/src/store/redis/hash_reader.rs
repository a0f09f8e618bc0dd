//! Reads hashes in Redis that operators write, by a script, which finds its server like the scripts
//! of buckets.
//!
//! Guarantees that a read ends within the time limit of its connection.

use std::time::Duration;

use fred::types::{Key, Value};
use fred::util::redis_keyslot;
use futures_util::future::BoxFuture;

use crate::limit::key::Key as FieldName;
use crate::store::hash_reader::{FieldValue, HashReader};
use crate::store::redis::inspect::{self, RedisInspector};
use crate::store::redis::redis_store::RedisStore;
use crate::store::redis::script;
use crate::store::redis::topology::any_topology::Topology;
use crate::store::redis::topology::server::CallError;
use crate::store::{ServerId, StoreError};

/// Reads over a worker's connection, for its requests.
impl HashReader for RedisStore {
    fn read<'a>(
        &'a self,
        name: &'a str,
        fields: &'a [FieldName],
    ) -> BoxFuture<'a, Result<Vec<FieldValue>, StoreError>> {
        Box::pin(read(
            &self.topology,
            self.key(name.as_bytes()),
            fields,
            self.timeout,
        ))
    }

    fn server_of_hash(&self, name: &str) -> ServerId {
        self.topology
            .server_of(redis_keyslot(self.key(name.as_bytes()).as_bytes()))
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }
}

/// Reads over the operators' connection, for their questions.
impl HashReader for RedisInspector {
    fn read<'a>(
        &'a self,
        name: &'a str,
        fields: &'a [FieldName],
    ) -> BoxFuture<'a, Result<Vec<FieldValue>, StoreError>> {
        Box::pin(read(
            &self.topology,
            self.key(name.as_bytes()),
            fields,
            inspect::TIMEOUT,
        ))
    }

    fn server_of_hash(&self, name: &str) -> ServerId {
        self.topology
            .server_of(redis_keyslot(self.key(name.as_bytes()).as_bytes()))
    }

    fn timeout(&self) -> Duration {
        inspect::TIMEOUT
    }
}

async fn read(
    topology: &Topology,
    key: Key,
    fields: &[FieldName],
    timeout: Duration,
) -> Result<Vec<FieldValue>, StoreError> {
    let call = topology.run(&script::PLANS_READ, redis_keyslot(key.as_bytes()), |_| {
        let fields = fields
            .iter()
            .map(|field| Value::Bytes(field.as_bytes().to_vec().into()));
        (vec![key.clone()], fields.collect())
    });
    let answer = tokio::time::timeout(timeout, call)
        .await
        .map_err(|_| StoreError::Timeout)?;
    let values: Vec<FieldValue> = answer.map_err(CallError::for_one_key)?;
    if values.len() == fields.len() {
        Ok(values)
    } else {
        Err(StoreError::Protocol)
    }
}

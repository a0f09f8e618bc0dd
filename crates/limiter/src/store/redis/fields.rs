//! Hashes in Redis that operators write: read by a script, which goes where the buckets' scripts go, whatever the topology.
//!
//! Guarantees that a read ends within the time limit of the connection it goes over. Refuses to know what fields hold.

use std::time::Duration;

use fred::types::{Key, Value};
use fred::util::redis_keyslot;
use futures_util::future::BoxFuture;

use crate::limit::key::Key as FieldName;
use crate::store::StoreError;
use crate::store::fields::{Field, HashReader};
use crate::store::redis::inspect::{self, RedisInspector};
use crate::store::redis::topology::link::{CallError, Topology};
use crate::store::redis::{RedisStore, script};

/// Over a worker's connection, for its requests.
impl HashReader for RedisStore {
    fn read<'a>(&'a self, name: &'a str, fields: &'a [FieldName]) -> BoxFuture<'a, Result<Vec<Field>, StoreError>> {
        Box::pin(read(&self.link, self.key(name.as_bytes()), fields, self.timeout))
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }
}

/// Over the operators' connection, for their questions.
impl HashReader for RedisInspector {
    fn read<'a>(&'a self, name: &'a str, fields: &'a [FieldName]) -> BoxFuture<'a, Result<Vec<Field>, StoreError>> {
        Box::pin(read(&self.link, self.key(name.as_bytes()), fields, inspect::TIMEOUT))
    }

    fn timeout(&self) -> Duration {
        inspect::TIMEOUT
    }
}

async fn read(link: &Topology, key: Key, fields: &[FieldName], timeout: Duration) -> Result<Vec<Field>, StoreError> {
    let args = || fields.iter().map(|field| Value::Bytes(field.as_bytes().to_vec().into())).collect();
    let call = link.run(&script::PLANS_READ, redis_keyslot(key.as_bytes()), |_| (vec![key.clone()], args()));
    let answer = tokio::time::timeout(timeout, call).await.map_err(|_| StoreError::Timeout)?;
    let values: Vec<Field> = answer.map_err(CallError::of_one_key)?;
    if values.len() == fields.len() { Ok(values) } else { Err(StoreError::Protocol) }
}

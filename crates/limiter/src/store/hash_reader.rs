//! Reads hashes that operators write, for limits with plans: one field for each client that has a
//! plan of its own.
//!
//! Beside [`Store`](crate::store::Store) and not part of it: no decision depends on a read.
//! Guarantees that a read changes nothing and ends within its time limit.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::limit::key::Key;
use crate::store::{ServerId, StoreError};

/// The value of a field. `None`: there is no such field.
pub type FieldValue = Option<Vec<u8>>;

/// Hashes that can be read.
pub trait HashReader: Send + Sync + 'static {
    /// The values of `fields` of the hash called `name`, in their order. Of a hash that is not
    /// there, each is `None`.
    ///
    /// # Errors
    /// When the store could not be asked, or the key of this name is no hash.
    fn read<'a>(
        &'a self,
        name: &'a str,
        fields: &'a [Key],
    ) -> BoxFuture<'a, Result<Vec<FieldValue>, StoreError>>;

    /// The server that has the hash called `name`, as far as is known.
    fn server_of_hash(&self, _name: &str) -> ServerId {
        ServerId::ONLY
    }

    /// The longest that a read takes, and that a request may wait for one.
    fn timeout(&self) -> Duration;
}

//! Hashes that operators write, read on behalf of limits: one field for each value that has something of its own.
//!
//! Beside [`Store`](crate::store::Store) and not part of it: no decision depends on a read. Guarantees that a read changes nothing
//! and ends within its time limit. Refuses to know what fields hold.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::limit::key::Key;
use crate::store::StoreError;

/// What a field holds. `None`: there is no such field.
pub type Field = Option<Vec<u8>>;

/// Hashes that can be read.
pub trait HashReader: Send + Sync + 'static {
    /// What `fields` of the hash called `name` hold, in their order. Of a hash that is not there: nothing.
    ///
    /// # Errors
    /// When the store could not be asked, or what has this name is no hash.
    fn read<'a>(&'a self, name: &'a str, fields: &'a [Key]) -> BoxFuture<'a, Result<Vec<Field>, StoreError>>;

    /// The longest that a read takes, and that a request may wait for one.
    fn timeout(&self) -> Duration;
}

//! `PolicyDatabase`: the handle that all calls go through.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::sql::{ConnectionPool, DatabaseAddress, UrlProblem};
use crate::model::PolicyState;

/// A database of policies. It connects when it is first asked, and again whenever it has to. A
/// clone shares connections.
#[derive(Clone, Debug)]
pub struct PolicyDatabase {
    pub(super) pool: Arc<ConnectionPool>,
    /// The newest state that was seen here, so that a commit reads what changed and not everything.
    known: Arc<Mutex<Option<PolicyState>>>,
}

impl PolicyDatabase {
    /// For connecting and for each statement.
    pub const TIME_LIMIT: Duration = Duration::from_secs(5);

    /// `sqlite:///path`, `postgres://user:password@host/database` or
    /// `mysql://user:password@host/database`. Asks nothing of the database yet.
    pub fn open(url: &str) -> Result<Self, UrlProblem> {
        Self::open_with(url, Self::TIME_LIMIT)
    }

    pub fn open_with(url: &str, time_limit: Duration) -> Result<Self, UrlProblem> {
        let address = DatabaseAddress::parse(url, time_limit)?;
        Ok(Self {
            pool: Arc::new(ConnectionPool::new(address)),
            known: Arc::default(),
        })
    }

    /// Another handle, with connections of its own: its callers keep none of these waiting.
    #[must_use]
    pub fn apart(&self) -> Self {
        Self {
            pool: Arc::new(self.pool.beside()),
            known: Arc::default(),
        }
    }

    /// The URL without user and password, and with those parameters alone that lead to another
    /// database.
    pub fn place(&self) -> &str {
        self.pool.address().place()
    }

    /// The file of a SQLite database.
    pub fn file(&self) -> Option<&Path> {
        self.pool.address().file()
    }

    pub(crate) fn pool(&self) -> &Arc<ConnectionPool> {
        &self.pool
    }

    pub(super) fn known(&self) -> Option<PolicyState> {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Whichever was read last: an older one is brought forward like any.
    pub(super) fn remember(&self, state: &PolicyState) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(state.clone());
    }
}

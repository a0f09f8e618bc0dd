//! Connections that are kept for the next call, a few at most. Each was looked at before it is
//! lent: it answers, the schema is the one that this version knows, and a SQLite database is the
//! one that its path leads to.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::address::DatabaseAddress;
use super::connection::{Connection, schema_of};
use super::idle::DatabaseConnections;
use crate::database::error::{DatabaseError, SCHEMA};

/// Editors are few, and nodes ask one thing at a time.
const MOST_CONNECTIONS: usize = 8;

#[derive(Debug)]
pub struct ConnectionPool {
    idle: Arc<DatabaseConnections>,
    permits: Semaphore,
}

/// A connection, lent for one call. It is closed unless it is given back.
pub struct PooledConnection<'a> {
    connection: Connection,
    idle: &'a DatabaseConnections,
    _permit: SemaphorePermit<'a>,
}

impl ConnectionPool {
    pub fn new(address: DatabaseAddress) -> Self {
        Self::over(Arc::new(DatabaseConnections::new(address)))
    }

    /// Another pool of the same database. Neither waits for the other, and both know when its file
    /// is another one.
    pub fn beside(&self) -> Self {
        Self::over(Arc::clone(&self.idle))
    }

    fn over(idle: Arc<DatabaseConnections>) -> Self {
        Self {
            idle,
            permits: Semaphore::new(MOST_CONNECTIONS),
        }
    }

    pub fn address(&self) -> &DatabaseAddress {
        self.idle.address()
    }

    /// A connection to a database of our schema.
    pub async fn take(&self) -> Result<PooledConnection<'_>, DatabaseError> {
        let permit = self.permit().await?;
        while let Some(mut connection) = self.idle.take().await? {
            match look(&mut connection).await {
                Ok(()) => {
                    return Ok(PooledConnection {
                        connection,
                        idle: &self.idle,
                        _permit: permit,
                    });
                }
                // A server that was restarted has closed all of them. One that is silent is not
                // asked again.
                Err(DatabaseError::Away { cause, .. }) if !cause.starts_with("no answer") => {}
                Err(error) => return Err(error),
            }
        }
        let mut connection = self.idle.connect().await?;
        look(&mut connection).await?;
        Ok(PooledConnection {
            connection,
            idle: &self.idle,
            _permit: permit,
        })
    }

    /// A connection to a database of whatever schema.
    pub async fn connect(&self) -> Result<Connection, DatabaseError> {
        self.idle.connect().await
    }

    async fn permit(&self) -> Result<SemaphorePermit<'_>, DatabaseError> {
        let limit = self.address().limit();
        match tokio::time::timeout(limit, self.permits.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(DatabaseError::Busy {
                place: Arc::clone(self.address().place()),
                cause: format!(
                    "all {MOST_CONNECTIONS} connections to it were in use for {limit:?}"
                ),
            }),
        }
    }
}

async fn look(connection: &mut Connection) -> Result<(), DatabaseError> {
    let found = schema_of(connection).await?;
    let place = Arc::clone(connection.place());
    match found {
        SCHEMA => Ok(()),
        newer if newer > SCHEMA => Err(DatabaseError::SchemaNewer {
            place,
            found,
            known: SCHEMA,
        }),
        _ => Err(DatabaseError::SchemaOlder {
            place,
            found,
            known: SCHEMA,
        }),
    }
}

impl PooledConnection<'_> {
    /// For the next call. Only after everything went well, and outside of a transaction.
    pub fn give_back(self) {
        self.idle.give_back(self.connection);
    }
}

impl Deref for PooledConnection<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for PooledConnection<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("place", self.place())
            .finish()
    }
}

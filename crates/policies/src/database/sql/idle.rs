//! The open connections to one database, of all its pools. Those to a SQLite database lead to the
//! files that its path leads to: once these are others, all are closed before one is opened anew.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::RwLock;
use tokio::time::timeout;

use super::address::DatabaseAddress;
use super::connection::{Connection, schema_of};
use super::files::{DatabaseFiles, FilesInUse};
use crate::database::error::DatabaseError;

#[derive(Debug)]
pub struct DatabaseConnections {
    address: DatabaseAddress,
    /// A connection to a SQLite database that only reads and is closed last. The last one that
    /// writes would write its log into the database when it is closed, also into one that was
    /// copied over the one before.
    keeper: Mutex<Option<Connection>>,
    idle: Mutex<Vec<Connection>>,
    /// The files that all open connections lead to. Each connection in use holds a read lock on
    /// them, so a writer knows that there is none. Connections of a process share what they know of
    /// a SQLite file, and one to the files of before would mislead those to the files of now.
    files: Arc<RwLock<Option<DatabaseFiles>>>,
}

impl DatabaseConnections {
    pub fn new(address: DatabaseAddress) -> Self {
        Self {
            address,
            keeper: Mutex::default(),
            idle: Mutex::default(),
            files: Arc::default(),
        }
    }

    pub fn address(&self) -> &DatabaseAddress {
        &self.address
    }

    /// A connection that is open already. `None`: all of them are in use.
    pub async fn take(&self) -> Result<Option<Connection>, DatabaseError> {
        let files = self.files_in_use().await?;
        Ok(self.pop().map(|connection| connection.using(files)))
    }

    /// A new one.
    pub async fn connect(&self) -> Result<Connection, DatabaseError> {
        let files = self.files_in_use().await?;
        let known = files.as_ref().and_then(|files| **files);
        let connection = self.address.connect().await?.using(files);
        let Some((path, known)) = self.address.file().zip(known) else {
            return Ok(connection);
        };
        let connection = opened(connection).await?;
        if DatabaseFiles::at(path).is_other_database(&known) {
            return Err(self.away("its file was replaced while it was opened"));
        }
        Ok(connection)
    }

    pub fn give_back(&self, mut connection: Connection) {
        let files = connection.leave_files();
        lock(&self.idle).push(connection);
        // A caller that waits for the files finds it among the idle ones.
        drop(files);
    }

    /// The files that all connections lead to, which those of the path are now. `None`: the
    /// database has a server.
    async fn files_in_use(&self) -> Result<Option<FilesInUse>, DatabaseError> {
        let Some(path) = self.address.file() else {
            return Ok(None);
        };
        let limit = self.address.limit();
        let Ok(known) = timeout(limit, self.files.clone().read_owned()).await else {
            return Err(self.held_back());
        };
        if *known == Some(DatabaseFiles::at(path)) {
            return Ok(Some(known));
        }
        drop(known);
        let Ok(mut known) = timeout(limit, self.files.clone().write_owned()).await else {
            return Err(self.held_back());
        };
        if *known != Some(DatabaseFiles::at(path)) {
            *known = Some(self.open_anew(path, *known).await?);
        }
        Ok(Some(known.downgrade()))
    }

    /// Closes all connections, and opens some to what the path leads to: they keep the files where
    /// they are. None is in use.
    async fn open_anew(
        &self,
        path: &Path,
        former: Option<DatabaseFiles>,
    ) -> Result<DatabaseFiles, DatabaseError> {
        let found = DatabaseFiles::at(path);
        // While it is open, no other file has the number of the log.
        let is_open = lock(&self.keeper).is_some();
        if is_open && former.is_some_and(|former| found.has_log_of(&former, path)) {
            return Err(self.away(
                "its file was replaced, and beside it are still the log and the index of the one before, which would \
                 spoil it: take the files that end in -wal and -shm away",
            ));
        }
        while let Some(connection) = self.pop() {
            connection.close().await;
        }
        let keeper = lock(&self.keeper).take();
        if let Some(keeper) = keeper {
            keeper.close().await;
        }
        let connection = opened(self.address.connect().await?).await?;
        let keeper = opened(self.address.connect_to_read().await?).await?;
        let opened = DatabaseFiles::at(path);
        if opened.is_other_database(&found) {
            connection.close().await;
            keeper.close().await;
            return Err(self.away("its file was replaced while it was opened"));
        }
        *lock(&self.keeper) = Some(keeper);
        self.give_back(connection);
        Ok(opened)
    }

    fn pop(&self) -> Option<Connection> {
        lock(&self.idle).pop()
    }

    fn away(&self, cause: &str) -> DatabaseError {
        DatabaseError::Away {
            place: Arc::clone(self.address.place()),
            cause: cause.to_owned(),
        }
    }

    fn held_back(&self) -> DatabaseError {
        let limit = self.address.limit();
        DatabaseError::Busy {
            place: Arc::clone(self.address.place()),
            cause: format!(
                "a connection to it was in use for {limit:?} after its file was replaced"
            ),
        }
    }
}

/// Reads once, which opens the log. Whether there are tables of ours is for others to say.
async fn opened(mut connection: Connection) -> Result<Connection, DatabaseError> {
    match schema_of(&mut connection).await {
        Ok(_) | Err(DatabaseError::SchemaOlder { .. }) => Ok(connection),
        Err(error) => {
            connection.close().await;
            Err(error)
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Migrations: built in, run once under a lock however many nodes start at once.

mod tables;

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::error::{DatabaseError, SCHEMA};
use super::handle::PolicyDatabase;
use super::sql::{Connection, Dialect, SqlValue, schema_of};

/// From which schema to which. Both are the same when there was nothing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Migrated {
    pub from: u32,
    pub to: u32,
}

impl PolicyDatabase {
    /// Makes the tables, or brings those of an older version up to this one. Makes the file of a
    /// SQLite database, which only its owner may read. A process that only reads or
    /// follows does not call this.
    pub async fn migrate(&self) -> Result<Migrated, DatabaseError> {
        if let Some(file) = self.pool.address().file() {
            make(file).map_err(|error| DatabaseError::Away {
                place: Arc::clone(self.pool.address().place()),
                cause: format!("its file cannot be made: {error}"),
            })?;
        }
        let mut connection = self.pool.connect().await?;
        match found(&mut connection).await? {
            SCHEMA => Ok(Migrated {
                from: SCHEMA,
                to: SCHEMA,
            }),
            newer if newer > SCHEMA => Err(newer_schema(&connection, newer)),
            _ => migrate(&mut connection, self.pool.address().limit()).await,
        }
    }
}

/// An empty file is an empty database. One that is there stays as it is.
fn make(file: &Path) -> std::io::Result<()> {
    match OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
    {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// 0: there are no tables yet.
async fn found(connection: &mut Connection) -> Result<u32, DatabaseError> {
    // There, a statement on a missing table would end the transaction.
    if connection.dialect() == Dialect::Postgres {
        let sql = "SELECT COUNT(*) FROM pg_catalog.pg_tables \
                   WHERE tablename = 'tollgate_schema' AND schemaname = ANY (current_schemas(false))";
        if connection.row(sql, &[], |row| row.int(0)).await? == Some(0) {
            return Ok(0);
        }
    }
    match schema_of(connection).await {
        Err(DatabaseError::SchemaOlder { found, .. }) => Ok(found),
        other => other,
    }
}

async fn migrate(connection: &mut Connection, limit: Duration) -> Result<Migrated, DatabaseError> {
    match connection.dialect() {
        Dialect::Sqlite => {
            // Kept in the file: readers and the writer do not wait for each other.
            connection.run("PRAGMA journal_mode = WAL").await?;
            connection.begin().await?;
        }
        Dialect::Postgres => {
            connection.begin().await?;
            connection
                .run(&format!("SELECT pg_advisory_xact_lock({LOCK})"))
                .await?;
        }
        Dialect::MySql => lock_mysql(connection, limit).await?,
    }
    // Somebody else may have done it while this one waited.
    let from = found(connection).await?;
    if from > SCHEMA {
        return Err(newer_schema(connection, from));
    }
    for version in from + 1..=SCHEMA {
        for statement in tables::statements(connection.dialect(), version) {
            connection.run(&statement).await?;
        }
        connection
            .execute("DELETE FROM tollgate_schema", &[])
            .await?;
        let version = SqlValue::Int(version.into());
        connection
            .execute(
                "INSERT INTO tollgate_schema (version) VALUES (?)",
                &[version],
            )
            .await?;
    }
    match connection.dialect() {
        Dialect::Sqlite | Dialect::Postgres => connection.commit().await?,
        // Statements on tables commit by themselves there, so each can be run again after a crash.
        Dialect::MySql => {
            connection
                .run(&format!("DO RELEASE_LOCK({MYSQL_LOCK})"))
                .await?
        }
    }
    Ok(Migrated { from, to: SCHEMA })
}

/// A number that nothing else in the database locks.
const LOCK: i64 = 0x746f_6c6c_6761_7465;

/// The lock is the server's, so it has the database's name, within the 64 characters that it may
/// have.
const MYSQL_LOCK: &str = "CONCAT('tollgate_', MD5(DATABASE()))";

async fn lock_mysql(connection: &mut Connection, limit: Duration) -> Result<(), DatabaseError> {
    let seconds = (limit / 2).as_secs().max(1);
    let locked = connection
        .row(
            &format!("SELECT GET_LOCK({MYSQL_LOCK}, {seconds})"),
            &[],
            |row| row.maybe_int(0),
        )
        .await?;
    if locked.flatten() == Some(1) {
        return Ok(());
    }
    let cause = format!("another node has been migrating it for {seconds} s");
    Err(DatabaseError::Busy {
        place: Arc::clone(connection.place()),
        cause,
    })
}

fn newer_schema(connection: &Connection, found: u32) -> DatabaseError {
    DatabaseError::SchemaNewer {
        place: Arc::clone(connection.place()),
        found,
        known: SCHEMA,
    }
}

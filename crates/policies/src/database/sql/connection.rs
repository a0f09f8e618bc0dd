//! A connection to any of the databases. Each statement has a time limit; after a failure the
//! connection is not used again.

use std::future::Future;
use std::mem::replace;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use sqlx::query::Query;
use sqlx::{
    Connection as _, Database, Encode, Executor as _, MySqlConnection, PgConnection,
    SqliteConnection, Type,
};
use tokio::runtime::Handle;

use super::dialect::{Dialect, SqlValue};
use super::failure::{SqlFailure, reported};
use super::files::FilesInUse;
use super::row::{BadData, SqlRow};
use crate::database::error::DatabaseError;

pub enum Driver {
    Sqlite(Box<SqliteConnection>),
    Postgres(Box<PgConnection>),
    MySql(Box<MySqlConnection>),
    /// Nobody has it any more.
    Closed,
}

/// Closed when dropped, which takes back what was not committed.
pub struct Connection {
    driver: Driver,
    place: Arc<str>,
    limit: Duration,
    /// While it is lent.
    files: Option<FilesInUse>,
}

/// An expression that is the same for each driver.
macro_rules! on_each {
    ($driver:expr, $connection:ident, $row:ident => $body:expr) => {
        match $driver {
            Driver::Sqlite($connection) => {
                use SqlRow::Sqlite as $row;
                $body
            }
            Driver::Postgres($connection) => {
                use SqlRow::Postgres as $row;
                $body
            }
            Driver::MySql($connection) => {
                use SqlRow::MySql as $row;
                $body
            }
            Driver::Closed => return Err(sqlx::Error::WorkerCrashed.into()),
        }
    };
    ($driver:expr, $connection:ident => $body:expr) => {
        match $driver {
            Driver::Sqlite($connection) => $body,
            Driver::Postgres($connection) => $body,
            Driver::MySql($connection) => $body,
            Driver::Closed => return Err(sqlx::Error::WorkerCrashed.into()),
        }
    };
}

impl Connection {
    pub fn new(driver: Driver, place: Arc<str>, limit: Duration) -> Self {
        Self {
            driver,
            place,
            limit,
            files: None,
        }
    }

    /// From here until it is closed or given back, it uses these files.
    pub fn using(mut self, files: Option<FilesInUse>) -> Self {
        self.files = files;
        self
    }

    /// The files that it used.
    pub fn leave_files(&mut self) -> Option<FilesInUse> {
        self.files.take()
    }

    /// Ends when it is closed.
    pub async fn close(mut self) {
        if let Driver::Sqlite(connection) = replace(&mut self.driver, Driver::Closed) {
            // A call that failed before fails here too, and the connection ends all the same.
            let _ = connection.close().await;
        }
    }

    pub fn dialect(&self) -> Dialect {
        match self.driver {
            Driver::Sqlite(_) | Driver::Closed => Dialect::Sqlite,
            Driver::Postgres(_) => Dialect::Postgres,
            Driver::MySql(_) => Dialect::MySql,
        }
    }

    /// How many rows it changed.
    pub async fn execute(
        &mut self,
        sql: &str,
        values: &[SqlValue<'_>],
    ) -> Result<u64, DatabaseError> {
        let sql = self.dialect().statement(sql);
        let driver = &mut self.driver;
        let running = async {
            on_each!(driver, connection => {
                let done = bound(sqlx::query(&sql), values).execute(&mut **connection).await?;
                Ok(done.rows_affected())
            })
        };
        within(self.limit, running)
            .await
            .map_err(|failure| reported(failure, &self.place))
    }

    /// A statement that no database prepares, such as those that begin and end transactions and
    /// make tables.
    pub async fn run(&mut self, sql: &str) -> Result<(), DatabaseError> {
        let driver = &mut self.driver;
        let running = async {
            on_each!(driver, connection => connection.execute(sqlx::raw_sql(sql)).await.map(|_| ())?);
            Ok(())
        };
        within(self.limit, running)
            .await
            .map_err(|failure| reported(failure, &self.place))
    }

    /// All rows, each read while it arrives. The time limit is for each of them: of all, there may
    /// be as many as people made.
    pub async fn rows<T: Send>(
        &mut self,
        sql: &str,
        values: &[SqlValue<'_>],
        mut read: impl FnMut(&SqlRow<'_>) -> Result<T, BadData> + Send,
    ) -> Result<Vec<T>, DatabaseError> {
        let sql = self.dialect().statement(sql);
        let limit = self.limit;
        let driver = &mut self.driver;
        let reading = async {
            let mut found = Vec::new();
            on_each!(driver, connection, Row => {
                let mut rows = bound(sqlx::query(&sql), values).fetch(&mut **connection);
                while let Some(row) = within(limit, async { Ok(rows.try_next().await?) }).await? {
                    found.push(read(&Row(&row))?);
                }
            });
            Ok(found)
        };
        reading
            .await
            .map_err(|failure| reported(failure, &self.place))
    }

    /// The first row, if there is one.
    pub async fn row<T: Send>(
        &mut self,
        sql: &str,
        values: &[SqlValue<'_>],
        read: impl FnMut(&SqlRow<'_>) -> Result<T, BadData> + Send,
    ) -> Result<Option<T>, DatabaseError> {
        Ok(self.rows(sql, values, read).await?.into_iter().next())
    }

    pub async fn begin(&mut self) -> Result<(), DatabaseError> {
        self.run(self.dialect().begin()).await
    }

    pub async fn commit(&mut self) -> Result<(), DatabaseError> {
        self.run("COMMIT").await
    }

    pub async fn roll_back(&mut self) -> Result<(), DatabaseError> {
        self.run("ROLLBACK").await
    }

    /// The database does not hold what was written.
    pub fn broken(&self, cause: impl Into<String>) -> DatabaseError {
        DatabaseError::Broken {
            place: Arc::clone(&self.place),
            cause: cause.into(),
        }
    }

    pub fn place(&self) -> &Arc<str> {
        &self.place
    }
}

/// A thread of its own closes a connection to a SQLite database. Until it has done so, the files
/// are in use.
impl Drop for Connection {
    fn drop(&mut self) {
        let driver = replace(&mut self.driver, Driver::Closed);
        let files = self.files.take();
        if let (Driver::Sqlite(connection), Some(files), Ok(runtime)) =
            (driver, files, Handle::try_current())
        {
            runtime.spawn(async move {
                let _ = connection.close().await;
                drop(files);
            });
        }
    }
}

/// The schema of the database. A database without tables has none: that is an error like any older
/// one.
pub async fn schema_of(connection: &mut Connection) -> Result<u32, DatabaseError> {
    let found = connection
        .row("SELECT MAX(version) FROM tollgate_schema", &[], |row| {
            row.maybe_int(0)
        })
        .await?;
    let found = found.flatten().unwrap_or_default();
    u32::try_from(found).map_err(|_| connection.broken(format!("its schema is {found}")))
}

async fn within<T>(
    limit: Duration,
    running: impl Future<Output = Result<T, SqlFailure>>,
) -> Result<T, SqlFailure> {
    tokio::time::timeout(limit, running)
        .await
        .unwrap_or(Err(SqlFailure::Late(limit)))
}

fn bound<'q, DB: Database>(
    query: Query<'q, DB, DB::Arguments<'q>>,
    values: &'q [SqlValue<'q>],
) -> Query<'q, DB, DB::Arguments<'q>>
where
    i64: Encode<'q, DB> + Type<DB>,
    &'q str: Encode<'q, DB> + Type<DB>,
    Option<i64>: Encode<'q, DB> + Type<DB>,
    Option<&'q str>: Encode<'q, DB> + Type<DB>,
{
    values.iter().fold(query, |query, value| match *value {
        SqlValue::Int(number) => query.bind(number),
        SqlValue::Text(text) => query.bind(text),
        SqlValue::MaybeInt(number) => query.bind(number),
        SqlValue::MaybeText(text) => query.bind(text),
    })
}

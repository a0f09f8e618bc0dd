//! A row of any of the databases, read by the places of its columns.

use sqlx::Row as _;
use sqlx::mysql::MySqlRow;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;

/// A row, while it is read.
pub enum SqlRow<'a> {
    Sqlite(&'a SqliteRow),
    Postgres(&'a PgRow),
    MySql(&'a MySqlRow),
}

/// A row holds what nobody here has written.
#[derive(Debug)]
pub struct BadData(pub String);

impl SqlRow<'_> {
    pub fn int(&self, column: usize) -> Result<i64, BadData> {
        self.maybe_int(column)?
            .ok_or_else(|| BadData(format!("column {column} is NULL")))
    }

    pub fn maybe_int(&self, column: usize) -> Result<Option<i64>, BadData> {
        let found = match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
            Self::MySql(row) => row.try_get(column),
        };
        found.map_err(|error| BadData(error.to_string()))
    }

    /// An integer that is a number of something.
    pub fn number(&self, column: usize) -> Result<u64, BadData> {
        let found = self.int(column)?;
        u64::try_from(found).map_err(|_| BadData(format!("column {column} holds {found}")))
    }

    pub fn text(&self, column: usize) -> Result<&str, BadData> {
        self.maybe_text(column)?
            .ok_or_else(|| BadData(format!("column {column} is NULL")))
    }

    pub fn maybe_text(&self, column: usize) -> Result<Option<&str>, BadData> {
        let found = match self {
            Self::Sqlite(row) => row.try_get(column).map_err(|error| error.to_string()),
            Self::Postgres(row) => row.try_get(column).map_err(|error| error.to_string()),
            // Names are bytes there, whose order and equality no collation bends.
            Self::MySql(row) => match row.try_get_unchecked::<Option<&[u8]>, _>(column) {
                Ok(bytes) => bytes
                    .map(std::str::from_utf8)
                    .transpose()
                    .map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            },
        };
        found.map_err(BadData)
    }
}

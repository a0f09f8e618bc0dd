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
        self.maybe_int(column)?.ok_or_else(|| null(column))
    }

    pub fn maybe_int(&self, column: usize) -> Result<Option<i64>, BadData> {
        Ok(match self {
            Self::Sqlite(row) => row.try_get(column)?,
            Self::Postgres(row) => row.try_get(column)?,
            Self::MySql(row) => row.try_get(column)?,
        })
    }

    /// An integer that is a number of something.
    pub fn number(&self, column: usize) -> Result<u64, BadData> {
        let found = self.int(column)?;
        u64::try_from(found).map_err(|_| BadData(format!("column {column} holds {found}")))
    }

    pub fn text(&self, column: usize) -> Result<&str, BadData> {
        self.maybe_text(column)?.ok_or_else(|| null(column))
    }

    pub fn maybe_text(&self, column: usize) -> Result<Option<&str>, BadData> {
        match self {
            Self::Sqlite(row) => Ok(row.try_get(column)?),
            Self::Postgres(row) => Ok(row.try_get(column)?),
            // Names are bytes there, whose order and equality no collation bends.
            Self::MySql(row) => match row.try_get_unchecked::<Option<&[u8]>, _>(column)? {
                Some(bytes) => match std::str::from_utf8(bytes) {
                    Ok(text) => Ok(Some(text)),
                    Err(error) => Err(BadData(error.to_string())),
                },
                None => Ok(None),
            },
        }
    }
}

fn null(column: usize) -> BadData {
    BadData(format!("column {column} is NULL"))
}

impl From<sqlx::Error> for BadData {
    fn from(error: sqlx::Error) -> Self {
        Self(error.to_string())
    }
}

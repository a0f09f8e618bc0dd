//! The differences between the SQL of the three databases.

use std::borrow::Cow;
use std::fmt::Write as _;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    Sqlite,
    Postgres,
    MySql,
}

/// A value that is put in the place of a `?`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SqlValue<'a> {
    Int(i64),
    Text(&'a str),
    MaybeInt(Option<i64>),
    MaybeText(Option<&'a str>),
}

impl Dialect {
    /// Begins a transaction that will write. Writers of SQLite wait here and not in their middle,
    /// where they would fail.
    pub fn begin(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN IMMEDIATE",
            // A waiting compare-and-swap needs this level: it goes by what the one before it has
            // written.
            Self::Postgres => "BEGIN ISOLATION LEVEL READ COMMITTED",
            Self::MySql => "START TRANSACTION",
        }
    }

    /// Milliseconds since 1970, by the clock of the database.
    pub fn now(self) -> &'static str {
        match self {
            Self::Sqlite => "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
            Self::Postgres => "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
            Self::MySql => "CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)",
        }
    }

    /// A statement as this database reads it. No statement of ours has a question mark in a text.
    pub fn statement(self, sql: &str) -> Cow<'_, str> {
        if self != Self::Postgres {
            return Cow::Borrowed(sql);
        }
        let mut numbered = String::with_capacity(sql.len() + 32);
        for (at, part) in sql.split('?').enumerate() {
            if at > 0 {
                let _ = write!(numbered, "${at}");
            }
            numbered.push_str(part);
        }
        Cow::Owned(numbered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postgres_numbers_what_is_put_in() {
        let sql = "INSERT INTO a VALUES (?, ?), (?, 1)";
        assert_eq!(
            Dialect::Postgres.statement(sql),
            "INSERT INTO a VALUES ($1, $2), ($3, 1)"
        );
        assert_eq!(Dialect::MySql.statement(sql), sql);
        assert_eq!(Dialect::Postgres.statement("SELECT 1"), "SELECT 1");
    }
}

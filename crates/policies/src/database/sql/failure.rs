//! Failures, by their remedies.

use std::sync::Arc;

use sqlx::error::DatabaseError as DriverError;
use sqlx::mysql::MySqlDatabaseError;
use sqlx::postgres::PgDatabaseError;

use super::row::BadData;
use crate::database::error::{DatabaseError, SCHEMA};

/// A failed statement, before it is known which database it was.
pub enum SqlFailure {
    Driver(sqlx::Error),
    Data(BadData),
    /// Nothing came within the limit.
    Late(std::time::Duration),
}

impl From<sqlx::Error> for SqlFailure {
    fn from(error: sqlx::Error) -> Self {
        Self::Driver(error)
    }
}

impl From<BadData> for SqlFailure {
    fn from(problem: BadData) -> Self {
        Self::Data(problem)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FailureKind {
    Away,
    Busy,
    NoTable,
    ReadOnly,
    Broken,
}

/// The error to tell of a failure of the database at `place`.
pub fn reported(failure: SqlFailure, place: &Arc<str>) -> DatabaseError {
    let place = Arc::clone(place);
    let (kind, cause) = match failure {
        SqlFailure::Late(limit) => (FailureKind::Away, format!("no answer within {limit:?}")),
        SqlFailure::Data(BadData(cause)) => (FailureKind::Broken, cause),
        SqlFailure::Driver(sqlx::Error::Database(error)) => {
            (kind_of(error.as_ref()), cause_of(error.as_ref()))
        }
        SqlFailure::Driver(sqlx::Error::Io(error)) => (FailureKind::Away, error.to_string()),
        SqlFailure::Driver(
            error @ (sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::Configuration(_)
            | sqlx::Error::WorkerCrashed),
        ) => (FailureKind::Away, error.to_string()),
        SqlFailure::Driver(error) => (FailureKind::Broken, error.to_string()),
    };
    match kind {
        FailureKind::Away => DatabaseError::Away { place, cause },
        FailureKind::Busy => DatabaseError::Busy { place, cause },
        FailureKind::NoTable => DatabaseError::SchemaOlder {
            place,
            found: 0,
            known: SCHEMA,
        },
        FailureKind::ReadOnly => DatabaseError::ReadOnly { place, cause },
        FailureKind::Broken => DatabaseError::Broken { place, cause },
    }
}

/// The message of the database, with what SQLite leaves out: why it cannot open a file.
fn cause_of(error: &dyn DriverError) -> String {
    let message = error.message();
    if message.starts_with("unable to open") {
        format!(
            "{message}: it is not there, or this process's user has no permission to read and write it, the files \
             beside it (-wal, -shm) and their folder, as where root has made them"
        )
    } else {
        message.to_owned()
    }
}

fn kind_of(error: &dyn DriverError) -> FailureKind {
    if let Some(error) = error.try_downcast_ref::<PgDatabaseError>() {
        return postgres(error.code());
    }
    if let Some(error) = error.try_downcast_ref::<MySqlDatabaseError>() {
        return mysql(error.number());
    }
    let code = error.code().unwrap_or_default();
    sqlite(code.parse().unwrap_or_default(), error.message())
}

/// By SQLSTATE: <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
fn postgres(code: &str) -> FailureKind {
    match code {
        "55P03" | "40P01" | "40001" | "57014" => FailureKind::Busy,
        "42501" | "25006" => FailureKind::ReadOnly,
        "42P01" => FailureKind::NoTable,
        "3D000" => FailureKind::Away,
        _ => match code.get(..2) {
            // Connections, authorization, resources, and an operator who ends it.
            Some("08" | "28" | "53" | "57" | "58") => FailureKind::Away,
            Some(_) | None => FailureKind::Broken,
        },
    }
}

/// By number: <https://mariadb.com/kb/en/mariadb-error-code-reference/>, which MySQL shares.
fn mysql(number: u16) -> FailureKind {
    match number {
        1205 | 1213 | 3024 | 1969 => FailureKind::Busy,
        1142 | 1143 | 1227 | 1290 | 1370 | 1419 | 1792 | 1836 => FailureKind::ReadOnly,
        1146 => FailureKind::NoTable,
        // Connections, access, disks, and a server that ends.
        1021
        | 1040
        | 1041
        | 1044
        | 1045
        | 1049
        | 1053
        | 1129
        | 1130
        | 1152
        | 1158..=1161
        | 1203
        | 1226
        | 1698 => FailureKind::Away,
        _ => FailureKind::Broken,
    }
}

/// By the lower byte of the code: <https://www.sqlite.org/rescode.html>.
fn sqlite(code: u32, message: &str) -> FailureKind {
    match code & 0xff {
        1 if message.starts_with("no such table") => FailureKind::NoTable,
        5 | 6 => FailureKind::Busy,
        3 | 8 => FailureKind::ReadOnly,
        9 | 10 | 13 | 14 => FailureKind::Away,
        _ => FailureKind::Broken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_apart_by_what_helps() {
        for (code, kind) in [
            ("55P03", FailureKind::Busy),
            ("28P01", FailureKind::Away),
            ("42P01", FailureKind::NoTable),
            ("23505", FailureKind::Broken),
        ] {
            assert_eq!(postgres(code), kind, "{code}");
        }
        for (number, kind) in [
            (1205, FailureKind::Busy),
            (1045, FailureKind::Away),
            (1142, FailureKind::ReadOnly),
            (1062, FailureKind::Broken),
        ] {
            assert_eq!(mysql(number), kind, "{number}");
        }
        for (code, kind) in [
            (1, FailureKind::NoTable),
            (261, FailureKind::Busy),
            (8, FailureKind::ReadOnly),
            (14, FailureKind::Away),
            (11, FailureKind::Broken),
        ] {
            assert_eq!(sqlite(code, "no such table: a"), kind, "{code}");
        }
    }
}

//! Reads objects and where revisions are. What stood at a revision never changes again, so a read
//! at a number needs no lock and no transaction.

use std::sync::Arc;

use super::error::DatabaseError;
use super::sql::{BadData, Connection, SqlRow, SqlValue};
use crate::model::{Object, ObjectId, PolicyState, Position, SharedParts};
use crate::time::UnixTime;

/// The columns that [`read_object`] reads, of versions named `o`.
pub const OBJECT_COLUMNS: &str = "o.kind, o.application, o.name, o.body, o.since, o.created, c.author, c.made_at, s.author, s.made_at";

pub const OBJECT_TABLES: &str = "tollgate_objects o \
     JOIN tollgate_revisions s ON s.number = o.since \
     JOIN tollgate_revisions c ON c.number = o.created";

/// The newest revision, and the time by the database's clock.
pub async fn head(connection: &mut Connection) -> Result<(Position, UnixTime), DatabaseError> {
    let now = connection.dialect().now();
    let sql = format!("SELECT number, mark, {now} FROM tollgate_heads WHERE name = 'policies'");
    let found = connection.row(&sql, &[], read_head).await?;
    found.ok_or_else(|| connection.broken("tollgate_heads has no row for policies"))
}

fn read_head(row: &SqlRow<'_>) -> Result<(Position, UnixTime), BadData> {
    let position = Position {
        revision: row.number(0)?,
        token: token(row.text(1)?)?,
    };
    Ok((position, UnixTime::from_millis(row.int(2)?)))
}

/// The position of a revision, which may be any up to the head.
pub async fn position(
    connection: &mut Connection,
    revision: u64,
    head: Position,
) -> Result<Position, DatabaseError> {
    if revision == 0 {
        return Ok(Position::default());
    }
    if revision == head.revision {
        return Ok(head);
    }
    if revision > head.revision {
        return Err(DatabaseError::UnknownRevision {
            asked: revision,
            head: head.revision,
        });
    }
    let sql = "SELECT token FROM tollgate_revisions WHERE number = ?";
    let number = SqlValue::Int(stored(revision));
    let found = connection
        .row(sql, &[number], |row| token(row.text(0)?))
        .await?;
    match found {
        Some(token) => Ok(Position { revision, token }),
        None => Err(connection.broken(format!("it lacks revision {revision}"))),
    }
}

/// Versions that stand now, and those that ended after the revision: each half has an index, which
/// `OR` would not use.
pub async fn load(connection: &mut Connection, at: Position) -> Result<PolicyState, DatabaseError> {
    let select = format!("SELECT {OBJECT_COLUMNS} FROM {OBJECT_TABLES}");
    let sql = format!(
        "{select} WHERE o.until IS NULL AND o.since <= ? \
         UNION ALL {select} WHERE o.until > ? AND o.since <= ?"
    );
    let number = SqlValue::Int(stored(at.revision));
    let mut shared = SharedParts::default();
    let objects = connection
        .rows(&sql, &[number; 3], |row| read_object(row, &mut shared))
        .await?;
    Ok(PolicyState::new(at, objects))
}

pub fn read_object(row: &SqlRow<'_>, shared: &mut SharedParts) -> Result<Arc<Object>, BadData> {
    let id = read_id(row, shared)?;
    let body = shared
        .body(row.text(3)?)
        .map_err(|error| BadData(format!("the body of {id} is no JSON: {error}")))?;
    if !body.is_object() {
        return Err(BadData(format!("the body of {id} is no JSON object")));
    }
    Ok(Arc::new(Object {
        id,
        body,
        since: row.number(4)?,
        created: row.number(5)?,
        created_by: shared.text(row.text(6)?),
        created_at: UnixTime::from_millis(row.int(7)?),
        changed_by: shared.text(row.text(8)?),
        changed_at: UnixTime::from_millis(row.int(9)?),
    }))
}

/// The first three columns.
pub fn read_id(row: &SqlRow<'_>, shared: &mut SharedParts) -> Result<ObjectId, BadData> {
    let application = shared.text(row.text(1)?);
    let name = row.text(2)?;
    let id = match row.text(0)?.parse() {
        Ok(kind) => ObjectId::stored(kind, application, name),
        Err(problem) => Err(problem),
    };
    id.map_err(|problem| BadData(problem.to_string()))
}

fn token(text: &str) -> Result<u64, BadData> {
    text.parse()
        .map_err(|_| BadData(format!("{text:?} is no token of a revision")))
}

/// No database has unsigned numbers. Those that are too large are beyond any revision.
pub fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

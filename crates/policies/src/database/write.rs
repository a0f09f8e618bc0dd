//! Writes a revision, all of it or nothing: the first statement swaps the head, and a writer that
//! comes second changes nothing.

use std::collections::BTreeMap;

use super::error::DatabaseError;
use super::read::stored;
use super::sql::{Connection, SqlValue};
use crate::model::{NextRevision, Object, ObjectChange, ObjectId, ObjectKind, Position};

/// Few enough for every database, many enough for a large import to be quick.
pub const MOST_NAMES: usize = 200;
const MOST_ROWS: usize = 400;
const MOST_BYTES: usize = 1024 * 1024;

/// A revision that is to follow `base`.
pub struct RevisionWrite<'a> {
    pub base: Position,
    pub next: &'a NextRevision<'a>,
    pub reason: &'a str,
    pub changes: &'a [ObjectChange],
}

/// Begins a transaction and leaves it to be committed. False: another revision came first, and
/// nothing is begun.
pub async fn write(
    connection: &mut Connection,
    write: &RevisionWrite<'_>,
) -> Result<bool, DatabaseError> {
    let RevisionWrite { base, next, .. } = write;
    let before = stored(base.revision);
    let number = stored(next.position.revision);
    let mark = base.token.to_string();
    let next_mark = next.position.token.to_string();
    connection.begin().await?;
    let swap = "UPDATE tollgate_heads SET number = ?, mark = ? WHERE name = 'policies' AND number = ? AND mark = ?";
    let values = [
        SqlValue::Int(number),
        SqlValue::Text(&next_mark),
        SqlValue::Int(before),
        SqlValue::Text(&mark),
    ];
    if connection.execute(swap, &values).await? != 1 {
        connection.roll_back().await?;
        return Ok(false);
    }
    let insert = "INSERT INTO tollgate_revisions (number, token, author, made_at, reason, edits) VALUES (?, ?, ?, ?, ?, ?)";
    let values = [
        SqlValue::Int(number),
        SqlValue::Text(&next_mark),
        SqlValue::Text(next.author),
        SqlValue::Int(next.at.millis()),
        SqlValue::Text(write.reason),
        SqlValue::Int(stored(write.changes.len() as u64)),
    ];
    connection.execute(insert, &values).await?;
    end_versions(connection, write.changes, number).await?;
    let mut versions = Vec::new();
    for change in write.changes {
        versions.extend(change.after.as_deref());
    }
    for part in parts(&versions) {
        begin_versions(connection, part).await?;
    }
    Ok(true)
}

/// The versions that stood end with this revision.
async fn end_versions(
    connection: &mut Connection,
    changes: &[ObjectChange],
    number: i64,
) -> Result<(), DatabaseError> {
    let stood = changes.iter().filter(|change| change.before.is_some());
    for (kind, application, names) in grouped(stood.map(|change| &change.id)) {
        let (condition, named) = named(kind, application, &names);
        // Not `until IS NULL`, which has an index: a planner that knows no better would go through
        // all that stands.
        let sql = format!(
            "UPDATE tollgate_objects SET until = ? WHERE {condition} AND COALESCE(until, 0) = 0"
        );
        let mut values = vec![SqlValue::Int(number)];
        values.extend(named);
        let ended = connection.execute(&sql, &values).await?;
        if ended != names.len() as u64 {
            let stood = names.len();
            return Err(connection.broken(format!(
                "{ended} versions of {stood} objects of kind {kind} stand"
            )));
        }
    }
    Ok(())
}

async fn begin_versions(
    connection: &mut Connection,
    versions: &[&Object],
) -> Result<(), DatabaseError> {
    let places = places(versions.len(), "(?, ?, ?, ?, ?, ?)");
    let sql = format!(
        "INSERT INTO tollgate_objects (kind, application, name, since, created, body) VALUES {places}"
    );
    let bodies: Vec<_> = versions
        .iter()
        .map(|object| object.body.to_string())
        .collect();
    let mut values = Vec::with_capacity(6 * versions.len());
    for (object, body) in versions.iter().zip(&bodies) {
        values.extend([
            SqlValue::Text(object.id.kind().word()),
            SqlValue::Text(object.id.application()),
            SqlValue::Text(object.id.name()),
            SqlValue::Int(stored(object.since)),
            SqlValue::Int(stored(object.created)),
            SqlValue::Text(body),
        ]);
    }
    connection.execute(&sql, &values).await?;
    Ok(())
}

/// The names of objects, by kind and application, in order and a bounded number at a time.
pub fn grouped<'a>(
    ids: impl Iterator<Item = &'a ObjectId>,
) -> impl Iterator<Item = (ObjectKind, &'a str, Vec<&'a str>)> {
    let mut groups: BTreeMap<(ObjectKind, &str), Vec<&str>> = BTreeMap::new();
    for id in ids {
        groups
            .entry((id.kind(), id.application()))
            .or_default()
            .push(id.name());
    }
    let mut parts = Vec::new();
    for ((kind, application), mut names) in groups {
        names.sort_unstable();
        for part in names.chunks(MOST_NAMES) {
            parts.push((kind, application, part.to_vec()));
        }
    }
    parts.into_iter()
}

/// The condition that finds the objects of these names, which are in order. Their range is for
/// planners without statistics: they would go through all of the application for each part.
pub fn named<'a>(
    kind: ObjectKind,
    application: &'a str,
    names: &[&'a str],
) -> (String, Vec<SqlValue<'a>>) {
    let places = places(names.len(), "?");
    let condition =
        format!("kind = ? AND application = ? AND name BETWEEN ? AND ? AND name IN ({places})");
    let mut texts = vec![kind.word(), application];
    texts.extend(names.first());
    texts.extend(names.last());
    texts.extend(names);
    (condition, texts.into_iter().map(SqlValue::Text).collect())
}

pub fn places(count: usize, one: &str) -> String {
    vec![one; count].join(", ")
}

/// Bounded in rows and, roughly, in bytes.
fn parts<'a, 'b>(mut versions: &'a [&'b Object]) -> Vec<&'a [&'b Object]> {
    let mut parts = Vec::new();
    while !versions.is_empty() {
        let mut bytes = 0;
        let fits = versions.iter().take(MOST_ROWS).take_while(|object| {
            let first = bytes == 0;
            bytes += object.body.to_string().len();
            first || bytes <= MOST_BYTES
        });
        let (part, rest) = versions.split_at(fits.count().max(1));
        parts.push(part);
        versions = rest;
    }
    parts
}

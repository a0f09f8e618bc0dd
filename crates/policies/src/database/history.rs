//! The history of everything, and of one object: who changed what, when and why.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::DatabaseError;
use super::handle::PolicyDatabase;
use super::read::{OBJECT_COLUMNS, OBJECT_TABLES, head, read_object, stored};
use super::sql::{BadData, Connection, SqlRow, SqlValue};
use super::write::places;
use crate::model::{Object, ObjectChange, ObjectId, Revision, SharedParts};
use crate::time::UnixTime;

const MOST_ON_A_PAGE: u32 = 500;

/// A part of a list, newest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// The last number of the page before this one.
    pub before: Option<u64>,
    /// Between 1 and 500: what is not, is cut to it.
    pub limit: u32,
}

/// A revision, and the change that it made to an object.
#[derive(Clone, PartialEq, Debug)]
pub struct ObjectRevision {
    pub revision: Revision,
    pub change: ObjectChange,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            before: None,
            limit: 50,
        }
    }
}

impl Page {
    pub(crate) fn bounds(&self) -> (i64, usize) {
        let before = self.before.map_or(i64::MAX, stored);
        (before, self.limit.clamp(1, MOST_ON_A_PAGE) as usize)
    }
}

const REVISION_COLUMNS: &str = "number, author, made_at, reason, edits";

impl PolicyDatabase {
    pub async fn history(&self, page: Page) -> Result<Vec<Revision>, DatabaseError> {
        let (before, limit) = page.bounds();
        let sql = format!(
            "SELECT {REVISION_COLUMNS} FROM tollgate_revisions WHERE number < ? ORDER BY number DESC LIMIT {limit}"
        );
        let mut lease = self.pool.take().await?;
        let found = lease
            .rows(&sql, &[SqlValue::Int(before)], read_revision)
            .await?;
        lease.give_back();
        Ok(found)
    }

    pub async fn revision(&self, number: u64) -> Result<Revision, DatabaseError> {
        let mut lease = self.pool.take().await?;
        let (head, _) = head(&mut lease).await?;
        let found = revisions(&mut lease, &[number]).await?.remove(&number);
        lease.give_back();
        found.ok_or(DatabaseError::UnknownRevision {
            asked: number,
            head: head.revision,
        })
    }

    /// The history of one object.
    pub async fn history_of(
        &self,
        id: &ObjectId,
        page: Page,
    ) -> Result<Vec<ObjectRevision>, DatabaseError> {
        let (before, limit) = page.bounds();
        // A version more than asked for: what stood before the last.
        let sql = format!(
            "SELECT {OBJECT_COLUMNS}, o.until FROM {OBJECT_TABLES} \
             WHERE o.kind = ? AND o.application = ? AND o.name = ? AND o.since < ? \
             ORDER BY o.since DESC LIMIT {}",
            limit + 1
        );
        let [kind, application, name] =
            [id.kind().word(), id.application(), id.name()].map(SqlValue::Text);
        let mut lease = self.pool.take().await?;
        let mut shared = SharedParts::default();
        let values = [kind, application, name, SqlValue::Int(before)];
        let versions = lease
            .rows(&sql, &values, |row| {
                Ok((read_object(row, &mut shared)?, row.maybe_int(10)?))
            })
            .await?;
        let mut events = events(id, &versions, before);
        events.truncate(limit);
        let numbers: Vec<_> = events.iter().map(|(number, _)| *number).collect();
        let mut revisions = revisions(&mut lease, &numbers).await?;
        let broken = lease.broken("a version names a revision that it lacks");
        lease.give_back();
        let mut found = Vec::with_capacity(events.len());
        for (number, change) in events {
            let revision = revisions.remove(&number).ok_or_else(|| broken.clone())?;
            found.push(ObjectRevision { revision, change });
        }
        Ok(found)
    }
}

/// The change of each revision, newest first, given the object's versions in that order.
fn events(
    id: &ObjectId,
    versions: &[(Arc<Object>, Option<i64>)],
    before: i64,
) -> Vec<(u64, ObjectChange)> {
    let mut events = Vec::new();
    let mut next = None;
    for (at, (version, until)) in versions.iter().enumerate() {
        // Where the next version begins, this one was changed and not taken away.
        if let Some(until) = *until
            && until < before
            && next != Some(until)
        {
            let removal = ObjectChange {
                id: id.clone(),
                before: Some(version.clone()),
                after: None,
            };
            events.push((until.unsigned_abs(), removal));
        }
        let since = stored(version.since);
        let older = match versions.get(at + 1) {
            Some((older, Some(until))) if *until == since => Some(older.clone()),
            _ => None,
        };
        let change = ObjectChange {
            id: id.clone(),
            before: older,
            after: Some(version.clone()),
        };
        events.push((version.since, change));
        next = Some(since);
    }
    events
}

async fn revisions(
    connection: &mut Connection,
    numbers: &[u64],
) -> Result<BTreeMap<u64, Revision>, DatabaseError> {
    if numbers.is_empty() {
        return Ok(BTreeMap::new());
    }
    let places = places(numbers.len(), "?");
    let sql =
        format!("SELECT {REVISION_COLUMNS} FROM tollgate_revisions WHERE number IN ({places})");
    let values: Vec<_> = numbers
        .iter()
        .map(|number| SqlValue::Int(stored(*number)))
        .collect();
    let found = connection.rows(&sql, &values, read_revision).await?;
    Ok(found
        .into_iter()
        .map(|revision| (revision.number, revision))
        .collect())
}

fn read_revision(row: &SqlRow<'_>) -> Result<Revision, BadData> {
    Ok(Revision {
        number: row.number(0)?,
        author: row.text(1)?.to_owned(),
        at: UnixTime::from_millis(row.int(2)?),
        reason: row.text(3)?.to_owned(),
        edits: row.number(4)?,
    })
}

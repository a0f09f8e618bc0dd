//! Changes between two revisions: for followers, and for people who compare.

use std::collections::BTreeMap;

use super::error::DatabaseError;
use super::handle::PolicyDatabase;
use super::read::{OBJECT_COLUMNS, OBJECT_TABLES, head, position, read_object, stored};
use super::sql::{Connection, SqlValue};
use crate::model::{ObjectChange, ObjectId, Position, SharedParts};

/// The next step of a follower.
#[derive(Clone, PartialEq, Debug)]
pub enum ChangesAfter {
    /// Apply these, and be at `to`.
    Known {
        changes: Vec<ObjectChange>,
        to: Position,
    },
    /// Load the state anew: this database never was where the follower is. It was restored, or is
    /// another.
    Unknown { head: Position },
}

impl PolicyDatabase {
    /// The changes that bring a state from this position to the newest revision.
    pub async fn changes_after(&self, from: Position) -> Result<ChangesAfter, DatabaseError> {
        let mut lease = self.pool.take().await?;
        let (head, _) = head(&mut lease).await?;
        let found = after(&mut lease, from, head).await?;
        lease.give_back();
        Ok(found)
    }

    /// The objects that say something else at `to` than at `from`, which may be the later one.
    pub async fn diff(&self, from: u64, to: u64) -> Result<Vec<ObjectChange>, DatabaseError> {
        let mut lease = self.pool.take().await?;
        let (head, _) = head(&mut lease).await?;
        for number in [from, to] {
            position(&mut lease, number, head).await?;
        }
        let mut changes = between(&mut lease, from.min(to), from.max(to)).await?;
        lease.give_back();
        changes.retain(|change| !change.is_alike());
        if from > to {
            changes
                .iter_mut()
                .for_each(|change| std::mem::swap(&mut change.before, &mut change.after));
        }
        Ok(changes)
    }
}

pub async fn after(
    connection: &mut Connection,
    from: Position,
    head: Position,
) -> Result<ChangesAfter, DatabaseError> {
    if from == head {
        return Ok(ChangesAfter::Known {
            changes: Vec::new(),
            to: head,
        });
    }
    let known = match position(connection, from.revision, head).await {
        Err(DatabaseError::UnknownRevision { .. }) => None,
        other => Some(other?),
    };
    if known != Some(from) {
        return Ok(ChangesAfter::Unknown { head });
    }
    Ok(ChangesAfter::Known {
        changes: between(connection, from.revision, head.revision).await?,
        to: head,
    })
}

/// The versions that ended in between, which stood before, and those that began and stand after.
/// Both are found by an index, however many objects there are.
pub async fn between(
    connection: &mut Connection,
    from: u64,
    to: u64,
) -> Result<Vec<ObjectChange>, DatabaseError> {
    let select = format!("SELECT {OBJECT_COLUMNS} FROM {OBJECT_TABLES}");
    let sql = format!(
        "{select} WHERE o.until > ? AND o.until <= ? AND o.since <= ? \
         UNION ALL {select} WHERE o.since > ? AND o.since <= ? AND (o.until IS NULL OR o.until > ?)"
    );
    let from_value = SqlValue::Int(stored(from));
    let to_value = SqlValue::Int(stored(to));
    let values = [
        from_value, to_value, from_value, from_value, to_value, to_value,
    ];
    let mut shared = SharedParts::default();
    let versions = connection
        .rows(&sql, &values, |row| read_object(row, &mut shared))
        .await?;
    let mut changes: BTreeMap<ObjectId, ObjectChange> = BTreeMap::new();
    for version in versions {
        let id = version.id.clone();
        let change = changes.entry(id.clone()).or_insert_with(|| ObjectChange {
            id,
            before: None,
            after: None,
        });
        if version.since <= from {
            change.before = Some(version)
        } else {
            change.after = Some(version)
        }
    }
    Ok(changes.into_values().collect())
}

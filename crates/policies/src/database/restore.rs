//! Revisions that bring something back: the state of an earlier revision, what stood before one, or a document's.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::changes::between;
use super::commit::{CommitError, EditSource, RevisionNote, find_last};
use super::error::DatabaseError;
use super::handle::PolicyDatabase;
use super::read::{read_id, stored};
use super::sql::{Connection, SqlValue};
use super::write::{grouped, named};
use crate::model::{
    Conflict, Expected, ImportMode, LastChange, ObjectChange, ObjectEdit, ObjectId, PolicyDocument, PolicyState,
    Revision, SharedParts,
};

struct ToRevision(u64);

struct WithoutRevision(u64);

struct FromDocument<'a>(&'a PolicyDocument, ImportMode);

impl PolicyDatabase {
    /// A new revision that says what revision `to` said. What came in between stays in the history.
    pub async fn revert<E: Send>(
        &self,
        to: u64,
        note: RevisionNote<'_>,
        check: impl Fn(&PolicyState) -> Result<(), E> + Send + Sync,
    ) -> Result<Revision, CommitError<E>> {
        self.commit_edits(&ToRevision(to), note, check).await
    }

    /// A new revision that takes back what one revision changed, and nothing else. A conflict, if one of its objects has
    /// been changed since.
    pub async fn undo<E: Send>(
        &self,
        revision: u64,
        note: RevisionNote<'_>,
        check: impl Fn(&PolicyState) -> Result<(), E> + Send + Sync,
    ) -> Result<Revision, CommitError<E>> {
        self.commit_edits(&WithoutRevision(revision), note, check).await
    }

    /// A new revision that says what the document says. To be told of what others change meanwhile, commit
    /// [`PolicyDocument::edits`] instead.
    pub async fn import<E: Send>(
        &self,
        document: &PolicyDocument,
        mode: ImportMode,
        note: RevisionNote<'_>,
        check: impl Fn(&PolicyState) -> Result<(), E> + Send + Sync,
    ) -> Result<Revision, CommitError<E>> {
        self.commit_edits(&FromDocument(document, mode), note, check).await
    }
}

impl EditSource for ToRevision {
    async fn edits<E: Send>(
        &self,
        connection: &mut Connection,
        base: &PolicyState,
    ) -> Result<Cow<'_, [ObjectEdit]>, CommitError<E>> {
        if self.0 > base.revision() {
            return Err(unknown(self.0, base));
        }
        Ok(Cow::Owned(back(&between(connection, self.0, base.revision()).await?)))
    }
}

impl EditSource for WithoutRevision {
    async fn edits<E: Send>(
        &self,
        connection: &mut Connection,
        base: &PolicyState,
    ) -> Result<Cow<'_, [ObjectEdit]>, CommitError<E>> {
        if self.0 == 0 || self.0 > base.revision() {
            return Err(unknown(self.0, base));
        }
        let changes = between(connection, self.0 - 1, self.0).await?;
        let changed_since = changed_since(connection, &changes, self.0).await?;
        if changed_since.is_empty() {
            return Ok(Cow::Owned(back(&changes)));
        }
        let conflicts = changed_since.into_iter().map(|id| {
            let found = base.get(&id);
            let last = found.map(|object| LastChange {
                revision: object.since,
                by: object.changed_by.clone(),
                at: object.changed_at,
            });
            Conflict { expected: Expected::Revision(self.0), found: found.map(|object| object.since), last, id }
        });
        let mut conflicts: Vec<_> = conflicts.collect();
        find_last(connection, &mut conflicts).await?;
        Err(CommitError::Conflict(conflicts))
    }
}

impl EditSource for FromDocument<'_> {
    async fn edits<E: Send>(
        &self,
        _: &mut Connection,
        base: &PolicyState,
    ) -> Result<Cow<'_, [ObjectEdit]>, CommitError<E>> {
        Ok(Cow::Owned(self.0.edits(base, self.1)))
    }
}

fn unknown<E>(asked: u64, base: &PolicyState) -> CommitError<E> {
    CommitError::Database(DatabaseError::UnknownRevision { asked, head: base.revision() })
}

/// The edits that take these changes back.
fn back(changes: &[ObjectChange]) -> Vec<ObjectEdit> {
    let differing = changes.iter().filter(|change| !change.is_alike());
    let edits = differing.map(|change| ObjectEdit {
        id: change.id.clone(),
        expected: Expected::Any,
        body: change.before.as_ref().map(|object| object.body.as_ref().clone()),
    });
    edits.collect()
}

/// Which of the objects have a version that began or ended after the revision.
async fn changed_since(
    connection: &mut Connection,
    changes: &[ObjectChange],
    revision: u64,
) -> Result<BTreeSet<ObjectId>, DatabaseError> {
    let (number, mut found) = (SqlValue::Int(stored(revision)), BTreeSet::new());
    for (kind, application, names) in grouped(changes.iter()) {
        let (condition, mut values) = named(kind, application, &names);
        // By names, and not by the indexes of revisions: these would find all that changed since.
        let sql = format!(
            "SELECT kind, application, name FROM tollgate_objects \
             WHERE {condition} AND (since + 0 > ? OR COALESCE(until, 0) > ?)"
        );
        values.extend([number, number]);
        let mut shared = SharedParts::default();
        found.extend(connection.rows(&sql, &values, |row| read_id(row, &mut shared)).await?);
    }
    Ok(found)
}

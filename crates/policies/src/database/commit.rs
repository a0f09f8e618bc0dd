//! A draft becomes a revision: applied to the newest state, checked, and written if that still is
//! the newest. Nothing is locked while the check runs; a second writer begins again with what
//! the first has made.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::error::DatabaseError;
use super::handle::PolicyDatabase;
use super::read::{head, position};
use super::revoked::find_revoked;
use super::sql::{BadData, Connection, PooledConnection, SqlRow};
use super::write::{RevisionWrite, grouped, named, write};
use crate::model::{
    Conflict, Draft, DraftError, DraftProblem, LastChange, NextRevision, ObjectEdit, ObjectId,
    PolicyState, Position, Preview, Revision, list,
};
use crate::time::UnixTime;

/// Every lost race is a revision that somebody else has made, so only a storm of writers comes this
/// far.
const MOST_TRIES: u32 = 64;

/// Why there is no new revision. The database is as it was.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CommitError<E> {
    #[error(transparent)]
    Draft(DraftProblem),
    #[error("{}", list(.0))]
    Conflict(Vec<Conflict>),
    #[error("{0} has a key that was taken away before: it is not taken again")]
    Revoked(ObjectId),
    #[error("{0}")]
    Refused(E),
    #[error(transparent)]
    Database(DatabaseError),
}

/// Writes of a revision's transaction besides the revision itself. After an error the revision is
/// not made.
pub trait WrittenAlong<E>: Sync {
    type Written: Send;

    fn write(
        &self,
        connection: &mut Connection,
        revision: &Revision,
    ) -> impl Future<Output = Result<Self::Written, CommitError<E>>> + Send;
}

/// Nothing besides the revision.
struct RevisionAlone;

impl<E> WrittenAlong<E> for RevisionAlone {
    type Written = ();

    async fn write(&self, _: &mut Connection, _: &Revision) -> Result<(), CommitError<E>> {
        Ok(())
    }
}

impl PolicyDatabase {
    /// Makes a revision of the draft, if the check agrees with the whole state that would stand. It
    /// may be asked several times, each time about what it would be by then.
    pub async fn commit<E: Send>(
        &self,
        draft: &Draft,
        check: impl Fn(&PolicyState) -> Result<(), E> + Send + Sync,
    ) -> Result<Revision, CommitError<E>> {
        let (revision, ()) = self.commit_along(draft, check, &RevisionAlone).await?;
        Ok(revision)
    }

    pub(crate) async fn commit_along<E: Send, W: WrittenAlong<E>>(
        &self,
        draft: &Draft,
        check: impl Fn(&PolicyState) -> Result<(), E> + Send + Sync,
        along: &W,
    ) -> Result<(Revision, W::Written), CommitError<E>> {
        draft.check().map_err(CommitError::Draft)?;
        for attempt in 0..MOST_TRIES {
            if attempt > 0 {
                let longest = 1 << attempt.min(6);
                tokio::time::sleep(Duration::from_millis(fastrand::u64(0..longest))).await;
            }
            let mut lease = self.pool.take().await.map_err(CommitError::Database)?;
            let made = self.attempt(&mut lease, draft, &check, along).await;
            if !matches!(made, Err(CommitError::Database(_))) {
                lease.give_back();
            }
            if let Some(revision) = made? {
                return Ok(revision);
            }
        }
        let place = Arc::clone(self.pool.address().place());
        let cause = format!("{MOST_TRIES} times somebody else made a revision first");
        Err(CommitError::Database(DatabaseError::Busy { place, cause }))
    }

    /// The newest state with the draft applied to it. The caller judges whether that is good.
    pub async fn preview<E: Send>(&self, draft: &Draft) -> Result<Preview, CommitError<E>> {
        draft.check().map_err(CommitError::Draft)?;
        let mut lease = self.pool.take().await?;
        let (base, now) = head(&mut lease).await?;
        let state = self.newest(&mut lease, base).await?;
        let position = Position {
            revision: base.revision + 1,
            token: 0,
        };
        let next = NextRevision {
            position,
            author: &draft.author,
            at: now,
        };
        let preview = apply(&mut lease, &state, &draft.edits, &next).await;
        if !matches!(preview, Err(CommitError::Database(_))) {
            lease.give_back();
        }
        preview
    }

    /// `None`: somebody else was first.
    async fn attempt<E: Send, W: WrittenAlong<E>>(
        &self,
        lease: &mut PooledConnection<'_>,
        draft: &Draft,
        check: &(impl Fn(&PolicyState) -> Result<(), E> + Send + Sync),
        along: &W,
    ) -> Result<Option<(Revision, W::Written)>, CommitError<E>> {
        let (base, now) = head(lease).await?;
        let state = self.newest(lease, base).await?;
        let position = Position {
            revision: base.revision + 1,
            token: fastrand::u64(1..),
        };
        let next = NextRevision {
            position,
            author: &draft.author,
            at: now,
        };
        let preview = apply(lease, &state, &draft.edits, &next).await?;
        check(&preview.state).map_err(CommitError::Refused)?;
        let changes = &preview.changes;
        if !write(
            lease,
            &RevisionWrite {
                base,
                next: &next,
                reason: &draft.reason,
                changes,
            },
        )
        .await?
        {
            return Ok(None);
        }
        let revision = Revision {
            number: position.revision,
            author: draft.author.clone(),
            at: now,
            reason: draft.reason.clone(),
            edits: changes.len() as u64,
        };
        let written = match along.write(lease, &revision).await {
            Ok(written) => written,
            Err(CommitError::Database(error)) => return Err(error.into()),
            Err(refusal) => {
                lease.roll_back().await?;
                return Err(refusal);
            }
        };
        if let Err(error) = lease.commit().await {
            self.stands(position, error).await?;
        }
        self.remember(&preview.state);
        Ok(Some((revision, written)))
    }

    /// Whether a revision stands whose commit was not answered.
    async fn stands(&self, made: Position, error: DatabaseError) -> Result<(), DatabaseError> {
        let asked = async {
            let mut lease = self.pool.take().await?;
            let (head, _) = head(&mut lease).await?;
            let found = position(&mut lease, made.revision, head).await;
            lease.give_back();
            found
        };
        match asked.await {
            Ok(found) if found == made => Ok(()),
            Ok(_) | Err(DatabaseError::UnknownRevision { .. }) => Err(error),
            Err(_) => {
                let place = Arc::clone(self.pool.address().place());
                let cause = format!(
                    "whether revision {} was made is not known: look at the history",
                    made.revision
                );
                Err(DatabaseError::Away {
                    place,
                    cause: format!("{error}; {cause}"),
                })
            }
        }
    }
}

/// Lays edits over a state: what they saw still stands, and no revoked key comes back.
async fn apply<E>(
    connection: &mut Connection,
    state: &PolicyState,
    edits: &[ObjectEdit],
    next: &NextRevision<'_>,
) -> Result<Preview, CommitError<E>> {
    let preview = match state.applied(edits, next) {
        Ok(preview) => preview,
        Err(DraftError::Problem(problem)) => return Err(CommitError::Draft(problem)),
        Err(DraftError::Conflict(mut conflicts)) => {
            find_last(connection, &mut conflicts).await?;
            return Err(CommitError::Conflict(conflicts));
        }
    };
    match find_revoked(connection, state, &preview.changes).await? {
        Some(id) => Err(CommitError::Revoked(id)),
        None => Ok(preview),
    }
}

impl<E> From<DatabaseError> for CommitError<E> {
    fn from(error: DatabaseError) -> Self {
        Self::Database(error)
    }
}

/// Finds who took the objects away that are not there. A place among the checks is held meanwhile,
/// so however many conflicts there are, the queries are few.
async fn find_last(
    connection: &mut Connection,
    conflicts: &mut [Conflict],
) -> Result<(), DatabaseError> {
    let mut removals = BTreeMap::new();
    let unknown = conflicts.iter().filter(|conflict| conflict.last.is_none());
    for (kind, application, names) in grouped(unknown.map(|conflict| &conflict.id)) {
        let (condition, values) = named(kind, application, &names);
        let sql = format!(
            "SELECT o.name, r.number, r.author, r.made_at FROM tollgate_revisions r \
             JOIN (SELECT name, MAX(until) AS gone FROM tollgate_objects WHERE {condition} GROUP BY name) o \
             ON r.number = o.gone"
        );
        for (name, last) in connection.rows(&sql, &values, read_last_change).await? {
            removals.insert((kind, application.to_owned(), name), last);
        }
    }
    for conflict in conflicts {
        if conflict.last.is_none() {
            let id = &conflict.id;
            let removed = (id.kind(), id.application().to_owned(), id.name().to_owned());
            conflict.last = removals.remove(&removed);
        }
    }
    Ok(())
}

fn read_last_change(row: &SqlRow<'_>) -> Result<(String, LastChange), BadData> {
    let last = LastChange {
        revision: row.number(1)?,
        by: row.text(2)?.into(),
        at: UnixTime::from_millis(row.int(3)?),
    };
    Ok((row.text(0)?.to_owned(), last))
}

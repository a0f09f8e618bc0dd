//! The beginning of a change of people, and of one of policies by an account; and the key of
//! sign-ins.
//!
//! Guarantees that a change, the rights that it is made by and its entry in the audit log are one
//! transaction.

use std::future::Future;

use super::accounts::take_roles;
use super::audit::{AuditEntry, Deed, append};
use super::error::PeopleError;
use super::handle::{AuthorProof, ChangeAuthor, People, PeopleChange, lock};
use super::rights::Rights;
use super::secret::{from_hex, in_hex, random};
use super::{session, token};
use crate::database::sql::{BadData, Connection, SqlValue};
use crate::database::{CommitError, DatabaseError, PolicyDatabase, WrittenAlong};
use crate::model::{Draft, PolicyState, Revision};

impl People {
    /// Begins a change, which no other one changes people beside.
    ///
    /// # Errors
    /// When what its author came in by does not hold any more, or the database is away.
    pub async fn begin<'a>(
        &'a self,
        author: &ChangeAuthor<'a>,
    ) -> Result<PeopleChange<'a>, PeopleError> {
        let mut lease = self.pool.take().await?;
        lease.begin().await?;
        lock(&mut lease, "people").await?;
        match rights_by(&mut lease, author.proof).await? {
            Some(rights) => Ok(PeopleChange {
                lease,
                author: *author,
                rights,
            }),
            None => Err(PeopleError::SignedOut),
        }
    }
}

impl People {
    /// The key that sign-ins at a provider are signed with, which all nodes share. Drawn at random
    /// when it is first asked for.
    pub async fn sign_in_key(&self) -> Result<[u8; 32], PeopleError> {
        let mut lease = self.pool.take().await?;
        if let Some(key) = stored_key(&mut lease).await? {
            lease.give_back();
            return Ok(key);
        }
        lease.begin().await?;
        lock(&mut lease, "people").await?;
        // Another node may have been first.
        let key = match stored_key(&mut lease).await? {
            Some(key) => key,
            None => draw_key(&mut lease).await?,
        };
        lease.commit().await?;
        lease.give_back();
        Ok(key)
    }
}

/// The row of `tollgate_heads` that has the key as its mark, in hex.
const KEY_ROW: &str = "sign_in_key";

async fn stored_key(connection: &mut Connection) -> Result<Option<[u8; 32]>, DatabaseError> {
    let sql = "SELECT mark FROM tollgate_heads WHERE name = ?";
    connection
        .row(sql, &[SqlValue::Text(KEY_ROW)], |row| {
            from_hex(row.text(0)?).ok_or_else(|| BadData("the key of sign-ins is none".to_owned()))
        })
        .await
}

async fn draw_key(connection: &mut Connection) -> Result<[u8; 32], PeopleError> {
    let key: [u8; 32] = random()?;
    let mark = in_hex(&key);
    let sql = "INSERT INTO tollgate_heads (name, number, mark) VALUES (?, 0, ?)";
    let values = [SqlValue::Text(KEY_ROW), SqlValue::Text(&mark)];
    connection.execute(sql, &values).await?;
    Ok(key)
}

impl PeopleChange<'_> {
    /// The rights of the author, as they are for as long as the change is under way.
    pub fn rights(&self) -> &Rights {
        &self.rights
    }
}

/// The rights that a proof gives now. `None`: it does not hold any more.
async fn rights_by(
    connection: &mut Connection,
    proof: AuthorProof<'_>,
) -> Result<Option<Rights>, DatabaseError> {
    let account = match proof {
        AuthorProof::Trusted => return Ok(Some(Rights::admin())),
        AuthorProof::Session(secret) => session::find(connection, secret)
            .await?
            .map(|found| found.account),
        AuthorProof::Token(secret) => token::find(connection, secret)
            .await?
            .map(|(account, _)| account),
    };
    Ok(account.map(|account| account.rights))
}

/// An account that commits, and the judge of its rights. `None`: it is signed out.
struct CommitByAccount<'a, P> {
    author: &'a ChangeAuthor<'a>,
    removed: Vec<&'a str>,
    permit: P,
}

impl PolicyDatabase {
    /// Like [`commit`](Self::commit), by an account: `permit` judges its rights as they are when
    /// the revision is written. Roles in applications that the draft removes go along. Returns the
    /// entries of the audit log, too.
    ///
    /// # Errors
    /// When there is no new revision. Then nothing else has changed either.
    pub async fn commit_by<E: Send>(
        &self,
        draft: &Draft,
        author: &ChangeAuthor<'_>,
        permit: impl Fn(Option<&Rights>) -> Result<(), E> + Send + Sync,
        check: impl Fn(&PolicyState) -> Result<(), E> + Send + Sync,
    ) -> Result<(Revision, Vec<AuditEntry>), CommitError<E>> {
        let along = CommitByAccount {
            author,
            removed: draft.removed_applications().collect(),
            permit,
        };
        self.commit_along(draft, check, &along).await
    }
}

impl<E, P> WrittenAlong<E> for CommitByAccount<'_, P>
where
    E: Send,
    P: Fn(Option<&Rights>) -> Result<(), E> + Send + Sync,
{
    type Written = Vec<AuditEntry>;

    fn write(
        &self,
        connection: &mut Connection,
        revision: &Revision,
    ) -> impl Future<Output = Result<Self::Written, CommitError<E>>> + Send {
        self.record(connection, revision)
    }
}

impl<P> CommitByAccount<'_, P> {
    async fn record<E>(
        &self,
        connection: &mut Connection,
        revision: &Revision,
    ) -> Result<Vec<AuditEntry>, CommitError<E>>
    where
        P: Fn(Option<&Rights>) -> Result<(), E>,
    {
        // First: what MySQL has read once in a transaction, it does not read anew.
        if !self.removed.is_empty() {
            lock(connection, "people").await?;
        }
        let rights = rights_by(connection, self.author.proof).await?;
        (self.permit)(rights.as_ref()).map_err(CommitError::Refused)?;
        let deed = Deed {
            action: "policies.changed",
            object: &format!("revision {}", revision.number),
            detail: &revision.reason,
        };
        let record = self.author.record(&deed);
        let mut entries = vec![append(connection, &record).await?];
        for application in &self.removed {
            let names = match take_roles(connection, application).await {
                Ok(names) => names,
                Err(PeopleError::Database(error)) => return Err(error.into()),
                Err(other) => return Err(connection.broken(other.to_string()).into()),
            };
            let detail = format!("had a role in {application}, which was removed");
            for name in names {
                let deed = Deed {
                    action: "account_change",
                    object: &format!("account {name}"),
                    detail: &detail,
                };
                let record = self.author.record(&deed);
                entries.push(append(connection, &record).await?);
            }
        }
        Ok(entries)
    }
}

//! Sessions: a holder of the secret is logged in, until it was idle for too long, is too old, or
//! was ended.

use std::time::Duration;

use serde::Serialize;

use super::account::{ProvenAccount, UserAccount};
use super::accounts::{ACCOUNT_COLUMNS, end_sessions, known, read_account};
use super::error::PeopleError;
use super::handle::{People, PeopleChange, now};
use super::secret::{Secret, is_secret, sha256};
use crate::database::DatabaseError;
use crate::database::sql::{BadData, Connection, SqlRow, SqlValue};
use crate::time::UnixTime;

/// The beginning of a session's secret.
pub const SESSION_BEGINNING: &str = "tgs_";

/// How long a session lasts without a request, and at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionTerms {
    pub idle: Duration,
    pub absolute: Duration,
}

/// Somebody is logged in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Session {
    pub account: String,
    pub begun_at: UnixTime,
    /// Moved on while it is used.
    pub idle_until: UnixTime,
    pub ends_at: UnixTime,
    /// The time of the database when the session was read.
    pub read_at: UnixTime,
}

/// A session is written again only when this part of its idle time has passed, so that a page of
/// twenty requests writes once.
const PART_OF_IDLE: i64 = 16;

/// Sessions of one account at a time. A person has a few browsers.
pub const MOST_SESSIONS: usize = 20;

impl People {
    /// The account that is logged in by this secret, with the rights of this moment. Moves the idle
    /// end on.
    pub async fn session(
        &self,
        secret: &str,
    ) -> Result<Option<(UserAccount, Session)>, DatabaseError> {
        self.find_session(secret, true).await
    }

    /// Like [`session`](Self::session), for what nobody has asked for by hand: the session stays as
    /// idle as it was.
    pub async fn idle_session(
        &self,
        secret: &str,
    ) -> Result<Option<(UserAccount, Session)>, DatabaseError> {
        self.find_session(secret, false).await
    }

    async fn find_session(
        &self,
        secret: &str,
        is_used: bool,
    ) -> Result<Option<(UserAccount, Session)>, DatabaseError> {
        if !is_secret(SESSION_BEGINNING, secret) {
            return Ok(None);
        }
        let mut lease = self.pool.take().await?;
        let Some(mut found) = find(&mut lease, secret).await? else {
            lease.give_back();
            return Ok(None);
        };
        let idle = Duration::from_millis(found.idle_millis.unsigned_abs());
        let moved = found.session.read_at.after(idle).min(found.session.ends_at);
        if is_used
            && moved.millis() - found.session.idle_until.millis() > found.idle_millis / PART_OF_IDLE
        {
            let hash = sha256(secret.as_bytes());
            let values = [SqlValue::Int(moved.millis()), SqlValue::Text(&hash)];
            lease
                .execute(
                    "UPDATE tollgate_sessions SET idle_until = ? WHERE hash = ?",
                    &values,
                )
                .await?;
            found.session.idle_until = moved;
        }
        lease.give_back();
        Ok(Some((found.account, found.session)))
    }
}

impl PeopleChange<'_> {
    /// Logs an account in. Also forgets the sessions of all that have ended, and the oldest of an
    /// account with too many.
    pub async fn begin_session(
        &mut self,
        account: impl Into<ProvenAccount<'_>>,
        terms: SessionTerms,
    ) -> Result<(Secret, Session), PeopleError> {
        insert(&mut self.lease, account.into(), terms).await
    }

    /// Logs out.
    pub async fn end_session(&mut self, secret: &str) -> Result<(), DatabaseError> {
        let hash = sha256(secret.as_bytes());
        let sql = "DELETE FROM tollgate_sessions WHERE hash = ?";
        self.lease.execute(sql, &[SqlValue::Text(&hash)]).await?;
        Ok(())
    }

    /// Logs somebody out everywhere. How many sessions that were.
    pub async fn end_sessions(&mut self, name: &str) -> Result<u64, DatabaseError> {
        end_sessions(&mut self.lease, name).await
    }
}

/// The session with this secret, which has not ended, and its account.
pub async fn find(
    connection: &mut Connection,
    secret: &str,
) -> Result<Option<FoundSession>, DatabaseError> {
    let hash = sha256(secret.as_bytes());
    let sql = format!(
        "SELECT {ACCOUNT_COLUMNS}, s.begun_at, s.idle_until, s.ends_at, s.idle_millis, {} \
         FROM tollgate_sessions s JOIN tollgate_accounts a ON a.name = s.account WHERE s.hash = ?",
        connection.dialect().now()
    );
    let found = connection
        .row(&sql, &[SqlValue::Text(&hash)], read_session)
        .await?;
    let Some(found) = found else {
        return Ok(None);
    };
    let end = found.session.idle_until.min(found.session.ends_at);
    if found.account.disabled || found.session.read_at >= end {
        Ok(None)
    } else {
        Ok(Some(found))
    }
}

async fn insert(
    connection: &mut Connection,
    proven: ProvenAccount<'_>,
    terms: SessionTerms,
) -> Result<(Secret, Session), PeopleError> {
    let secret = Secret::new(SESSION_BEGINNING)?;
    let name = proven.name;
    let now = now(connection).await?;
    let account = known(connection, name).await?;
    if account.disabled {
        return Err(PeopleError::Disabled(name.to_owned()));
    }
    proven.check(&account)?;
    let ends_at = now.after(terms.absolute);
    let idle_until = now.after(terms.idle).min(ends_at);
    let session = Session {
        account: name.to_owned(),
        begun_at: now,
        idle_until,
        ends_at,
        read_at: now,
    };
    let past = [SqlValue::Int(now.millis()); 2];
    connection
        .execute(
            "DELETE FROM tollgate_sessions WHERE idle_until <= ? OR ends_at <= ?",
            &past,
        )
        .await?;
    let hash = secret.hash();
    let values = [
        SqlValue::Text(&hash),
        SqlValue::Text(name),
        SqlValue::Int(now.millis()),
        SqlValue::Int(i64::try_from(terms.idle.as_millis()).unwrap_or(i64::MAX)),
        SqlValue::Int(session.idle_until.millis()),
        SqlValue::Int(session.ends_at.millis()),
    ];
    let sql = "INSERT INTO tollgate_sessions (hash, account, begun_at, idle_millis, idle_until, ends_at) \
               VALUES (?, ?, ?, ?, ?, ?)";
    connection.execute(sql, &values).await?;
    end_oldest(connection, name, &hash).await?;
    Ok((secret, session))
}

/// Ends the oldest sessions of an account that has too many, but not the `newest`.
async fn end_oldest(
    connection: &mut Connection,
    name: &str,
    newest: &str,
) -> Result<(), DatabaseError> {
    let sql =
        "SELECT hash FROM tollgate_sessions WHERE account = ? AND hash <> ? ORDER BY begun_at DESC";
    let values = [SqlValue::Text(name), SqlValue::Text(newest)];
    let others = connection
        .rows(sql, &values, |row| row.text(0).map(ToOwned::to_owned))
        .await?;
    for hash in others.iter().skip(MOST_SESSIONS - 1) {
        connection
            .execute(
                "DELETE FROM tollgate_sessions WHERE hash = ?",
                &[SqlValue::Text(hash)],
            )
            .await?;
    }
    Ok(())
}

pub struct FoundSession {
    pub account: UserAccount,
    session: Session,
    idle_millis: i64,
}

fn read_session(row: &SqlRow<'_>) -> Result<FoundSession, BadData> {
    let account = read_account(row)?;
    let session = Session {
        account: account.name.clone(),
        begun_at: UnixTime::from_millis(row.int(9)?),
        idle_until: UnixTime::from_millis(row.int(10)?),
        ends_at: UnixTime::from_millis(row.int(11)?),
        read_at: UnixTime::from_millis(row.int(13)?),
    };
    Ok(FoundSession {
        account,
        session,
        idle_millis: row.int(12)?,
    })
}

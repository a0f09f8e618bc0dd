//! Sessions: whoever has the secret is logged in, until it was idle for too long, is too old, or was ended.

use std::time::Duration;

use serde::Serialize;

use super::account::UserAccount;
use super::accounts::{ACCOUNT_COLUMNS, by_name, end_sessions, read_account};
use super::error::PeopleError;
use super::handle::{People, now};
use super::secret::{Secret, sha256};
use crate::database::DatabaseError;
use crate::database::sql::{BadData, SqlRow, SqlValue};
use crate::time::UnixTime;

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
}

/// A session is written again only when this part of its idle time has passed, so that a page of twenty requests writes once.
const PART_OF_IDLE: i64 = 16;

impl People {
    /// Logs an account in. Also forgets the sessions of all that have ended.
    pub async fn begin_session(&self, name: &str, terms: SessionTerms) -> Result<(Secret, Session), PeopleError> {
        let secret = Secret::new("tgs_")?;
        let mut lease = self.pool.take().await?;
        let now = now(&mut lease).await?;
        match by_name(&mut lease, name).await? {
            None => return Err(PeopleError::Unknown(name.to_owned())),
            Some((account, _)) if account.disabled => return Err(PeopleError::Disabled(name.to_owned())),
            Some(_) => {}
        }
        let ends_at = now.after(terms.absolute);
        let idle_until = now.after(terms.idle).min(ends_at);
        let session = Session { account: name.to_owned(), begun_at: now, idle_until, ends_at };
        let past = [SqlValue::Int(now.millis()); 2];
        lease.execute("DELETE FROM tollgate_sessions WHERE idle_until <= ? OR ends_at <= ?", &past).await?;
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
        lease.execute(sql, &values).await?;
        lease.give_back();
        Ok((secret, session))
    }

    /// Who is logged in by this secret, with the rights of this moment. Moves the idle end on.
    pub async fn session(&self, secret: &str) -> Result<Option<(UserAccount, Session)>, DatabaseError> {
        let hash = sha256(secret.as_bytes());
        let mut lease = self.pool.take().await?;
        let sql = format!(
            "SELECT {ACCOUNT_COLUMNS}, s.begun_at, s.idle_until, s.ends_at, s.idle_millis, {} \
             FROM tollgate_sessions s JOIN tollgate_accounts a ON a.name = s.account WHERE s.hash = ?",
            lease.dialect().now()
        );
        let found = lease.row(&sql, &[SqlValue::Text(&hash)], read_session).await?;
        let found = found.filter(|found| !found.account.disabled && found.now < found.session.idle_until);
        let Some(mut found) = found.filter(|found| found.now < found.session.ends_at) else {
            lease.give_back();
            return Ok(None);
        };
        let idle = Duration::from_millis(found.idle_millis.unsigned_abs());
        let moved = found.now.after(idle).min(found.session.ends_at);
        if moved.millis() - found.session.idle_until.millis() > found.idle_millis / PART_OF_IDLE {
            let values = [SqlValue::Int(moved.millis()), SqlValue::Text(&hash)];
            lease.execute("UPDATE tollgate_sessions SET idle_until = ? WHERE hash = ?", &values).await?;
            found.session.idle_until = moved;
        }
        lease.give_back();
        Ok(Some((found.account, found.session)))
    }

    /// Logs out.
    pub async fn end_session(&self, secret: &str) -> Result<(), DatabaseError> {
        let mut lease = self.pool.take().await?;
        let hash = sha256(secret.as_bytes());
        lease.execute("DELETE FROM tollgate_sessions WHERE hash = ?", &[SqlValue::Text(&hash)]).await?;
        lease.give_back();
        Ok(())
    }

    /// Logs somebody out everywhere. How many sessions that were.
    pub async fn end_sessions(&self, name: &str) -> Result<u64, DatabaseError> {
        let mut lease = self.pool.take().await?;
        let ended = end_sessions(&mut lease, name).await?;
        lease.give_back();
        Ok(ended)
    }
}

struct FoundSession {
    account: UserAccount,
    session: Session,
    idle_millis: i64,
    now: UnixTime,
}

fn read_session(row: &SqlRow<'_>) -> Result<FoundSession, BadData> {
    let (account, _) = read_account(row)?;
    let time = |column| row.int(column).map(UnixTime::from_millis);
    let session =
        Session { account: account.name.clone(), begun_at: time(9)?, idle_until: time(10)?, ends_at: time(11)? };
    Ok(FoundSession { account, session, idle_millis: row.int(12)?, now: time(13)? })
}

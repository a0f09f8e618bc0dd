//! `People`: the handle that all calls about accounts go through, and `PeopleChange`: a change of
//! them that is under way.

use std::fmt;
use std::sync::Arc;

use super::rights::Rights;
use crate::database::sql::{Connection, ConnectionPool, PooledConnection, SqlRow};
use crate::database::{DatabaseError, PolicyDatabase};
use crate::time::UnixTime;

/// Accounts, sessions, tokens and the audit log of a database of policies. Clones share
/// connections, which are others than those of policies: sign-ins of strangers keep no node from
/// following.
#[derive(Clone, Debug)]
pub struct People {
    pub(super) pool: Arc<ConnectionPool>,
}

/// The author of a change, as the audit log has them, and what they came in by.
#[derive(Clone, Copy, Debug)]
pub struct ChangeAuthor<'a> {
    /// Empty for somebody without an account.
    pub account: &'a str,
    /// Where they are.
    pub address: &'a str,
    pub proof: AuthorProof<'a>,
}

/// The proof of an author's rights, which is looked at when the change is made: a role may be taken
/// away while a form is on its way, or waits for a password.
#[derive(Clone, Copy)]
pub enum AuthorProof<'a> {
    /// Access to the database, or a sign-in that is under way: no right is needed.
    Trusted,
    /// The secret of a session.
    Session(&'a str),
    /// The secret of a token.
    Token(&'a str),
}

impl fmt::Debug for AuthorProof<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Trusted => "Trusted",
            Self::Session(_) => "Session(…)",
            Self::Token(_) => "Token(…)",
        })
    }
}

/// Changes of people in one transaction, which no other writer of this part is in. Dropped, it
/// leaves everything as it was.
pub struct PeopleChange<'a> {
    pub(super) lease: PooledConnection<'a>,
    pub(super) author: ChangeAuthor<'a>,
    pub(super) rights: Rights,
}

impl PolicyDatabase {
    pub fn people(&self) -> People {
        People {
            pool: Arc::new(self.pool().beside()),
        }
    }
}

/// Keeps other writers of a part out until the transaction ends. Whoever locks several takes them
/// in this order: policies, people, audit.
pub async fn lock(connection: &mut Connection, head: &str) -> Result<(), DatabaseError> {
    let sql = format!("UPDATE tollgate_heads SET number = number + 1 WHERE name = '{head}'");
    if connection.execute(&sql, &[]).await? == 1 {
        Ok(())
    } else {
        Err(connection.broken(format!("tollgate_heads has no row for {head}")))
    }
}

pub async fn now(connection: &mut Connection) -> Result<UnixTime, DatabaseError> {
    let sql = format!("SELECT {}", connection.dialect().now());
    let found = connection
        .row(&sql, &[], |row: &SqlRow<'_>| row.int(0))
        .await?;
    match found {
        Some(millis) => Ok(UnixTime::from_millis(millis)),
        None => Err(connection.broken("it tells no time")),
    }
}

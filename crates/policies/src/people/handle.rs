//! `People`: the handle that all calls about accounts go through.

use std::sync::Arc;

use crate::database::sql::{Connection, ConnectionPool, SqlRow};
use crate::database::{DatabaseError, PolicyDatabase};
use crate::time::UnixTime;

/// Accounts, sessions, tokens and the audit log of a database of policies. Clones share
/// connections, which are others than those of policies: sign-ins of strangers keep no node from
/// following.
#[derive(Clone, Debug)]
pub struct People {
    pub(super) pool: Arc<ConnectionPool>,
}

impl PolicyDatabase {
    pub fn people(&self) -> People {
        People {
            pool: Arc::new(self.pool().beside()),
        }
    }
}

/// Begins a transaction that no other writer of this part is in.
pub async fn begin(connection: &mut Connection, head: &str) -> Result<(), DatabaseError> {
    connection.begin().await?;
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

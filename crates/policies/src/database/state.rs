//! States: all objects at a revision.

use super::changes::{ChangesAfter, after};
use super::error::DatabaseError;
use super::handle::PolicyDatabase;
use super::read::{head, load, position};
use super::sql::Connection;
use crate::model::{PolicyState, Position};

impl PolicyDatabase {
    /// Where the newest revision is.
    pub async fn head(&self) -> Result<Position, DatabaseError> {
        let mut lease = self.pool.take().await?;
        let (head, _) = head(&mut lease).await?;
        lease.give_back();
        Ok(head)
    }

    /// All objects at a revision; without one, at the newest.
    pub async fn state(&self, at: Option<u64>) -> Result<PolicyState, DatabaseError> {
        let mut lease = self.pool.take().await?;
        let (head, _) = head(&mut lease).await?;
        let state = match at {
            None => self.newest(&mut lease, head).await?,
            Some(asked) => {
                let position = position(&mut lease, asked, head).await?;
                load(&mut lease, position).await?
            }
        };
        lease.give_back();
        Ok(state)
    }

    /// The state at the head: what is known already, brought forward.
    pub(super) async fn newest(
        &self,
        connection: &mut Connection,
        head: Position,
    ) -> Result<PolicyState, DatabaseError> {
        let state = match self.known() {
            Some(known) if known.position() == head => return Ok(known),
            Some(known) => match after(connection, known.position(), head).await? {
                ChangesAfter::Known { changes, to } => known.advanced(&changes, to),
                ChangesAfter::Unknown { .. } => load(connection, head).await?,
            },
            None => load(connection, head).await?,
        };
        self.remember(&state);
        Ok(state)
    }
}

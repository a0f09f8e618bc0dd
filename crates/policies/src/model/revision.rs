//! A revision, and the place in the sequence of revisions where somebody stands.

use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

use crate::time::UnixTime;

/// A numbered set of changes that is never changed again: who made it, when and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Revision {
    /// 1, 2, 3 … without gaps.
    pub number: u64,
    pub author: String,
    pub at: UnixTime,
    pub reason: String,
    /// How many objects it changed.
    pub edits: u64,
}

/// A revision and its random mark. The number alone would not tell a database that was restored
/// from a backup, or another one, from the database that was followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Position {
    /// 0: before the first.
    pub revision: u64,
    pub token: u64,
}

impl Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:x}", self.revision, self.token)
    }
}

//! How a call can fail, in the words of somebody who has to do something about it.

use std::sync::Arc;

/// The schema that this version knows.
pub const SCHEMA: u32 = 2;

/// A failure of the database. `place` is its URL without secrets.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error("the database {place} is away: {cause}")]
    Away { place: Arc<str>, cause: String },
    #[error("the database {place} is locked by somebody else: {cause}. Try again")]
    Busy { place: Arc<str>, cause: String },
    #[error("{}", older(place, *found, *known))]
    SchemaOlder {
        place: Arc<str>,
        found: u32,
        known: u32,
    },
    #[error(
        "the database {place} is of schema {found}, this version knows {known}: upgrade Tollgate"
    )]
    SchemaNewer {
        place: Arc<str>,
        found: u32,
        known: u32,
    },
    #[error(
        "the user of the database {place} may not do this: {cause}. Grant the right, or use another user"
    )]
    ReadOnly { place: Arc<str>, cause: String },
    #[error("there is no revision {asked}: the newest is {head}")]
    UnknownRevision { asked: u64, head: u64 },
    #[error("the database {place} holds what Tollgate did not write: {cause}")]
    Broken { place: Arc<str>, cause: String },
}

fn older(place: &str, found: u32, known: u32) -> String {
    match found {
        0 => format!("the database {place} has no tables of Tollgate yet: migrate it"),
        _ => format!(
            "the database {place} is of schema {found}, this version needs {known}: migrate it"
        ),
    }
}

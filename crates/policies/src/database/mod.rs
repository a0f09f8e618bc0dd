//! Revisions of policies in SQLite, PostgreSQL or MySQL: read at any of them, followed, and written
//! by compare and swap.

mod changes;
mod commit;
mod error;
mod handle;
mod history;
mod read;
mod revoked;
mod schema;
pub(crate) mod sql;
mod state;
mod write;

pub use changes::ChangesAfter;
pub use commit::CommitError;
pub(crate) use commit::WrittenAlong;
pub use error::{DatabaseError, SCHEMA};
pub use handle::PolicyDatabase;
pub use history::{ObjectRevision, Page};
pub use schema::Migrated;
pub use sql::UrlProblem;

//! A client of three databases: statements with `?`, integers and texts, a time limit for each
//! statement, and failures by their remedies.

mod address;
mod connection;
mod dialect;
mod failure;
mod files;
mod idle;
mod pool;
mod row;

pub(crate) use address::DatabaseAddress;
pub use address::UrlProblem;
pub(crate) use connection::{Connection, schema_of};
pub(crate) use dialect::{Dialect, SqlValue};
pub(crate) use pool::{ConnectionPool, PooledConnection};
pub(crate) use row::{BadData, SqlRow};

//! Policies that people edit: numbered, immutable revisions of objects in a database, and the
//! people who may edit them.
//!
//! [`model`] is pure, [`database`] stores it in SQLite, PostgreSQL or MySQL, [`people`] has
//! accounts, rights and the audit log. Nothing in here knows the gateway: whether a state is good
//! is decided by a function that the caller gives.

pub mod database;
pub mod model;
pub mod people;
pub mod time;

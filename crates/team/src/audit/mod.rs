//! The audit log: `bounded_records` bounds what is kept of refusals and sessions, and
//! `verification` looks whether the log is as it was written.

pub mod bounded_records;
pub mod verification;

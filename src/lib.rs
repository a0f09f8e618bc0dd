//! Tollgate: an HTTP gateway whose rate limit is a promise.
//!
//! The program: from a configuration to a running process, and the commands. All else is in
//! `crates/`.

pub mod app;
pub mod cli;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;

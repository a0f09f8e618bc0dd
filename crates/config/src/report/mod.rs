//! Mistakes of a configuration file: where each is, what is wrong there and what to do about it.
//!
//! The lowest room of `config`: the reader of YAML, the mirror of the file and the checks all write
//! into one [`Report`]. `location` says where a value is, `problem` what is wrong, `mistake`
//! joins both for people to read, and `quote` repeats a piece of the file without its credentials.

mod collect;
mod location;
mod mistake;
mod problem;
mod quote;

pub(super) use collect::Report;
pub(super) use location::Location;
pub use mistake::{Mistake, Mistakes};
pub(super) use problem::ValueProblem;
pub(super) use quote::quote;

//! Limits, and how listeners and routes use them.
//!
//! `definition` builds a limit, `plan` the plans of its clients, `assigned` those of policies,
//! `usage` the uses that listeners and routes list. `cost` holds what requests cost against what a
//! limit allows, and `credential` makes secrets of the parts that have a credential.

pub mod assigned;
mod cost;
mod credential;
pub mod definition;
mod plan;
pub mod usage;

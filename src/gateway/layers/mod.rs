//! The layers of a route's chain, one per file, and the action inside them.
//!
//! Each is a tower layer over an [`Exchange`](super::exchange::Exchange). [`super::stack`] composes
//! them and says why each stands where it does.

pub mod action;
pub mod answer;
pub mod authentication;
pub mod body_bound;
pub mod clients;
pub mod cors;
pub mod fields;
pub mod rate_limit;
mod refused;
pub mod shed;
pub mod timeout;

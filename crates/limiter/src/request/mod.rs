//! One request and its limits: what it asks, what it is answered, and what it holds until its response has ended.

pub mod admission;
pub mod catalog;
pub mod compiled_limit;
pub mod denial;
pub mod explanation;
pub mod headers;
pub mod pending;
pub mod permit;
pub mod permit_body;
pub mod problem;
pub mod queue;
pub mod rule_set;

mod metrics;
pub mod rule;
mod shadow;
mod usage;

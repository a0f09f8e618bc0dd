//! One request and its limits: what it asks, what it is answered, and what it holds until its response has ended.

pub mod catalog;
pub mod denial;
pub mod explanation;
pub mod headers;
pub mod permit;
pub mod permit_body;
pub mod problem;
pub mod rule_set;

mod metrics;
mod rule;
mod shadow;
mod usage;

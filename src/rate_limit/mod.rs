//! Limits: what they are, whom they count, how a request is judged.

pub mod breaker;
pub mod bucket;
pub mod cost;
pub mod decision;
pub mod enforced;
pub mod exempt;
pub mod headers;
pub mod host;
pub mod key;
pub mod layer;
pub mod limiter;
pub mod plan;
pub mod policy;
mod rule;
pub mod rules;
pub mod shadow;
pub mod share;
mod tally;

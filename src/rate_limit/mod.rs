//! Limits: what they are, whom they count, how a request is judged.

pub mod breaker;
pub mod bucket;
mod calls;
mod coalesce;
mod debt;
pub mod decision;
mod denial;
pub mod headers;
pub mod key;
pub mod layer;
mod lease;
pub mod limiter;
pub mod node;
pub mod policy;
pub mod rules;
pub mod share;
mod shortcut;
mod table;

//! Limits: what they are, whom they count, how a request is judged.

pub mod breaker;
pub mod bucket;
pub mod catalog;
pub mod decision;
pub mod headers;
pub mod key;
pub mod layer;
pub mod limiter;
pub mod policy;
pub mod rules;
pub mod share;

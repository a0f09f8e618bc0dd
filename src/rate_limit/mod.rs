//! Limits: what they are, whom they count, how a request is judged.

pub mod breaker;
pub mod bucket;
pub mod decision;
pub mod key;
pub mod limiter;
pub mod policy;
pub mod share;

//! Limits: what they are, whom they count, how a request is judged.

pub mod decision;
pub mod key;
pub mod policy;

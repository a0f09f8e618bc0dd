//! What a person configures: a named limit, whom it counts, how much it allows and what happens beyond.
//!
//! Plain data. Nothing here waits, counts or asks a store.

pub mod algorithm;
pub mod builder;
pub mod client_address;
pub mod cost;
pub mod definition;
pub mod exemption;
pub mod fixed_response;
pub mod key;
pub mod on_limit;
pub mod plan;
pub mod rollout;
pub mod units;

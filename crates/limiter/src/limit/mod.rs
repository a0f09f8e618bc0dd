//! The limits that a person configures: a name, the requests that share a bucket, how much they may
//! take and what happens beyond.
//!
//! Plain data, to be built in code or from a file. [`definition`] puts a limit together of the
//! other parts. Nothing here waits, counts or calls a store.

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
pub mod status_set;
pub mod units;

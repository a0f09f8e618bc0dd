//! The load: clients that ask as fast as the plan says, and what they ask.
//!
//! `node` runs a node of a fleet in this process with its `client`s and `held_client`s, `http`
//! drives gateways over HTTP, and `process` starts gateways to be driven and killed. Each records
//! what its clients observed; none judges it. `reference` is the limiter without delays beside
//! them, and `redis_commands` is what a run itself asks of Redis.

pub mod client;
mod held_client;
pub mod http;
pub mod load;
pub mod node;
pub mod process;
pub mod progress;
pub mod redis_commands;
mod reference;
mod store_calls;
pub mod thread;

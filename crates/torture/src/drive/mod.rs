//! The load: clients that ask as fast as the plan says, and what they ask.
//!
//! `node` runs a node of a fleet in this process with its `client`s, `http` drives gateways over HTTP, and `process` starts
//! gateways to be driven and killed. Each records what its clients observed; none judges it.

pub mod client;
pub mod http;
pub mod load;
pub mod node;
pub mod process;
pub mod progress;
mod store_calls;
pub mod thread;

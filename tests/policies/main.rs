//! Gateways that take their policies from a database: how a fleet follows it, and what becomes of
//! them when it is away.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that lacks what it needs fails"
)]
#![expect(clippy::disallowed_methods, reason = "these tests measure real time")]

mod api;
mod away;
mod command_line;
mod console;
mod editor;
mod fleet;
mod keys;
mod owners;
mod port;
mod refused;
mod rights;
mod rollout;
mod scene;
mod traffic;
mod visit;

#[path = "../../crates/policies/tests/databases/front.rs"]
#[expect(dead_code, reason = "other tests need the rest")]
mod front;
#[path = "../gateway/process.rs"]
#[expect(dead_code, reason = "other tests need the rest")]
mod process;
#[path = "../../crates/policies/tests/databases/servers.rs"]
#[expect(dead_code, reason = "other tests need the rest")]
mod servers;

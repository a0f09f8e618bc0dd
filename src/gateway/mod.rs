//! From a request to a route to an answer: a configuration at work.
//!
//! Read [`stack`] first: it composes the chain of a route, layer by layer. [`serve`] takes a
//! request through it, and [`Gateway`] is the configuration that it goes by. One serves all workers
//! of the node, and a reload replaces it as a whole; [`WorkerListener`] is what belongs to one
//! worker.

pub mod access_log;
pub mod account;
mod answer;
pub mod body_keys;
mod client_fields;
mod exchange;
pub mod explain;
mod layers;
pub mod listener_rules;
pub mod maintenance;
mod panic_guard;
pub mod route_metrics;
mod runtime;
pub mod serve;
pub mod stack;

pub use exchange::{RouteTarget, UNROUTED, Upstreams, Worker};
pub use runtime::{Gateway, RouteGuard, RouteRuntime, WorkerListener};

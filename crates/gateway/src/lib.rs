//! From a request to a route to an answer: a configuration at work.
//!
//! Read [`pipeline`] first: it takes a request through the steps of its route, one after the other,
//! and its answer back. [`Gateway`] is the configuration that it goes by. One serves all workers of
//! the node, and a reload replaces it as a whole; [`WorkerListener`] is the part of one worker.

pub mod access_log;
pub mod account;
pub mod answer;
pub mod body_keys;
mod client_fields;
mod exchange;
pub mod explain;
pub mod listener_rules;
pub mod maintenance;
pub mod observe;
pub mod pipeline;
pub mod route_metrics;
mod routing;
mod runtime;
pub mod steps;
pub mod unnamed_proxy;

pub use exchange::{RouteTarget, UNROUTED, Upstreams, Worker};
pub use runtime::{Gateway, RouteGuard, RouteRuntime, WorkerListener};

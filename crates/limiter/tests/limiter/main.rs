//! The limiter as a library: its arithmetic, what it promises of a node and of a fleet, and what
//! clients are told.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that lacks what it needs fails"
)]
#![expect(clippy::print_stdout, reason = "says which of many cases failed")]

mod any_service;
mod axum_layer;
mod concurrency;
mod deadline;
mod fewer_calls;
mod full_table;
mod honest_headers;
mod model;
mod parity;
mod queue;
mod scripts;
mod simulation;
mod slow_store;
mod stalls;

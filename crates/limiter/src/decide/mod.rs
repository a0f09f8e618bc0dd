//! Decisions: from this process when it knows enough, from the shared store otherwise, by each limit's `on_outage` without it.

pub mod decision;
pub mod limiter;
pub mod plans;

mod batch;
mod concurrency;
pub(crate) mod local_decision;
pub(crate) mod settlement;
pub(crate) mod store_client;

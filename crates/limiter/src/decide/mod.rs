//! Decisions: from this process when it knows enough, from the shared store otherwise, by each limit's `on_outage` without it.

pub mod check;
pub mod decision;
pub mod limiter;
pub mod plans;

mod batch;
mod concurrency;
mod local_decision;
mod permit_claims;
pub(crate) mod settlement;
mod store_client;

//! Decides whether a request may pass: from this process when it knows enough, from the shared store otherwise, by each
//! limit's `on_outage` without it.
//!
//! `limiter` is the way in, with `check` as its question and `decision` as its answer. It asks, in this order,
//! `local_decision` (tokens taken ahead and remembered denials) and `batch` (one call for many requests), over one
//! `store_client`; `partial_outage` where a server of the store is away. A `take_call` that is given up goes on, and a
//! `late_call` sets off its answer. `concurrency` and `permit_claims` decide on permits, `settlement` charges costs that only the
//! response tells, `plans/` reads clients' plans.

pub mod check;
pub mod decision;
mod foreign_charge;
pub mod limiter;
pub mod plans;

mod batch;
mod concurrency;
mod late_call;
mod local_decision;
mod partial_outage;
mod permit_claims;
pub(crate) mod settlement;
mod store_client;
mod take_call;
pub(crate) mod units;

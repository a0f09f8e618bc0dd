//! Decides whether a request may pass: from this process when it knows enough, from the shared
//! store otherwise, by each limit's `on_outage` without it.
//!
//! `limiter` is the way in, with `check` as its question and `decision` as its answer. It asks, in
//! this order, `local_decision` (tokens taken ahead and remembered denials) and `batch` (one call
//! for many requests), over one `store_client`; `call/` is a call that its requests may give up,
//! `outage` decides without the store or with a part of it, and `units` on several requests of a
//! queue. `concurrency` and `permit_claims` decide on permits, `settlement` charges costs that only
//! the response tells, `plans/` reads clients' plans.

pub mod check;
pub mod decision;
pub mod limiter;
pub mod plans;

mod batch;
mod call;
mod concurrency;
mod local_decision;
mod outage;
mod permit_claims;
pub(crate) mod settlement;
mod store_client;
pub(crate) mod units;

//! A request and its limits, from its arrival to the end of its response.
//!
//! `rule_set` has the limits of a route, each a `rule` over a `compiled_limit`; `admission` is the
//! way of a request through them. Until its decision it is `pending`, and may wait in a `queue`.
//! `shadow` has the limits that only count, `metrics` the counters, `denied_keys` whom they count
//! against, by a sketch of `heavy_hitters`. `answer/` is for the client: refusals and fields.
//! `response/` holds permits and reservations until the response has ended, and reads its cost.
//! `operator/` explains limits to people.

pub mod admission;
mod answer;
pub mod compiled_limit;
pub mod denied_keys;
pub mod heavy_hitters;
mod metrics;
mod operator;
pub mod pending;
pub mod queue;
mod response;
pub mod rule;
pub mod rule_set;
mod shadow;

pub use crate::request::answer::{denial, headers, problem, request_id};
pub use crate::request::operator::{catalog, explanation};
pub use crate::request::response::{permit, permit_body};

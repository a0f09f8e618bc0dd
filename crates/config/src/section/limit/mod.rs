//! `limits`: a rate limit, and how listeners and routes use it.
//!
//! `definition` is the whole limit. Each question that a limit answers has a file: `key` (what is
//! counted), `algorithm` (how, and how much), `cost` and `response_cost` (what a request takes),
//! `count` (which requests take it), `plan` (other numbers for some clients) and `assigned` (those
//! of policies), `on_limit` (what happens beyond) and `on_outage` (what happens without the store).
//! `uses` is how a listener or a route refers to a limit.

pub mod algorithm;
pub mod assigned;
pub mod cost;
pub mod count;
pub mod definition;
pub mod key;
pub mod on_limit;
pub mod on_outage;
pub mod plan;
pub mod response_cost;
pub mod uses;

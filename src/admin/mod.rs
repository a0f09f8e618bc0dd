//! The operator's port: health, metrics, and a look into limits and routes. Never reachable through
//! a listener.
//!
//! `router` is the table of paths; each page has a file in `pages`, and JSON that `tollgate bucket`
//! and `tollgate explain` read as well has its shape in `views`. A page gets its query from `query`
//! and all that it shows from `state`; buckets are read and changed by `bucket_service`, and
//! `policy_service` has what changes policies; `fleet_nodes` knows the nodes of the fleet.
//! `browser_guard` stands before every page and keeps web pages from changing anything;
//! `problem_details` is the shape of a refusal, and `openapi` describes all of it for programs.
//! `server` serves connections like a listener, with bounds of its own: these pages, and those of
//! the console; `carry_out` carries changes out though their clients go away. `caller` says who
//! asks and what they may do, by the `accounts` of a gateway that has some.

pub mod accounts;
pub mod browser_guard;
pub mod bucket_service;
pub mod caller;
pub mod carry_out;
pub mod fleet_nodes;
pub mod openapi;
pub mod pages;
pub mod policies;
pub mod policy_service;
pub mod problem_details;
pub mod query;
mod router;
pub mod server;
pub mod state;
pub mod views;

pub use router::{probes, router};
pub use server::{AdminPages, serve};

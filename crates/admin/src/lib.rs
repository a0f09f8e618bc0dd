//! The operator's port: health, metrics, and a look into limits and routes. Never reachable through
//! a listener.
//!
//! `router` is the table of paths; each page has a file in `pages`, and JSON that `tollgate bucket`
//! and `tollgate explain` read as well has its shape in `views`. A page gets its query from `query`
//! and all that it shows from `state`; `bucket_service` reads and changes buckets, `fleet_nodes`
//! knows the nodes of the fleet, and `config_status` the last reading of the file.
//! `browser_guard` stands before every page and keeps web pages from changing anything; `caller`
//! asks a trait who calls and what they may do. `problem_details` is the shape of a refusal, and
//! `openapi` describes the pages for programs. `server` serves connections like a listener, with
//! bounds of its own; `carry_out` carries changes out though their clients go away.

pub mod browser_guard;
pub mod bucket_service;
pub mod caller;
pub mod carry_out;
pub mod config_status;
pub mod fleet_nodes;
pub mod openapi;
pub mod pages;
pub mod problem_details;
pub mod query;
mod router;
pub mod server;
pub mod state;
pub mod views;

pub use router::{AdminExtension, probes, router};
pub use server::{AdminPages, serve};

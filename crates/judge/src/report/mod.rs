//! The report of a run: what its clients observed, the figures, and the verdict.
//!
//! `observations` is what clients record while a run lasts, `run_report` judges it, and `table`
//! prints reports for people. `first_requests` says what a lone crash demands.

pub mod first_requests;
mod latencies;
pub mod observations;
mod run_report;
mod table;

pub use run_report::{Requirement, RunReport, RunTerms};
pub use table::table;

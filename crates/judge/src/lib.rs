//! `tollgate torture`: tests a limit from outside. It drives limiters or gateways flat out, records
//! which requests were admitted and when, and judges every window of time by the bound that the
//! limit promises: burst + rate × t.
//!
//! Guarantees that the verdict rests on what clients saw: when each request was sent, when its
//! answer came and whether it was admitted. The judge shares no arithmetic with the limiter.
//!
//! | module | what it does |
//! |---|---|
//! | `command` | from the command line ([`Arguments`]) to runs, and from their reports to a table or JSON |
//! | [`plan`], [`scenario`], [`case`], [`limit`] | what a run does, which faults it meets, and the limit under test |
//! | `drive` | puts load on nodes of this process, on processes of their own, or on gateways over HTTP |
//! | `faults` | crashes nodes, reloads limits, and delays or cuts their connections to Redis |
//! | `judge` | finds the window that exceeds the bound most, with a reference beside it |
//! | [`report`] | what clients observed, the figures and the verdict |
//!
//! ```text
//! scenario ─▸ faults ─▸ drive ─▸ observations ─▸ judge ─▸ report
//! ```

mod arguments;
pub mod case;
pub mod command;
mod drive;
mod error;
mod faults;
pub mod judge;
pub mod limit;
pub mod plan;
pub mod report;
mod run;
pub mod scenario;

pub use crate::arguments::Arguments;
pub use crate::case::Case;
pub use crate::drive::http::{Targets, run_targets};
pub use crate::drive::node::Backing;
pub use crate::drive::process::run_processes;
pub use crate::drive::progress::Progress;
pub use crate::error::Error;
pub use crate::limit::TestedLimit;
pub use crate::plan::RunPlan;
pub use crate::run::run_nodes;
pub use crate::scenario::Scenario;

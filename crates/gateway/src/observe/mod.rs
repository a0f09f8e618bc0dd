//! Metrics and logs: how a running gateway is observed.
//!
//! `metrics` is the table of metrics and installs their `recorder`, which keeps `series`.
//! `policy_metrics`, `reload_metrics` and `process_metrics` count what no other room counts.
//! `latency` has the quantiles of a histogram. `logging` starts the program's own log, and
//! `access_log` writes a line per request.

pub mod access_log;
pub mod latency;
pub mod logging;
pub mod metrics;
pub mod policy_metrics;
pub mod process_metrics;
pub mod recorder;
pub mod reload_metrics;
pub mod series;

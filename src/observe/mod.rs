//! Metrics, logs and request ids: how a running gateway is observed.
//!
//! `metrics` is the table of metrics and installs their `recorder`, which keeps `series`.
//! `policy_metrics`, `reload_metrics` and `process_metrics` count what no other room counts.
//! `logging` starts the program's own log, `access_log` writes a line per request, and `request_id`
//! marks the lines of one request.

pub mod access_log;
pub mod logging;
pub mod metrics;
pub mod policy_metrics;
pub mod process_metrics;
pub mod recorder;
pub mod reload_metrics;
pub mod request_id;
pub mod series;

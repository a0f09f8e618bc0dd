//! How a running gateway is observed, apart from the admin port that shows it.
//!
//! `metrics` names the metrics and installs their recorder, `logging` starts the program's own log, `access_log` writes a
//! line per request, and `request_id` joins what they say of one request. Nothing here knows a request or its answer.

pub mod access_log;
pub mod logging;
pub mod metrics;
pub mod request_id;

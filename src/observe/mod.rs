//! Metrics, logs and request ids: how a running gateway is observed.
//!
//! `metrics` names the metrics and installs their `recorder`, which keeps `series`;
//! `policy_metrics` has those of policies, and `latency` quantiles of a histogram; `logging` starts the program's own log, `access_log`
//! writes a line per request, and `request_id` joins what they say of one request.

pub mod access_log;
pub mod latency;
pub mod logging;
pub mod metrics;
pub mod policy_metrics;
pub mod recorder;
pub mod request_id;
pub mod series;

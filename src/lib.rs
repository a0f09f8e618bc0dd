//! Tollgate: an HTTP gateway whose rate limit is a promise.

pub mod admin;
pub mod app;
pub mod body;
pub mod cli;
pub mod config;
pub mod error;
pub mod gateway;
mod http1;
pub mod metrics;
pub mod proxy;
pub mod request_id;
pub mod server;
pub mod telemetry;
pub mod upstream;

pub use tollgate_limiter::clock;

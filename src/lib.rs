//! Tollgate: an HTTP gateway whose rate limit is a promise.

pub mod admin;
pub mod app;
pub mod body;
pub mod cli;
pub mod clock;
pub mod config;
pub mod error;
pub mod gateway;
mod header_map_pool;
mod http;
pub mod metrics;
pub mod proxy;
pub mod rate_limit;
pub mod request_id;
pub mod respond;
pub mod route;
pub mod server;
pub mod store;
pub mod telemetry;
mod text;
pub mod torture;
pub mod units;
pub mod upstream;

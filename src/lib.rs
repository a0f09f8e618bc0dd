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
pub mod observe;
pub mod proxy;
pub mod rate_limit;
pub mod respond;
pub mod route;
pub mod server;
mod spelling;
pub mod store;
mod text;
pub mod torture;
pub mod units;
pub mod upstream;

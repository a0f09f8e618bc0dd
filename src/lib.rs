//! Tollgate: an HTTP gateway whose rate limit is a promise.

mod address_shares;
pub mod admin;
pub mod app;
pub mod body;
mod body_memory;
pub mod cli;
pub mod config;
#[cfg(feature = "console")]
pub mod console;
pub mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod gateway;
mod grpc;
mod header_map_pool;
mod http;
pub mod identity;
pub mod observe;
mod plain_text;
pub mod proxy;
mod regular_file;
pub mod route;
pub mod server;
mod spelling;
#[cfg(feature = "team")]
pub mod team;
pub mod transport;
pub mod upstream;

pub use tollgate_limiter::clock;

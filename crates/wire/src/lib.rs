//! Bytes, and no policy: bodies, the HTTP/1.1 codec, the rules on messages, deadlines of waits,
//! TLS, the PROXY protocol, and failures with their answers and their lines in the log.
//!
//! Both sides of the gateway use this crate: the server towards clients, and the proxy towards
//! upstreams. Nothing here knows a route, an upstream or a listener.

pub mod address_shares;
pub mod body;
pub mod body_memory;
pub mod error;
pub mod failure_log;
pub mod fields;
pub mod grpc;
pub mod header_map_pool;
pub mod http;
pub mod regular_file;
pub mod transport;

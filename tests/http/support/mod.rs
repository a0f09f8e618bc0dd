//! The gateway's server in this process: around the proxy alone, or around a handler whose answers
//! a test chooses by path.

pub mod proxy_server;
pub mod test_server;

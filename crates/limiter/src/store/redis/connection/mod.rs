//! Connections to single Redis servers: where a server is (`address`), what an operator says of the
//! store (`spec`), TLS (`tls`), how a connection is opened and kept (`connector`), what the log
//! says of it (`connection_log`) and what its errors mean to the limiter (`error`).

pub mod address;
pub(crate) mod connection_log;
pub(crate) mod connector;
pub(crate) mod error;
pub mod spec;
pub mod tls;

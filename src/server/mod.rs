//! Sockets, connections and workers: bytes in, requests out.

use std::net::SocketAddr;
use std::time::Duration;

/// One address to listen on, and how patient to be with its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSpec {
    pub address: SocketAddr,
    /// From the first byte of a header section to its last; then 408.
    pub header_timeout: Duration,
    /// A connection without a request is closed after this.
    pub keepalive_timeout: Duration,
    /// Between two reads of a request body; then 408.
    pub body_timeout: Duration,
    /// Bytes of a request line and header section; beyond: 414 or 431.
    pub max_header_bytes: usize,
    /// Header fields of a request; beyond: 431.
    pub max_headers: usize,
    /// Open connections, all workers together; further ones wait in the accept queue.
    pub max_connections: usize,
}

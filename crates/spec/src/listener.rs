//! The settings of a listener.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use tollgate_wire::transport::listen_address::ListenAddress;

/// An address to listen on, and the time limits and bounds for its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSpec {
    pub address: ListenAddress,
    /// The right to connect to a Unix socket: the mode of its file.
    pub socket_mode: u32,
    /// The name of the socket, where systemd opens several.
    pub socket_name: Option<Arc<str>>,
    /// Connections begin with a header of the PROXY protocol, and come from trusted peers only.
    pub proxy_protocol: bool,
    /// Longest time from the first byte of a header section to its last; then 408. A new connection
    /// gets as long for its first byte; then the close comes without an answer.
    pub header_timeout: Duration,
    /// How long a connection may stay open without a request.
    pub keepalive_timeout: Duration,
    /// Longest time between two reads of a request body; then 408. Also between two writes of a
    /// response that the client does not read; then the connection is dropped.
    pub body_timeout: Duration,
    /// Bytes of a body per second that a client sends at least, and takes of a response. A body may
    /// be behind by `body_timeout`. `None`: no least rate.
    pub min_body_rate: Option<NonZeroU64>,
    /// Bytes of a request line and header section; beyond: 414 or 431. A target may take half of
    /// the bytes.
    pub max_header_bytes: usize,
    /// Header fields of a request; beyond: 431.
    pub max_headers: usize,
    /// Open connections, of all workers together. Beyond, the connections idle for longest are
    /// closed, and further ones wait in the accept queue.
    pub max_connections: usize,
    /// Open connections of one client; further ones are reset. `None`: no bound.
    pub max_connections_per_client: Option<u32>,
}

/// The mode of a Unix socket that its owner and its group may connect to.
const DEFAULT_SOCKET_MODE: u32 = 0o660;

impl ListenerSpec {
    /// A listener at `address` with the defaults of the file.
    pub fn at(address: ListenAddress) -> Self {
        Self {
            address,
            socket_mode: DEFAULT_SOCKET_MODE,
            socket_name: None,
            proxy_protocol: false,
            header_timeout: Duration::from_secs(10),
            keepalive_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(30),
            min_body_rate: None,
            max_header_bytes: 64 * 1024,
            max_headers: 100,
            max_connections: 65_536,
            max_connections_per_client: None,
        }
    }
}

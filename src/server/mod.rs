//! Sockets, connections and workers: bytes in, requests out.
//!
//! Guarantees that whatever reaches a [`Handler`] is a request that can be read in one way only, with exactly one Host
//! field (none only in HTTP/1.0), and that whatever does not is answered by the same handler. Knows neither routes nor
//! limits.

pub mod connection;
pub mod drain;
mod gather;
mod http1;
mod http2;
pub mod listener;
mod socket;
mod under_way;
pub mod worker;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};

use crate::body::Body;
use crate::error::Failure;

pub use crate::http::h1::upgrade::{OnUpgrade, Upgraded};
pub use connection::Connection;
pub use drain::{Drain, DrainSignal, Drained};
pub use listener::{Slots, bind, check_free, serve};

/// One address to listen on, and how patient to be with its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSpec {
    pub address: SocketAddr,
    /// From the first byte of a header section to its last; then 408. Also what a new connection gets for its first byte;
    /// then it is closed without a word.
    pub header_timeout: Duration,
    /// A connection without a request is closed after this.
    pub keepalive_timeout: Duration,
    /// Between two reads of a request body; then 408. Also between two writes of a response that the client does not
    /// read; then the connection is dropped.
    pub body_timeout: Duration,
    /// Bytes of a request line and header section; beyond: 414 or 431. A target may take half of them.
    pub max_header_bytes: usize,
    /// Header fields of a request; beyond: 431.
    pub max_headers: usize,
    /// Open connections, all workers together; further ones wait in the accept queue.
    pub max_connections: usize,
}

/// Longer waits than this are this long: no clock overflows.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What answers requests.
pub trait Handler: Clone + Send + Sync + 'static {
    /// Answers a request. Dropped when the client goes away.
    fn handle(
        &self,
        connection: &Arc<Connection>,
        request: Request<Body>,
    ) -> impl Future<Output = Response<Body>> + Send;

    /// Answers in place of a request that could not be read, in its turn among pipelined ones. The connection closes.
    fn refuse(&self, connection: &Arc<Connection>, failure: Failure) -> Response<Body>;
}

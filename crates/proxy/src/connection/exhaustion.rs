//! The gateway itself has nothing left for a connection: no descriptor, no port, no buffer.
//!
//! Guarantees that idle connections give way to a request, and that the log has one line per period
//! and not per request.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tollgate_wire::failure_log::FailureLog;

/// The time that a client's connection gets to close.
const CLOSES_WITHIN: Duration = Duration::from_millis(50);

/// Asks an idle connection of a client to close. False: no connection is idle.
pub type MakeRoom = Arc<dyn Fn() -> bool + Send + Sync>;

/// Makes room for connections to upstreams.
#[derive(Default)]
pub struct Exhaustion {
    clients: Option<MakeRoom>,
    log: FailureLog,
}

impl Exhaustion {
    /// `clients` make room if no idle connection to an upstream does.
    pub fn new(clients: MakeRoom) -> Self {
        Self {
            clients: Some(clients),
            log: FailureLog::default(),
        }
    }

    /// Makes room for one more connection if possible: by `close_upstream`, or by a client.
    pub async fn make_room(&self, error: &io::Error, close_upstream: impl FnOnce() -> bool) {
        if let Some(unlogged) = self.log.admit() {
            tracing::error!(%error, unlogged, "the gateway is out of descriptors, ports or buffers for upstream connections");
        }
        if !close_upstream() && self.clients.as_ref().is_some_and(|make_room| make_room()) {
            sleep(CLOSES_WITHIN).await;
        }
    }
}

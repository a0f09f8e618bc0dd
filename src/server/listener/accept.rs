//! Accepts connections and starts a task for each.
//!
//! Guarantees that accepting never spins, and that no more connections are served than the limit allows.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::server::connection::{self, ListenerContext};
use crate::server::connection_limit::{ConnectionLimit, OpenConnections};
use crate::server::handler::Handler;

/// Pause in accepting after the process ran out of descriptors or memory.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Accepts connections for ever, and serves each in a task of `tasks`.
pub async fn accept_all<H: Handler>(
    listener: &TcpListener,
    limit: &ConnectionLimit,
    open: &Arc<OpenConnections>,
    context: &Arc<ListenerContext<H>>,
    tasks: &mut JoinSet<()>,
) {
    let mut failing = false;
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    failing = false;
                    let permit = limit.acquire(open).await;
                    tasks.spawn(connection::serve_one(Arc::clone(context), stream, peer, permit));
                }
                Err(error) if concerns_one_connection(&error) => {}
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%error, "cannot accept connections: trying again until it works");
                    }
                    sleep(BACK_OFF).await;
                }
            },
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
        }
    }
}

/// Whether an accept error concerns one connection only: its client went away before it was accepted (accept(2)).
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(
        error.kind(),
        K::ConnectionAborted | K::ConnectionReset | K::ConnectionRefused | K::Interrupted | K::WouldBlock
    )
}

//! Accepts connections and starts a task for each.
//!
//! Guarantees that accepting never spins, and that no more connections are served than the limit
//! allows.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::server::connection::{self, ListenerContext};
use crate::server::connection_limit::{ConnectionLimit, OpenConnections};
use crate::server::handler::Handler;
use crate::transport::ClearStream;
use crate::transport::listening_socket::AcceptingSocket;
use crate::transport::peer::PeerAddress;

/// Pause in accepting after the process ran out of descriptors or memory.
const BACK_OFF: Duration = Duration::from_millis(100);

/// A connection that waits for its place among those that are served.
pub type AcceptedConnection = (ClearStream, PeerAddress);

/// Accepts connections for ever, and serves each in a task of `tasks`. One that waits for its turn
/// is in `waiting`.
pub async fn accept_all<H: Handler>(
    sockets: &[AcceptingSocket],
    limit: &ConnectionLimit,
    open: &Arc<OpenConnections>,
    context: &Arc<ListenerContext<H>>,
    (tasks, waiting): (&mut JoinSet<()>, &mut Option<AcceptedConnection>),
) {
    let mut failing = false;
    let mut first = 0;
    loop {
        tokio::select! {
            accepted = accept(sockets, &mut first) => match accepted {
                Ok((stream, peer)) => {
                    failing = false;
                    let handler = &context.handler;
                    let Some(client) = limit.admit(peer.ip(), || handler.is_trusted(peer)) else {
                        // An orderly close would be kept in mind for a minute.
                        stream.reset_on_drop();
                        continue;
                    };
                    // Kept outside: a drain may begin while it waits, and must not lose it.
                    *waiting = Some((stream, peer));
                    let permit = limit.acquire(client, open).await;
                    if let Some((stream, peer)) = waiting.take() {
                        tasks.spawn(connection::serve_one(Arc::clone(context), stream, peer, permit));
                    }
                }
                Err(error) if concerns_one_connection(&error) => {}
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%error, "cannot accept connections: trying again until it works");
                    }
                    limit.make_room(None);
                    sleep(BACK_OFF).await;
                }
            },
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
        }
    }
}

/// Accepts from whichever socket has a connection. Begins with another one each time, so that none
/// is forgotten.
async fn accept(sockets: &[AcceptingSocket], first: &mut usize) -> io::Result<AcceptedConnection> {
    poll_fn(|cx| {
        *first = (*first + 1) % sockets.len().max(1);
        let (before, after) = sockets.split_at(*first);
        let accepted = after
            .iter()
            .chain(before)
            .map(|socket| socket.poll_accept(cx))
            .find(Poll::is_ready);
        accepted.unwrap_or(Poll::Pending)
    })
    .await
}

/// Whether an accept error concerns one connection only: its client went away before it was
/// accepted (accept(2)).
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(
        error.kind(),
        K::ConnectionAborted
            | K::ConnectionReset
            | K::ConnectionRefused
            | K::Interrupted
            | K::WouldBlock
    )
}

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

use crate::connection::{self, ListenerContext};
use crate::connection_limit::OpenConnections;
use crate::handler::Handler;
use tollgate_wire::transport::ClearStream;
use tollgate_wire::transport::listening_socket::AcceptingSocket;
use tollgate_wire::transport::peer::PeerAddress;

/// Pause in accepting after the process ran out of descriptors or memory.
const BACK_OFF: Duration = Duration::from_millis(100);

/// A connection that was accepted.
pub type AcceptedConnection = (ClearStream, PeerAddress);

/// The connections that one worker serves for a listener.
pub struct Acceptor<H> {
    pub context: Arc<ListenerContext<H>>,
    pub open: Arc<OpenConnections>,
    /// A task for each connection that is served.
    pub tasks: JoinSet<()>,
    /// A connection that waits for its turn. A drain that begins meanwhile must not lose it.
    pub waiting: Option<AcceptedConnection>,
}

impl<H: Handler> Acceptor<H> {
    pub fn new(context: ListenerContext<H>) -> Self {
        Self {
            context: Arc::new(context),
            open: Arc::default(),
            tasks: JoinSet::new(),
            waiting: None,
        }
    }

    /// Accepts connections for ever, and serves each in a task.
    pub async fn accept_all(&mut self, sockets: &[AcceptingSocket]) {
        let mut failing = false;
        let mut first = 0;
        loop {
            tokio::select! {
                accepted = accept(sockets, &mut first) => match accepted {
                    Ok((stream, peer)) => {
                        failing = false;
                        self.serve(stream, peer).await;
                    }
                    Err(error) if concerns_one_connection(&error) => {}
                    Err(error) => {
                        if !std::mem::replace(&mut failing, true) {
                            tracing::warn!(%error, "cannot accept connections: trying again until it works");
                        }
                        self.context.limit.make_room(None);
                        sleep(BACK_OFF).await;
                    }
                },
                Some(_) = self.tasks.join_next(), if !self.tasks.is_empty() => {}
            }
        }
    }

    /// Serves a connection once the limit allows it. Refuses a client that has too many.
    async fn serve(&mut self, stream: ClearStream, peer: PeerAddress) {
        let limit = &self.context.limit;
        let Some(client) = limit.admit(peer.ip(), || self.context.handler.is_trusted(peer)) else {
            // After an orderly close, the kernel would remember the connection for a minute.
            stream.reset_on_drop();
            return;
        };
        self.waiting = Some((stream, peer));
        let permit = limit.acquire(client, &self.open).await;
        if let Some((stream, peer)) = self.waiting.take() {
            let context = Arc::clone(&self.context);
            self.tasks
                .spawn(connection::serve_one(context, stream, peer, permit));
        }
    }

    /// Serves the connection that waits for its turn when a drain begins, though the limit is
    /// reached: no connection comes after it.
    pub fn serve_waiting(&mut self) {
        let Some((stream, peer)) = self.waiting.take() else {
            return;
        };
        let limit = &self.context.limit;
        // The client's bound was checked when the connection was accepted.
        if let Some(client) = limit.admit(peer.ip(), || true) {
            let permit = limit.exceed(client, &self.open);
            let context = Arc::clone(&self.context);
            self.tasks
                .spawn(connection::serve_one(context, stream, peer, permit));
        }
    }
}

/// Accepts from a socket that has a connection. Begins with another socket each time, so that none
/// starves.
async fn accept(sockets: &[AcceptingSocket], first: &mut usize) -> io::Result<AcceptedConnection> {
    poll_fn(|cx| {
        *first = (*first + 1) % sockets.len().max(1);
        let (before, after) = sockets.split_at(*first);
        for socket in after.iter().chain(before) {
            let accepted = socket.poll_accept(cx);
            if accepted.is_ready() {
                return accepted;
            }
        }
        Poll::Pending
    })
    .await
}

/// Whether an accept error concerns one connection only: the client went away before the accept
/// (accept(2)).
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

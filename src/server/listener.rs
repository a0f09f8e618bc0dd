//! Listening sockets: what they accept, how many at once, and how they stop.
//!
//! Guarantees that accepting never spins and that no more connections are served than allowed, over all workers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::TokioExecutor;
use metrics::{Counter, Gauge};
use socket2::{Domain, Protocol, Socket as RawSocket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout_at};

use super::connection::Connection;
use super::socket::Socket;
use super::{Drain, Drained, Handler, ListenerSpec};

/// Connections that the kernel keeps for us while none is accepted; it may cap this (`net.core.somaxconn`).
const BACKLOG: i32 = 4096;
/// How long nothing is accepted after the process ran out of descriptors or memory.
const BACK_OFF: Duration = Duration::from_millis(100);

/// The connections that may be open at once, shared by all workers of a listener. Its metrics belong to the recorder
/// that is installed when it is made.
#[derive(Clone)]
pub struct Slots {
    free: Arc<Semaphore>,
    open: Gauge,
    total: Counter,
}

/// One open connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    _permit: Option<OwnedSemaphorePermit>,
    open: Gauge,
    live: Arc<Live>,
}

/// The connections of one `serve`, upgraded ones included.
#[derive(Debug, Default)]
struct Live {
    count: AtomicUsize,
    gone: Notify,
}

/// What every connection of a listener is served with.
struct Shared<H> {
    handler: H,
    spec: Arc<ListenerSpec>,
    drain: Drain,
    http2: http2::Builder<TokioExecutor>,
}

impl Slots {
    /// `max_connections` of them.
    pub fn new(max_connections: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS))),
            open: metrics::gauge!("tollgate_connections"),
            total: metrics::counter!("tollgate_connections_total"),
        }
    }

    /// The same, of connections that are no client's: no metric tells of them.
    pub fn uncounted(max_connections: usize) -> Self {
        let free = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
        Self { free, open: Gauge::noop(), total: Counter::noop() }
    }

    /// Waits for a free slot.
    async fn take(&self, live: &Arc<Live>) -> Slot {
        // The semaphore is never closed: an error would mean that there is no bound to keep.
        let permit = Arc::clone(&self.free).acquire_owned().await.ok();
        self.open.increment(1.0);
        self.total.increment(1);
        live.count.fetch_add(1, Ordering::Relaxed);
        Slot { _permit: permit, open: self.open.clone(), live: Arc::clone(live) }
    }
}

#[cfg(test)]
impl Slot {
    /// Beside all connections.
    pub fn of_nobody() -> Self {
        Self { _permit: None, open: Gauge::noop(), live: Arc::default() }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.open.decrement(1.0);
        if self.live.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.live.gone.notify_one();
        }
    }
}

impl Live {
    async fn all_gone(&self) {
        while self.count.load(Ordering::Acquire) > 0 {
            self.gone.notified().await;
        }
    }
}

/// A listening socket for `spec`. Called once per worker: the kernel spreads connections over them (SO_REUSEPORT). Port 0
/// picks a port, a new one each time: the other workers need the address of the first one's socket.
pub fn bind(spec: &ListenerSpec) -> io::Result<std::net::TcpListener> {
    let socket = RawSocket::new(Domain::for_address(spec.address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&spec.address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Whether nobody else listens where `spec` says. Two processes that share ports as workers do would share connections too,
/// each with its own configuration, and neither would notice.
pub fn check_free(spec: &ListenerSpec) -> io::Result<()> {
    let socket = RawSocket::new(Domain::for_address(spec.address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections that linger from a gateway before this one are no listeners.
    socket.set_reuse_address(true)?;
    socket.bind(&spec.address.into())
}

/// Accepts and serves connections until `drain`, then waits for the open ones until its deadline. `slots` is shared by
/// the workers of a listener. An accepted connection that finds no free slot waits, unread, and nothing else is accepted
/// meanwhile.
pub async fn serve<H: Handler>(
    listener: TcpListener,
    spec: Arc<ListenerSpec>,
    handler: H,
    slots: Slots,
    drain: Drain,
) -> Drained {
    let shared = Arc::new(Shared { http2: super::http2::builder(&spec), handler, spec, drain: drain.clone() });
    let live = Arc::new(Live::default());
    let mut connections = JoinSet::new();
    let mut waiting = drain;
    let deadline = tokio::select! {
        biased;
        deadline = waiting.begun() => deadline,
        () = accept_all(&listener, &slots, &live, &shared, &mut connections) => return Drained::default(),
    };
    drop(listener);
    // Those that ended need no waiting for: what counts is the sockets, which an upgrade moves elsewhere.
    let cut = match timeout_at(deadline, live.all_gone()).await {
        Ok(()) => 0,
        Err(_) => live.count.load(Ordering::Acquire),
    };
    connections.shutdown().await;
    Drained { cut }
}

async fn accept_all<H: Handler>(
    listener: &TcpListener,
    slots: &Slots,
    live: &Arc<Live>,
    shared: &Arc<Shared<H>>,
    connections: &mut JoinSet<()>,
) {
    let mut failing = false;
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    failing = false;
                    let slot = slots.take(live).await;
                    connections.spawn(serve_one(Arc::clone(shared), stream, peer, slot));
                }
                Err(error) if concerns_one_connection(&error) => {}
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%error, "cannot accept connections: trying again until it works");
                    }
                    sleep(BACK_OFF).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

/// The client went away before it was accepted (accept(2)).
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(
        error.kind(),
        K::ConnectionAborted | K::ConnectionReset | K::ConnectionRefused | K::Interrupted | K::WouldBlock
    )
}

async fn serve_one<H: Handler>(shared: Arc<Shared<H>>, stream: TcpStream, peer: std::net::SocketAddr, slot: Slot) {
    let Ok(local) = stream.local_addr() else { return };
    // Answers are written whole: waiting for more to send only delays them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let connection = Arc::new(Connection::new(peer, local));
    let Shared { handler, spec, drain, http2 } = &*shared;
    if let Some(socket) = super::http1::drive(Socket { stream, slot }, &connection, handler, spec, drain).await {
        super::http2::drive(http2, socket, &connection, handler.clone(), spec, drain).await;
    }
}

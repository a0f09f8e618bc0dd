//! Listening sockets: binds them, accepts connections and serves each until the server drains.
//!
//! Guarantees that accepting never spins, and that no more connections are served than the limit allows.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket as RawSocket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout_at};

use super::connection_info::ConnectionInfo;
use super::connection_limit::{ConnectionLimit, ConnectionPermit, OpenConnections};
use super::drain::{Drain, Drained};
use super::h1;
use super::h2::Http2;
use super::handler::Handler;
use super::socket::Socket;
use super::spec::ListenerSpec;

/// Connections that wait in the kernel's queue while none is accepted; the kernel may cap this (`net.core.somaxconn`).
const BACKLOG: i32 = 4096;
/// Pause in accepting after the process ran out of descriptors or memory.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Everything that the connections of a listener share.
struct ListenerContext<H> {
    handler: H,
    spec: Arc<ListenerSpec>,
    drain: Drain,
    http2: Http2,
}

/// A listening socket for `spec`. Called once per worker: the kernel spreads connections over the sockets
/// (SO_REUSEPORT). Port 0 picks a new port each time: the other workers must bind the address of the first worker's
/// socket.
pub fn bind(spec: &ListenerSpec) -> io::Result<std::net::TcpListener> {
    let socket = RawSocket::new(Domain::for_address(spec.address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&spec.address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Checks that no other process listens on the address of `spec`. Two processes that share a port, as workers do, would
/// share its connections unnoticed, each with its own configuration.
pub fn check_free(spec: &ListenerSpec) -> io::Result<()> {
    let socket = RawSocket::new(Domain::for_address(spec.address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections left by an earlier gateway (TIME_WAIT) are not listeners.
    socket.set_reuse_address(true)?;
    socket.bind(&spec.address.into())
}

/// Accepts and serves connections until `drain` begins, then waits for the open ones until its deadline. `limit` is
/// shared by the workers of a listener. An accepted connection over the limit waits, unread, and nothing else is
/// accepted meanwhile.
pub async fn serve<H: Handler>(
    listener: TcpListener,
    spec: Arc<ListenerSpec>,
    handler: H,
    limit: ConnectionLimit,
    drain: Drain,
) -> Drained {
    let context = Arc::new(ListenerContext { http2: Http2::new(&spec), handler, spec, drain: drain.clone() });
    let open = Arc::new(OpenConnections::default());
    let mut tasks = JoinSet::new();
    let mut waiting = drain;
    let deadline = tokio::select! {
        biased;
        deadline = waiting.begun() => deadline,
        () = accept_all(&listener, &limit, &open, &context, &mut tasks) => return Drained::default(),
    };
    drop(listener);
    // Sockets are waited for rather than tasks: an upgrade moves a socket to another task.
    let cut = match timeout_at(deadline, open.all_closed()).await {
        Ok(()) => 0,
        Err(_) => open.count(),
    };
    tasks.shutdown().await;
    Drained { cut }
}

async fn accept_all<H: Handler>(
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
                    tasks.spawn(serve_one(Arc::clone(context), stream, peer, permit));
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

async fn serve_one<H: Handler>(
    context: Arc<ListenerContext<H>>,
    stream: TcpStream,
    peer: SocketAddr,
    permit: ConnectionPermit,
) {
    let Ok(local) = stream.local_addr() else { return };
    // Answers are written whole: Nagle's algorithm would only delay them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let connection = Arc::new(ConnectionInfo::new(peer, local));
    let ListenerContext { handler, spec, drain, http2 } = &*context;
    if let Some(socket) = h1::drive(Socket { stream, permit }, &connection, handler, spec, drain).await {
        http2.drive(socket, &connection, handler.clone(), drain).await;
    }
}

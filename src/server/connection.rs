//! An accepted connection: from its socket to the codec that speaks on it.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;

use super::connection_info::ConnectionInfo;
use super::connection_limit::ConnectionPermit;
use super::drain::Drain;
use super::h1;
use super::h2::{Http2, LeaveSignal};
use super::handler::Handler;
use super::socket::Socket;
use super::spec::ListenerSpec;

/// Everything that the connections of a listener share.
pub struct ListenerContext<H> {
    pub handler: H,
    pub spec: Arc<ListenerSpec>,
    pub drain: Drain,
    pub http2: Http2,
}

/// Serves the connection that was accepted as `stream` from `peer`, to its end.
pub async fn serve_one<H: Handler>(
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
    let activity = Arc::clone(permit.activity());
    let ListenerContext { handler, spec, drain, http2 } = &*context;
    if let Some(socket) = h1::drive(Socket { stream: stream.into(), permit }, &connection, handler, spec, drain).await {
        let leave = LeaveSignal { drain, activity: &activity };
        http2.drive(socket, &connection, handler.clone(), leave).await;
    }
}

//! Listening sockets: `bind` opens them, `accept` takes connections off them until the server
//! drains.

mod accept;
mod bind;

use std::sync::Arc;

use tokio::time::timeout_at;

use self::accept::Acceptor;
pub use self::bind::{bind, bind_shared, reserve_shared};
use super::connection::{ListenerContext, ProxyHeaderMetrics};
use super::connection_limit::ConnectionLimit;
use super::drain::{Drain, Drained};
use super::h1::Http1;
use super::h2::Http2;
use super::handler::Handler;
use tollgate_spec::listener::ListenerSpec;
use tollgate_wire::http::min_rate::MinBodyRates;
use tollgate_wire::transport::listening_socket::AcceptingSocket;

/// Accepts and serves connections until `drain` begins, then waits for the open ones until the
/// drain's deadline. A worker may have several `sockets` of one listener. The workers of a listener
/// share `limit`. An accepted connection over the limit waits, unread, and nothing else is accepted
/// meanwhile.
pub async fn serve<H: Handler>(
    sockets: Vec<impl Into<AcceptingSocket>>,
    spec: Arc<ListenerSpec>,
    handler: H,
    limit: ConnectionLimit,
    drain: Drain,
) -> Drained {
    let sockets: Vec<AcceptingSocket> = sockets.into_iter().map(Into::into).collect();
    let rates = MinBodyRates::new(spec.min_body_rate);
    let mut acceptor = Acceptor::new(ListenerContext {
        http1: Http1::new(&spec, &rates),
        http2: Http2::new(&spec, rates),
        handler,
        spec,
        drain: drain.clone(),
        proxy_headers: ProxyHeaderMetrics::new(),
        limit,
    });
    let mut begun = drain;
    let deadline = tokio::select! {
        biased;
        deadline = begun.begun() => deadline,
        () = acceptor.accept_all(&sockets) => return Drained::default(),
    };
    drop(sockets);
    acceptor.serve_waiting();
    // Sockets are waited for rather than tasks: an upgrade moves a socket to another task.
    let cut = match timeout_at(deadline, acceptor.open.all_closed()).await {
        Ok(()) => 0,
        Err(_) => acceptor.open.count(),
    };
    acceptor.tasks.shutdown().await;
    Drained { cut }
}

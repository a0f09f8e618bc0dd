//! Listening sockets: `bind` opens them, `accept` takes connections off them until the server
//! drains.

mod accept;
mod bind;

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::timeout_at;

pub use self::bind::{bind, bind_shared, reserve_shared};
use super::connection::{self, ListenerContext, ProxyHeaderMetrics};
use super::connection_limit::{ConnectionLimit, OpenConnections};
use super::drain::{Drain, Drained};
use super::h1::Http1;
use super::h2::Http2;
use super::handler::Handler;
use super::spec::ListenerSpec;
use crate::http::min_rate::MinBodyRates;
use crate::transport::listening_socket::AcceptingSocket;

/// Accepts and serves connections until `drain` begins, then waits for the open ones until its
/// deadline. A worker may have several `sockets` of one listener. `limit` is shared by the workers
/// of a listener. An accepted connection over the limit waits, unread, and nothing else is accepted
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
    let context = Arc::new(ListenerContext {
        http1: Http1::new(&spec, &rates),
        http2: Http2::new(&spec, rates),
        handler,
        spec,
        drain: drain.clone(),
        proxy_headers: ProxyHeaderMetrics::new(),
        limit: limit.clone(),
    });
    let open = Arc::new(OpenConnections::default());
    let mut tasks = JoinSet::new();
    let mut begun = drain;
    let mut waiting = None;
    let deadline = tokio::select! {
        biased;
        deadline = begun.begun() => deadline,
        () = accept::accept_all(&sockets, &limit, &open, &context, (&mut tasks, &mut waiting)) => return Drained::default(),
    };
    drop(sockets);
    if let Some((stream, peer)) = waiting {
        // It was admitted before. As a client of its own, it is the last one.
        if let Some(client) = limit.admit(peer.ip(), || true) {
            tasks.spawn(connection::serve_one(
                Arc::clone(&context),
                stream,
                peer,
                limit.exceed(client, &open),
            ));
        }
    }
    // Sockets are waited for rather than tasks: an upgrade moves a socket to another task.
    let cut = match timeout_at(deadline, open.all_closed()).await {
        Ok(()) => 0,
        Err(_) => open.count(),
    };
    tasks.shutdown().await;
    Drained { cut }
}

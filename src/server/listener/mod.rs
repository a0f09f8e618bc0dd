//! Listening sockets: `bind` opens them, `accept` takes connections off them until the server drains.

mod accept;
mod bind;

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

pub use self::bind::{bind, check_free};
use super::connection::ListenerContext;
use super::connection_limit::{ConnectionLimit, OpenConnections};
use super::drain::{Drain, Drained};
use super::h2::Http2;
use super::handler::Handler;
use super::spec::ListenerSpec;

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
        () = accept::accept_all(&listener, &limit, &open, &context, &mut tasks) => return Drained::default(),
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

//! Drives one HTTP/1 connection through hyper, from behind the screen.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Request;
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1::{Builder, UpgradeableConnection};
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;

use super::connection::Connection;
use super::exchange::{Counted, MAX_LEFTOVER, exchange, is_drainable};
use super::listener::Socket;
use super::{Drain, Handler, ListenerSpec};

/// What hyper reads ahead, or writes behind, at most. With the screen's own buffer, kernel buffers aside, that bounds what
/// a connection holds. As much as towards upstreams, for the same reason.
const BUFFER: usize = 72 * 1024;
/// hyper's parser keeps this many fields without an allocation; the screen counts them first.
const FREE_FIELDS: usize = 100;
/// Room for the stand-in of a refused request, so that hyper's own bound never speaks first.
const SLACK: usize = 1024;

/// How a connection ended as HTTP/1.
enum End {
    Closed(hyper::Result<()>),
    /// The client's first bytes were HTTP/2's.
    Preface,
}

/// hyper, set up so that the screen decides and hyper never has to.
pub fn builder(spec: &ListenerSpec) -> Builder {
    let mut builder = Builder::new();
    builder
        .header_read_timeout(None)
        .half_close(false)
        .writev(true)
        .max_buf_size(BUFFER.max(spec.max_header_bytes + SLACK))
        .max_header_size(spec.max_header_bytes + SLACK);
    if spec.max_headers > FREE_FIELDS {
        builder.max_headers(spec.max_headers);
    }
    builder
}

/// Serves until the connection ends. Gives the socket back when the client speaks HTTP/2.
pub async fn drive<H: Handler>(
    builder: &Builder,
    socket: Socket,
    connection: &Arc<Connection>,
    handler: H,
    drain: &Drain,
) -> Option<Socket> {
    let shared = Arc::clone(connection);
    let service = service_fn(move |request: Request<Incoming>| exchange(handler.clone(), Arc::clone(&shared), request));
    let mut http = builder.serve_connection(TokioIo::new(socket), service).with_upgrades();
    match run(&mut http, connection, drain).await {
        End::Preface => http.into_parts().map(|parts| parts.io.into_inner()),
        End::Closed(result) => {
            if result.is_err_and(|error| error.is_user())
                && let Some(parts) = http.into_parts()
            {
                reset(parts.io.inner());
            }
            linger_after_declined(connection).await;
            None
        }
    }
}

async fn run<S>(http: &mut UpgradeableConnection<TokioIo<Socket>, S>, connection: &Connection, drain: &Drain) -> End
where
    S: HttpService<Incoming, ResBody = Counted>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut waiting = drain.clone();
    let mut begun = pin!(waiting.begun());
    let (mut told, mut draining) = (false, false);
    let mut leftover = None;
    std::future::poll_fn(|cx| {
        // Polled once: the task's waker stays the same, and a load is cheaper than a lock.
        let begins = if told { drain.has_begun() } else { begun.as_mut().poll(cx).is_ready() };
        told = true;
        if begins && !draining {
            draining = true;
            Pin::new(&mut *http).graceful_shutdown();
        }
        if let Poll::Ready(result) = Pin::new(&mut *http).poll(cx) {
            return Poll::Ready(End::Closed(result));
        }
        if connection.has_preface() {
            return Poll::Ready(End::Preface);
        }
        read_leftover(&mut leftover, connection, cx);
        Poll::Pending
    })
    .await
}

/// Reads what is left of a body that its handler did not want, and forgets it. Dropping a body makes hyper close.
fn read_leftover(leftover: &mut Option<(Incoming, u64)>, connection: &Connection, cx: &mut Context<'_>) {
    // Not before the answer: reading a body makes hyper ask for it with a 100.
    if connection.is_answered()
        && let Some(new) = connection.take_leftover()
    {
        let drainable = is_drainable(&new, connection.has_arrived(connection.last_arrived()));
        *leftover = drainable.then_some((new.body, 0));
    }
    while let Some((body, forgotten)) = leftover {
        match Pin::new(body).poll_frame(cx) {
            Poll::Pending => return,
            Poll::Ready(Some(Ok(frame))) => *forgotten += frame.data_ref().map_or(0, |data| data.len() as u64),
            Poll::Ready(_) => *leftover = None,
        }
        if leftover.as_ref().is_some_and(|(_, forgotten)| *forgotten > MAX_LEFTOVER) {
            *leftover = None;
        }
    }
}

/// A response that broke off must not look complete: where only the connection's end marks its end (HTTP/1.0), a plain
/// close would.
fn reset(socket: &Socket) {
    if let Err(error) = socket.socket().set_zero_linger() {
        tracing::debug!(%error, "a connection could not be reset");
    }
}

/// hyper hands the socket over instead of closing it where an upgrade was asked for, even a declined one.
async fn linger_after_declined(connection: &Connection) {
    let Some(on_upgrade) = connection.take_declined() else { return };
    if let Ok(upgraded) = on_upgrade.await
        && let Ok(parts) = upgraded.downcast::<TokioIo<Socket>>()
        && let Err(error) = parts.io.into_inner().shutdown().await
    {
        tracing::debug!(%error, "a connection was not shut down cleanly");
    }
}

//! HTTP/2 with prior knowledge (RFC 9113 §3.3), on the same port as HTTP/1.
//!
//! hyper and h2 refuse malformed requests and count resets. Guarantees the listener's bounds and the same rules on
//! hosts and targets as HTTP/1 has, with the same refusals.

mod activity;
mod request_body;
mod request_head;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::{sleep, sleep_until};

use self::activity::Activity;
use self::request_body::TimeoutBody;
use super::connection_info::ConnectionInfo;
use super::drain::Drain;
use super::handler::Handler;
use super::spec::ListenerSpec;
use crate::body::Body;
use crate::clock;
use crate::http::deadline::LONGEST_WAIT;
use crate::http::h1::upgrade::Upgraded;
use crate::http::response_rules;

/// Most concurrent requests on one connection.
const MAX_STREAMS: u32 = 128;
/// Most unread bytes of one request body, and of all on a connection.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 256 * 1024;
/// Most unsent bytes of one response.
const SEND_BUFFER: usize = 64 * 1024;
/// A silent peer is sent a PING after this interval, and has the timeout to answer it.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// The HTTP/2 side of a listener.
pub struct Http2 {
    builder: Builder<TokioExecutor>,
    spec: Arc<ListenerSpec>,
}

/// Everything that the requests of a connection share, behind one reference count.
struct H2Session<H> {
    handler: H,
    connection: Arc<ConnectionInfo>,
    spec: Arc<ListenerSpec>,
}

impl Http2 {
    pub fn new(spec: &Arc<ListenerSpec>) -> Self {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            .max_header_list_size(u32::try_from(spec.max_header_bytes).unwrap_or(u32::MAX))
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        Self { builder, spec: Arc::clone(spec) }
    }

    /// Serves until the connection ends.
    pub async fn drive<H: Handler>(
        &self,
        socket: Upgraded,
        connection: &Arc<ConnectionInfo>,
        handler: H,
        drain: &Drain,
    ) {
        let Self { builder, spec } = self;
        let activity = Arc::new(Activity::idle());
        let counted = Arc::clone(&activity);
        let session = Arc::new(H2Session { handler, connection: Arc::clone(connection), spec: Arc::clone(spec) });
        let service = service_fn(move |request: Request<Incoming>| {
            let (session, guard) = (Arc::clone(&session), counted.enter());
            // Boxed: the future is large, and would be moved several times on its way into a task and out of it.
            Box::pin(async move { Ok::<_, Infallible>(guard.attach(session.answer(request).await)) })
        });
        let mut http = pin!(builder.serve_connection(TokioIo::new(socket), service));
        let result = tokio::select! {
            result = http.as_mut() => result,
            () = should_close(&activity, spec, drain) => {
                http.as_mut().graceful_shutdown();
                tokio::select! {
                    result = http => result,
                    () = close_overdue(&activity, spec) => Ok(()),
                }
            }
        };
        if let Err(error) = result {
            tracing::debug!(%error, peer = %connection.peer, "an HTTP/2 connection ended in an error");
        }
    }
}

/// Waits until the connection should close: the server drains, or no request came for too long.
async fn should_close(activity: &Activity, spec: &ListenerSpec, drain: &Drain) {
    let mut drain = drain.clone();
    tokio::select! {
        _ = drain.begun() => {}
        () = idle_for(activity, spec.keepalive_timeout) => {}
    }
}

/// Waits until a client that was asked to close has had time for it and has no request under way.
async fn close_overdue(activity: &Activity, spec: &ListenerSpec) {
    sleep(spec.header_timeout).await;
    idle_for(activity, spec.header_timeout).await;
}

/// Waits until no request was under way for `time`.
async fn idle_for(activity: &Activity, time: Duration) {
    let time = time.min(LONGEST_WAIT);
    loop {
        let now = clock::now();
        let due = activity.idle_since().unwrap_or(now) + time;
        if due <= now {
            return;
        }
        sleep_until(due).await;
    }
}

impl<H: Handler> H2Session<H> {
    async fn answer(&self, mut request: Request<Incoming>) -> Response<Body> {
        let to_head = *request.method() == Method::HEAD;
        let mut response = match request_head::check(&mut request, &self.spec) {
            Err(failure) => self.handler.refuse(&self.connection, failure),
            Ok(()) => {
                let request = request.map(|incoming| self.body(incoming));
                self.handler.handle(&self.connection, request).await
            }
        };
        response_rules::prepare(&mut response, to_head);
        response
    }

    fn body(&self, incoming: Incoming) -> Body {
        // An empty body is dropped at once: each call on it would take the connection's lock.
        if incoming.is_end_stream() { Body::empty() } else { Body::boxed(TimeoutBody::new(incoming, &self.spec)) }
    }
}

//! HTTP/2 with prior knowledge (RFC 9113 §3.3) on the port that HTTP/1 uses.
//!
//! hyper and h2 refuse what is malformed, and count resets; here are only the bounds, and the rules on whom a request is
//! for, which end in the same refusal as HTTP/1's.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST};
use http::{Method, Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::{Sleep, sleep, sleep_until};

use super::connection::Connection;
use super::http1::head::host_of;
use super::under_way::UnderWay;
use super::{Drain, Handler, LONGEST_WAIT, ListenerSpec};
use crate::body::{Body, BodyFailure, BoxError};
use crate::clock;
use crate::error::Failure;
use crate::http::h1::upgrade::Upgraded;
use crate::http::syntax;

/// Requests under way on one connection.
const MAX_STREAMS: u32 = 128;
/// Unread bytes of one request body, and of all on a connection.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 256 * 1024;
/// Unsent bytes of one response.
const SEND_BUFFER: usize = 64 * 1024;
/// A peer that is silent for so long is asked for a sign of life, and given so long for it.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// What all requests of a connection share: one count of references for each of them.
struct Session<H> {
    handler: H,
    connection: Arc<Connection>,
    spec: Arc<ListenerSpec>,
}

/// hyper's HTTP/2 side.
pub fn builder(spec: &ListenerSpec) -> Builder<TokioExecutor> {
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
    builder
}

/// Serves until the connection ends.
pub async fn drive<H: Handler>(
    builder: &Builder<TokioExecutor>,
    socket: Upgraded,
    connection: &Arc<Connection>,
    handler: H,
    spec: &Arc<ListenerSpec>,
    drain: &Drain,
) {
    let under_way = Arc::new(UnderWay::nothing());
    let counted = Arc::clone(&under_way);
    let session = Arc::new(Session { handler, connection: Arc::clone(connection), spec: Arc::clone(spec) });
    let service = service_fn(move |request: Request<Incoming>| {
        let (session, counter) = (Arc::clone(&session), counted.enter());
        // Boxed: on its way to a task of its own, and out of it, it would be moved again and again, and it is large.
        Box::pin(async move { Ok::<_, Infallible>(counter.attach(session.answer(request).await)) })
    });
    let mut http = pin!(builder.serve_connection(TokioIo::new(socket), service));
    let result = tokio::select! {
        result = http.as_mut() => result,
        () = leaving(&under_way, spec, drain) => {
            http.as_mut().graceful_shutdown();
            tokio::select! {
                result = http => result,
                () = overdue(&under_way, spec) => Ok(()),
            }
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, peer = %connection.peer, "an HTTP/2 connection ended in an error");
    }
}

/// Waits until the connection should end: a drain, or nothing to do for too long.
async fn leaving(under_way: &UnderWay, spec: &ListenerSpec, drain: &Drain) {
    let mut drain = drain.clone();
    tokio::select! {
        _ = drain.begun() => {}
        () = idle_for(under_way, spec.keepalive_timeout) => {}
    }
}

/// Waits until a client that was told to leave has neither left nor used its time.
async fn overdue(under_way: &UnderWay, spec: &ListenerSpec) {
    sleep(spec.header_timeout).await;
    idle_for(under_way, spec.header_timeout).await;
}

async fn idle_for(under_way: &UnderWay, time: Duration) {
    let time = time.min(LONGEST_WAIT);
    loop {
        let now = clock::now();
        let due = under_way.idle_since().unwrap_or(now) + time;
        if due <= now {
            return;
        }
        sleep_until(due).await;
    }
}

impl<H: Handler> Session<H> {
    async fn answer(&self, mut request: Request<Incoming>) -> Response<Body> {
        let mut response = match check(&mut request, &self.spec) {
            Err(failure) => self.handler.refuse(&self.connection, failure),
            Ok(()) => {
                let request = request.map(|incoming| self.body(incoming));
                self.handler.handle(&self.connection, request).await
            }
        };
        // It means something on one connection only; HTTP/2 has none (RFC 9113 §8.2.2).
        response.headers_mut().remove(CONNECTION);
        response
    }

    fn body(&self, incoming: Incoming) -> Body {
        // One that is no body is let go of at once: whatever is asked of it takes the connection's lock.
        if incoming.is_end_stream() { Body::empty() } else { Body::boxed(Patient::new(incoming, &self.spec)) }
    }
}

/// Refuses what names no host, or two (RFC 9113 §8.3.1), and leaves exactly one Host in the request. What may stand in host
/// and target is what may in HTTP/1, which is what an upstream gets to read.
fn check(request: &mut Request<Incoming>, spec: &ListenerSpec) -> Result<(), Failure> {
    if request.method() == Method::CONNECT {
        return Err(Failure::NotImplemented("this gateway is no tunnel: CONNECT has no meaning here"));
    }
    if request.headers().len() > spec.max_headers {
        return Err(Failure::HeadersTooLarge);
    }
    if request.uri().path_and_query().is_some_and(|target| !syntax::is_target(target.as_str().as_bytes())) {
        return Err(Failure::BadRequest("the target has a character that must be encoded"));
    }
    let authority = match request.uri().authority() {
        Some(authority) if authority.as_str().contains('@') => {
            return Err(Failure::BadRequest("the authority has user information"));
        }
        Some(authority) => host_of(authority),
        None => None,
    };
    let mut hosts = request.headers().get_all(HOST).iter();
    match (authority, hosts.next(), hosts.next()) {
        (_, _, Some(_)) => Err(Failure::BadRequest("more than one Host")),
        (None, None, _) => Err(Failure::BadRequest("neither :authority nor Host")),
        (Some(authority), Some(host), _) if !host.as_bytes().eq_ignore_ascii_case(authority.as_bytes()) => {
            Err(Failure::BadRequest(":authority and Host differ"))
        }
        (Some(authority), None, _) => {
            request.headers_mut().insert(HOST, authority);
            Ok(())
        }
        _ => Ok(()),
    }?;
    match request.headers().get(HOST) {
        Some(host) if !syntax::is_host(host.as_bytes()) => Err(Failure::BadRequest("Host is not a host")),
        _ => Ok(()),
    }
}

/// A request body that fails when the client takes too long over the next part of it.
struct Patient {
    incoming: Incoming,
    limit: Duration,
    timer: Pin<Box<Sleep>>,
    waiting: bool,
}

impl Patient {
    fn new(incoming: Incoming, spec: &ListenerSpec) -> Self {
        let limit = spec.body_timeout.min(LONGEST_WAIT);
        Self { incoming, limit, timer: Box::pin(sleep_until(clock::now() + limit)), waiting: false }
    }
}

impl http_body::Body for Patient {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if let Poll::Ready(polled) = Pin::new(&mut this.incoming).poll_frame(cx) {
            this.waiting = false;
            return Poll::Ready(polled.map(|frame| frame.map_err(Into::into)));
        }
        if !std::mem::replace(&mut this.waiting, true) {
            this.timer.as_mut().reset(clock::now() + this.limit);
        }
        this.timer.as_mut().poll(cx).map(|()| Some(Err(BodyFailure::Timeout.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

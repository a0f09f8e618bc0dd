//! One request and its response: what the server adds around the handler.
//!
//! Guarantees that a body nobody reads is either read to its end or ends the connection, and that every request counts
//! as under way until its response has left.

use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONNECTION, EXPECT, HOST};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use super::Handler;
use super::connection::{Connection, Leftover, Upgrade};
use crate::body::{Body, BodyFailure, BoxError};

/// A body that nobody reads is read to its end up to this many bytes; beyond, the connection closes.
pub const MAX_LEFTOVER: u64 = 64 * 1024;

const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// Answers one HTTP/1 request. hyper moves the future as a whole, so it is worth being small.
pub async fn exchange<H: Handler>(
    handler: H,
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<Counted>, Infallible> {
    let number = connection.arrive();
    let counter = Counter(Arc::clone(&connection));
    if let Some(failure) = connection.refusal(number) {
        return Ok(counter.attach(handler.refuse(&connection, failure)));
    }
    let on_upgrade = request.extensions().get::<OnUpgrade>().cloned();
    let mut response = handler.handle(&connection, prepare(&connection, request)).await;
    connection.answer(number);
    if let Some(on_upgrade) = on_upgrade {
        decide_upgrade(&connection, on_upgrade, response.status()).await;
    }
    if must_close(&connection, number) {
        response.headers_mut().insert(CONNECTION, CLOSE);
    }
    Ok(counter.attach(response))
}

fn prepare(connection: &Arc<Connection>, mut request: Request<Incoming>) -> Request<Body> {
    if let Some(host) = request.uri().authority().and_then(host_of) {
        request.headers_mut().insert(HOST, host);
    }
    if request.body().is_end_stream() {
        return request.map(Body::from);
    }
    let awaits_continue = request.headers().contains_key(EXPECT);
    request.map(|incoming| {
        Body::boxed(RequestBody { incoming: Some(incoming), connection: Arc::clone(connection), awaits_continue })
    })
}

/// The authority as a Host: an absolute target's wins over the field (RFC 9112 §3.2.2).
pub fn host_of(authority: &Authority) -> Option<HeaderValue> {
    HeaderValue::from_str(authority.as_str()).ok()
}

/// Tells the screen what the bytes behind the request are, and has the connection look again.
async fn decide_upgrade(connection: &Connection, on_upgrade: OnUpgrade, status: StatusCode) {
    if status == StatusCode::SWITCHING_PROTOCOLS {
        connection.decide_upgrade(Upgrade::Accepted);
        return;
    }
    connection.decide_upgrade(Upgrade::Declined);
    connection.keep_declined(on_upgrade);
    std::future::poll_fn(|cx| {
        cx.waker().wake_by_ref();
        Poll::Ready(())
    })
    .await;
}

/// Whether what the client has yet to send could be taken for a request. A leftover that is short, or already here, is
/// left for the connection's task to read.
fn must_close(connection: &Connection, number: u64) -> bool {
    let Some(leftover) = connection.take_leftover() else { return connection.is_broken() };
    if !is_drainable(&leftover, connection.has_arrived(number)) {
        return true;
    }
    connection.leave(leftover);
    connection.is_broken()
}

/// Whether the rest of a body is worth reading: it will come, and there is little of it.
pub fn is_drainable(leftover: &Leftover, has_arrived: bool) -> bool {
    let short = leftover.body.size_hint().upper().is_some_and(|left| left <= MAX_LEFTOVER);
    has_arrived || (short && !leftover.awaits_continue)
}

/// A request body that leaves its rest behind when it is dropped, and tells our failures from others.
struct RequestBody {
    incoming: Option<Incoming>,
    connection: Arc<Connection>,
    awaits_continue: bool,
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let Some(incoming) = &mut this.incoming else { return Poll::Ready(None) };
        this.awaits_continue = false;
        let polled = Pin::new(incoming).poll_frame(cx);
        if let Poll::Ready(None | Some(Err(_))) = &polled {
            this.incoming = None;
        }
        polled.map_err(|error| match failure_in(&error) {
            Some(failure) => failure.into(),
            None => error.into(),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or(SizeHint::with_exact(0), Incoming::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some(body) = self.incoming.take().filter(|incoming| !incoming.is_end_stream()) {
            self.connection.leave(Leftover { body, awaits_continue: self.awaits_continue });
        }
    }
}

/// The failure that the screen put into an I/O error, wherever hyper has wrapped it.
fn failure_in(error: &hyper::Error) -> Option<BodyFailure> {
    let io = error.source()?.downcast_ref::<std::io::Error>()?;
    io.get_ref()?.downcast_ref::<BodyFailure>().copied()
}

/// Counts a request as under way while it lives.
pub struct Counter(pub Arc<Connection>);

impl Drop for Counter {
    fn drop(&mut self) {
        self.0.finish();
    }
}

impl Counter {
    /// Ends with the response's body.
    pub fn attach(self, response: Response<Body>) -> Response<Counted> {
        response.map(|body| Counted { body, _counter: self })
    }
}

/// A response body whose request is under way until it ends or is dropped.
pub struct Counted {
    body: Body,
    _counter: Counter,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Fields that mean something on one connection only; HTTP/2 has none (RFC 9113 §8.2.2).
pub fn strip_connection(headers: &mut HeaderMap) {
    headers.remove(CONNECTION);
}

//! An HTTP/2 stream: its request is handled and answered, in a task of its own.
//!
//! Guarantees that the request is dropped when its client resets the stream or goes away, and that
//! a client which takes nothing of its response for too long loses the stream and no other.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::DATE;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body as _;

use super::expect_continue::{self, ContinueRequest};
use super::session::H2Session;
use super::{request_head, websocket};
use crate::date;
use crate::handler::Handler;
use tollgate_limiter::clock::Instant;
use tollgate_wire::body::Body;
use tollgate_wire::error::Failure;
use tollgate_wire::grpc;
use tollgate_wire::http::deadline::{ClientWait, Wait as _};
use tollgate_wire::http::h2::{BodySender, ReceivedBody, SendFailure};
use tollgate_wire::http::interim::InterimSlot;
use tollgate_wire::http::response_rules;

/// Serves the stream of `request`, which arrived at `arrived`, to its end.
pub async fn serve<H: Handler>(
    session: Arc<H2Session<H>>,
    request: Request<RecvStream>,
    mut sender: SendResponse<Bytes>,
    arrived: Instant,
) {
    if websocket::is_extended_connect(&request) {
        return serve_websocket(&session, request, sender, arrived).await;
    }
    let to_head = request.method() == Method::HEAD;
    let Some(response) = answer(&session, request, &mut sender).await else {
        return session.record_reset(arrived);
    };
    if let Some((stream, body)) = send_head(&mut sender, response, to_head, arrived) {
        send_body(&session, stream, body, arrived).await;
    }
}

/// The response to `request`. `None`: the client has reset the stream, or has gone.
async fn answer<H: Handler>(
    session: &H2Session<H>,
    mut request: Request<RecvStream>,
    sender: &mut SendResponse<Bytes>,
) -> Option<Response<Body>> {
    if let Err(failure) = request_head::check(&mut request, &session.spec) {
        return Some(session.refuse(failure, grpc::is_call(&request)).await);
    }
    let (mut request, continue_request) = with_body(request, session);
    handle(session, &mut request, continue_request.as_deref(), sender).await
}

/// Serves an extended CONNECT: as a tunnel if the upstream switches, else as any other request.
async fn serve_websocket<H: Handler>(
    session: &H2Session<H>,
    request: Request<RecvStream>,
    mut sender: SendResponse<Bytes>,
    arrived: Instant,
) {
    let response = match translate_websocket(session, request) {
        Ok((mut request, websocket)) => {
            let Some(response) = handle(session, &mut request, None, &mut sender).await else {
                return session.record_reset(arrived);
            };
            match websocket.check(&response) {
                Ok(()) if response.status().is_informational() => {
                    return websocket.open(&mut sender, response);
                }
                Ok(()) => response,
                Err(failure) => session.handler.refuse(&session.connection, failure),
            }
        }
        Err(failure) => session.refuse(failure, false).await,
    };
    if let Some((stream, body)) = send_head(&mut sender, response, false, arrived) {
        send_body(session, stream, body, arrived).await;
    }
}

/// The upgrade that an extended CONNECT asks for, if its head breaks no rule.
fn translate_websocket<H>(
    session: &H2Session<H>,
    request: Request<RecvStream>,
) -> Result<(Request<Body>, websocket::Request), Failure> {
    let (mut upgrade, websocket) = websocket::translate(request)?;
    request_head::check(&mut upgrade, &session.spec)?;
    Ok((upgrade, websocket))
}

impl<H: Handler> H2Session<H> {
    async fn refuse(&self, failure: Failure, is_call: bool) -> Response<Body> {
        // Boxed: few requests are refused, and the others would carry the room for it.
        let refusing = self
            .handler
            .refuse_stream(&self.connection, failure, is_call);
        Box::pin(refusing).await
    }
}

/// Lets the handler answer `request`, and sends interim responses meanwhile. `None`: as for
/// [`answer`].
async fn handle<H: Handler>(
    session: &H2Session<H>,
    request: &mut Request<Body>,
    continue_request: Option<&ContinueRequest>,
    sender: &mut SendResponse<Bytes>,
) -> Option<Response<Body>> {
    let interim = InterimSlot::default();
    let mut handling = pin!(
        session
            .handler
            .handle(&session.connection, &interim, request)
    );
    poll_fn(|cx| {
        // The reset is polled first: a request that was reset before its turn reaches no upstream.
        if sender.poll_reset(cx).is_ready() {
            return Poll::Ready(None);
        }
        // Checked before the handler gets the trailers.
        if session.traffic.is_malformed(sender.stream_id()) {
            sender.send_reset(Reason::PROTOCOL_ERROR);
            return Poll::Ready(None);
        }
        let handled = handling.as_mut().poll(cx).map(Some);
        if let Some(continue_request) = continue_request
            && continue_request.poll_wanted(cx)
        {
            send_interim(sender, StatusCode::CONTINUE, HeaderMap::new());
        }
        while let Some(response) = interim.take() {
            send_interim(sender, response.status, response.headers);
        }
        handled
    })
    .await
}

/// The request with its body as handlers read it, and the way to a 100 if its client waits for one.
fn with_body<H>(
    request: Request<RecvStream>,
    session: &H2Session<H>,
) -> (Request<Body>, Option<Arc<ContinueRequest>>) {
    // An empty body is dropped at once: each call on it would take the connection's lock.
    if request.body().is_end_stream() {
        return (request.map(|_| Body::empty()), None);
    }
    let limit = ClientWait::RequestBody.limit(&session.timeouts);
    let (head, stream) = request.into_parts();
    let received = ReceivedBody::new(stream, &head.headers, limit, session.spec.max_headers)
        .with_lag(session.rates.request.clone());
    if expect_continue::is_expected(&head.headers) {
        let (body, continue_request) = expect_continue::body(received);
        return (Request::from_parts(head, body), Some(continue_request));
    }
    (
        Request::from_parts(head, Body::from_source(Box::new(received))),
        None,
    )
}

fn send_interim(sender: &mut SendResponse<Bytes>, status: StatusCode, headers: HeaderMap) {
    let mut interim = Response::new(());
    *interim.status_mut() = status;
    *interim.headers_mut() = headers;
    if let Err(error) = sender.send_informational(interim) {
        tracing::debug!(%error, %status, "an interim response could not be sent");
    }
}

/// Sends the head. Returns the stream and the body to send over it, if there is one.
fn send_head(
    sender: &mut SendResponse<Bytes>,
    mut response: Response<Body>,
    to_head: bool,
    now: Instant,
) -> Option<(SendStream<Bytes>, Body)> {
    if response.status().is_informational() {
        // HTTP/2 switches no protocols.
        sender.send_reset(Reason::INTERNAL_ERROR);
        return None;
    }
    response_rules::prepare(&mut response, to_head);
    response
        .headers_mut()
        .entry(DATE)
        .or_insert_with(|| date::value_at(now));
    let (head, body) = response.into_parts();
    let ends = body.is_end_stream();
    match sender.send_response(Response::from_parts(head, ()), ends) {
        Ok(_) if ends => None,
        Ok(stream) => Some((stream, body)),
        Err(error) => {
            tracing::debug!(%error, "a response could not be sent");
            sender.send_reset(Reason::INTERNAL_ERROR);
            None
        }
    }
}

async fn send_body<H>(
    session: &H2Session<H>,
    stream: SendStream<Bytes>,
    body: Body,
    arrived: Instant,
) {
    let limit = ClientWait::ClientTakes.limit(&session.timeouts);
    let mut sender = BodySender::new(stream, body, limit).with_lag(session.rates.response.clone());
    match poll_fn(|cx| sender.poll_send(cx)).await {
        Ok(()) => {}
        Err(SendFailure::Reset(_)) => session.record_reset(arrived),
        Err(SendFailure::Body(error)) => {
            tracing::debug!(error, "a response broke off");
            session.break_off(sender.into_stream());
        }
        Err(SendFailure::Stalled) => {
            tracing::debug!(peer = %session.connection.peer, "a client took nothing of its response for too long, or too little");
            sender.into_stream().send_reset(Reason::CANCEL);
        }
        Err(SendFailure::Connection(_)) => {}
    }
}

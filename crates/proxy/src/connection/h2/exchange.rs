//! An exchange over HTTP/2: sends a request and waits for the head of its response.
//!
//! Guarantees that request and response flow independently of each other, and that a request which
//! the upstream says it has not processed can be sent again, whatever its method (RFC 9113 §8.7).

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONTENT_LENGTH, TRAILER};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};

use super::group::StreamLease;
use super::response::{Http2ResponseBody, UploadTask};
use super::websocket::{self, WebSocketRequest};
use crate::connection::exchange::timeouts_of;
use crate::connection::failure::{ExchangeError, FailedExchange, RetryPermission};
use crate::connection::response::{ENDLESS, InvalidResponse, TOO_LARGE, content_length};
use crate::connection::upload::{Upload, UploadPhase};
use crate::connection::upstream_request::UpstreamRequest;
use crate::replay::ReplayBody;
use crate::request_source::InterimRelay;
use crate::upstream::UpstreamSpec;
use crate::upstream::endpoints::PickedEndpoint;
use tollgate_limiter::clock::{self, Instant};
use tollgate_wire::body::Body;
use tollgate_wire::http::deadline::{UpstreamTimeouts, UpstreamWait, Wait as _};
use tollgate_wire::http::h1::upgrade::Upgraded;
use tollgate_wire::http::h2::{BodySender, ReceivedBody, SendFailure, StreamTunnel};
use tollgate_wire::http::interim::MOST_READ;
use tollgate_wire::http::timer::Timer;
use tollgate_wire::http::{response_rules, syntax};

/// Bytes of a request's body that are kept, in case the upstream says that it has not processed it.
const MOST_KEPT: usize = 64 * 1024;

/// An exchange over one stream. Dropped before its end, it resets the stream.
pub struct Http2Exchange {
    stream: StreamLease,
    endpoint: Option<PickedEndpoint>,
    timeouts: UpstreamTimeouts,
    /// The upstream gets the trailers of requests.
    passes_trailers: bool,
    /// Most fields of the response's header section, and of its trailer section.
    most_fields: usize,
    leased_at: Instant,
    /// When the whole request was sent, if that was before the response's head came.
    sent_at: Option<Instant>,
    /// The body of the response, if it has one.
    received: Option<ReceivedBody>,
    upload: Option<UploadTask>,
    /// The tunnel of a WebSocket that the upstream has accepted.
    tunnel: Option<StreamTunnel>,
}

/// A request head that was sent.
struct SentHead {
    response: ResponseFuture,
    stream: SendStream<Bytes>,
    /// The proof that the client of a WebSocket waits for.
    accept: Option<HeaderValue>,
}

/// Counts a stream that has become a tunnel, and its request, until dropped.
pub struct TunnelGuard {
    _stream: StreamLease,
    _endpoint: Option<PickedEndpoint>,
}

/// A request that was sent, and whose response is awaited.
struct AwaitedResponse {
    response: ResponseFuture,
    upload: Upload,
    replay: Option<ReplayBody>,
    sender: Option<BodySender>,
    /// Pieces of the body that were sent when the upload was last polled.
    moved: usize,
    /// How many interim responses came.
    interim_responses: u16,
    /// When the request was complete, as far as it is.
    since: Instant,
    timer: Timer,
}

impl Http2Exchange {
    pub fn new(
        stream: StreamLease,
        endpoint: PickedEndpoint,
        spec: &UpstreamSpec,
        leased_at: Instant,
    ) -> Self {
        Self {
            stream,
            endpoint: Some(endpoint),
            timeouts: timeouts_of(spec),
            passes_trailers: spec.request_trailers,
            most_fields: spec.response_head.fields,
            leased_at,
            sent_at: None,
            received: None,
            upload: None,
            tunnel: None,
        }
    }

    /// The endpoint of this exchange.
    pub fn endpoint(&self) -> Option<&PickedEndpoint> {
        self.endpoint.as_ref()
    }

    /// When this exchange began.
    pub fn leased_at(&self) -> Instant {
        self.leased_at
    }

    /// When the whole request was sent. `None`: it is not, or was not when the response's head
    /// came.
    pub fn sent_at(&self) -> Option<Instant> {
        self.sent_at
    }

    /// Sends the request and waits for the response's header section.
    ///
    /// # Errors
    /// When the exchange fails before that; says whether the request may be sent again.
    pub async fn send(
        &mut self,
        request: &mut UpstreamRequest<'_>,
    ) -> Result<Response<()>, Box<FailedExchange>> {
        let mut upload = request.hand_over_upload().unwrap_or_else(Upload::none);
        let mut replay = None;
        if upload.has_body() {
            replay = Some(ReplayBody::new(upload.take_body(), MOST_KEPT));
        }
        let is_websocket = replay.is_none() && request.asks_for_websocket();
        if is_websocket && !self.stream.connection.takes_extended_connect() {
            return Err(self.fail(ExchangeError::NoWebSocket, upload, None));
        }
        let SentHead {
            response,
            stream,
            accept,
        } = match self.begin(request, replay.is_none(), is_websocket) {
            Ok(sent) => sent,
            Err(error) => return Err(self.fail(error, upload, replay.as_ref())),
        };
        let mut sender = None;
        let mut websocket = None;
        match (replay.as_ref().and_then(ReplayBody::read), accept) {
            (Some(body), _) => sender = Some(self.body_sender(stream, body)),
            (None, Some(accept)) => websocket = Some(WebSocketRequest::new(stream, accept)),
            (None, None) => drop(stream),
        }
        let mut awaited = AwaitedResponse {
            response,
            upload,
            replay,
            sender,
            moved: 0,
            interim_responses: 0,
            since: self.leased_at,
            timer: Timer::default(),
        };
        let received = poll_fn(|cx| awaited.poll_head(cx, request.interim, &self.timeouts)).await;
        let to_head = *request.method() == Method::HEAD;
        match received.and_then(|response| self.take_head(response, websocket, to_head)) {
            Ok(head) => {
                self.stream
                    .record_answered(streams_before(&awaited.response));
                let is_sent = awaited.sender.is_none() && awaited.upload.is_complete();
                if is_sent {
                    self.sent_at = Some(awaited.since);
                }
                let AwaitedResponse { replay, sender, .. } = awaited;
                if let Some(replay) = replay {
                    // Nothing is sent again any more.
                    replay.forget();
                    if let (Some(_), Some(sender)) = (&self.received, sender) {
                        self.upload = Some(UploadTask::spawn(sender, replay));
                    }
                }
                Ok(head)
            }
            Err(error) => {
                let AwaitedResponse {
                    response,
                    upload,
                    replay,
                    sender,
                    interim_responses,
                    ..
                } = awaited;
                if matches!(&error, ExchangeError::StreamBroken(error) if is_after_go_away(error)) {
                    self.stream.record_unprocessed(streams_before(&response));
                }
                if let Some(sender) = sender {
                    sender.into_stream().send_reset(Reason::CANCEL);
                }
                let mut failed = self.fail(error, upload, replay.as_ref());
                // An upstream that answered had not closed the connection when the request came.
                if interim_responses > 0 && matches!(failed.permission, RetryPermission::Stale(_)) {
                    failed.permission = RetryPermission::Never;
                }
                Err(failed)
            }
        }
    }

    /// The sender of the request's body.
    fn body_sender(&self, stream: SendStream<Bytes>, body: Body) -> BodySender {
        let limit = UpstreamWait::UpstreamTakes.limit(&self.timeouts);
        let sender = BodySender::new(stream, body, limit);
        if self.passes_trailers {
            sender
        } else {
            sender.without_trailers()
        }
    }

    /// Sends the head. `complete`: the request has no body.
    fn begin(
        &self,
        request: &UpstreamRequest<'_>,
        complete: bool,
        is_websocket: bool,
    ) -> Result<SentHead, ExchangeError> {
        let Some(endpoint) = &self.endpoint else {
            return Err(ExchangeError::Overdue);
        };
        let mut head = request.to_http2(endpoint.host(), endpoint.is_secure())?;
        if !self.passes_trailers {
            head.headers_mut().remove(TRAILER);
        }
        if !self
            .stream
            .connection
            .head_bound()
            .admits(head.uri(), head.headers())
        {
            return Err(ExchangeError::HeadTooLarge);
        }
        let mut accept = None;
        if is_websocket {
            let proof = websocket::translate(&mut head).ok_or(ExchangeError::NoWebSocketKey)?;
            accept = Some(proof);
        }
        let sent = self
            .stream
            .connection
            .sender()
            .send_request(head, complete && !is_websocket);
        let (response, stream) = sent.map_err(|error| {
            self.stream.record_unsent();
            ExchangeError::StreamUnsent(error.into())
        })?;
        Ok(SentHead {
            response,
            stream,
            accept,
        })
    }

    /// Takes the head, and the tunnel that it opens if there is one.
    fn take_head(
        &mut self,
        response: Response<RecvStream>,
        websocket: Option<WebSocketRequest>,
        to_head: bool,
    ) -> Result<Response<()>, ExchangeError> {
        let Some(websocket) = websocket else {
            return self.begin_body(response, to_head);
        };
        if !response.status().is_success() {
            websocket.end_refused();
            return self.begin_body(response, to_head);
        }
        // A client would ignore Content-Length (RFC 9110 §9.3.6), but the library would count the
        // bytes of the tunnel.
        if response.headers().contains_key(CONTENT_LENGTH) {
            return Err(InvalidResponse::new("a WebSocket has no Content-Length").into());
        }
        let (tunnel, head) = websocket.open(response);
        self.tunnel = Some(tunnel);
        Ok(head)
    }

    /// Takes the head, and the stream of its body if there is one.
    fn begin_body(
        &mut self,
        response: Response<RecvStream>,
        to_head: bool,
    ) -> Result<Response<()>, ExchangeError> {
        let (mut parts, received) = response.into_parts();
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(InvalidResponse::new("101 has no meaning in HTTP/2").into());
        }
        if parts.headers.len() > self.most_fields {
            return Err(TOO_LARGE.into());
        }
        let mut names = parts.headers.keys().map(HeaderName::as_str);
        if !names.all(syntax::is_field_name) {
            return Err(InvalidResponse::new("a field name is not a token").into());
        }
        let length = content_length(&mut parts.headers)?;
        let has_body = !to_head && response_rules::has_content(parts.status);
        if has_body && received.is_end_stream() && length.is_some_and(|length| length > 0) {
            return Err(InvalidResponse::new("the body is shorter than its Content-Length").into());
        }
        if has_body && !received.is_end_stream() {
            let limit = UpstreamWait::ResponseBody.limit(&self.timeouts);
            self.received = Some(ReceivedBody::new(
                received,
                &parts.headers,
                limit,
                self.most_fields,
            ));
        }
        Ok(Response::from_parts(parts, ()))
    }

    /// The response's body. The stream is reset if the body is dropped before its end.
    pub fn into_body(self: Box<Self>) -> Body {
        let Self {
            stream,
            endpoint,
            received,
            upload,
            ..
        } = *self;
        let Some(received) = received else {
            return Body::empty();
        };
        Body::from_source(Box::new(Http2ResponseBody::new(
            received, upload, stream, endpoint,
        )))
    }

    /// How long `wait` may take.
    pub fn wait_limit(&self, wait: UpstreamWait) -> Duration {
        wait.limit(&self.timeouts)
    }

    /// The stream as a plain connection, and its guard. `None`: the stream is no tunnel.
    pub fn upgrade(self: Box<Self>) -> Option<(Upgraded, TunnelGuard)> {
        let Self {
            stream,
            endpoint,
            tunnel,
            ..
        } = *self;
        let guard = TunnelGuard {
            _stream: stream,
            _endpoint: endpoint,
        };
        Some((Upgraded::new(tunnel?, Bytes::new()), guard))
    }

    /// The failure to answer with, and whether the request may be sent again.
    fn fail(
        &mut self,
        error: ExchangeError,
        mut upload: Upload,
        replay: Option<&ReplayBody>,
    ) -> Box<FailedExchange> {
        let connection = &self.stream.connection;
        if matches!(error, ExchangeError::Overdue) {
            connection.suspect();
        }
        let standing = upload.standing();
        let mut whole = true;
        if let Some(replay) = replay {
            match replay.read() {
                Some(body) => upload.restore(body),
                None => whole = false,
            }
        }
        let permission = match &error {
            ExchangeError::StreamBroken(error) if whole && is_refused(error) => {
                connection.counts().count_refused();
                let streams = Arc::clone(connection.counts());
                RetryPermission::Refused {
                    upload,
                    by: connection.number(),
                    streams,
                }
            }
            ExchangeError::StreamBroken(error) if whole && is_after_go_away(error) => {
                RetryPermission::Unprocessed {
                    upload,
                    streams: Arc::clone(connection.counts()),
                }
            }
            ExchangeError::StreamUnsent(_) if whole => RetryPermission::Unprocessed {
                upload,
                streams: Arc::clone(connection.counts()),
            },
            ExchangeError::StreamBroken(error) if error.is_io() && connection.is_used() => {
                RetryPermission::Stale(upload)
            }
            _ => RetryPermission::Never,
        };
        let error = match permission {
            RetryPermission::Never | RetryPermission::Stale(_) => error.with_upload(standing),
            _ => error,
        };
        let mut endpoint = self.endpoint.take();
        if let (ExchangeError::StreamBroken(error), RetryPermission::Never) = (&error, &permission)
            && !error.is_reset()
            && !connection.is_blamed_first()
        {
            endpoint = None;
        }
        error.failed(endpoint, permission)
    }
}

/// Whether the upstream says that it has not processed the request, and refuses its stream alone
/// (RFC 9113 §8.7).
fn is_refused(error: &h2::Error) -> bool {
    error.is_remote() && error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM)
}

/// Whether the upstream says that it has not processed the request: its stream is above the last
/// one of a GOAWAY (RFC 9113 §6.8).
fn is_after_go_away(error: &h2::Error) -> bool {
    error.is_remote() && error.is_go_away()
}

/// The streams that were opened on the connection before this one. A client's have odd numbers.
fn streams_before(response: &ResponseFuture) -> usize {
    response.stream_id().as_u32() as usize / 2
}

impl AwaitedResponse {
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        interim: InterimRelay<'_>,
        timeouts: &UpstreamTimeouts,
    ) -> Poll<Result<Response<RecvStream>, ExchangeError>> {
        loop {
            while let Poll::Ready(Some(Ok(response))) = self.response.poll_informational(cx) {
                self.interim_responses += 1;
                if self.interim_responses > MOST_READ {
                    return Poll::Ready(Err(InvalidResponse::new(ENDLESS).into()));
                }
                match response.status() {
                    // A 100 is for the gateway: the client gets its own when its body is read.
                    StatusCode::CONTINUE => self.upload.release(),
                    status => interim.relay(status, response.into_parts().0.headers),
                }
            }
            // A client that has sent its body already waits for no 100, and so the body does not
            // either.
            if self.upload.phase() == UploadPhase::AwaitingContinue
                && self
                    .replay
                    .as_ref()
                    .is_some_and(|body| body.poll_arrived(cx).is_ready())
            {
                self.upload.release();
            }
            if let Poll::Ready(response) = Pin::new(&mut self.response).poll(cx) {
                return Poll::Ready(
                    response.map_err(|error| ExchangeError::StreamBroken(error.into())),
                );
            }
            if self.poll_upload(cx)?.is_ready() {
                continue;
            }
            let (wait, since) = match (self.upload.phase(), &self.sender) {
                (UploadPhase::AwaitingContinue, _) => (UpstreamWait::Continue, self.since),
                (UploadPhase::AwaitingClient, Some(_)) => (
                    UpstreamWait::ClientSends,
                    self.upload.since().unwrap_or(self.since),
                ),
                // The sender has its own deadline.
                (_, Some(_)) => return Poll::Pending,
                (_, None) => (UpstreamWait::ResponseHead, self.since),
            };
            if self
                .timer
                .poll(cx, since + wait.limit(timeouts))
                .is_pending()
            {
                return Poll::Pending;
            }
            match wait {
                UpstreamWait::ResponseHead => return Poll::Ready(Err(ExchangeError::Overdue)),
                UpstreamWait::ClientSends => {
                    return Poll::Ready(Err(ExchangeError::Body(Upload::timed_out())));
                }
                _ => self.upload.release(),
            }
        }
    }

    /// Ready when the upload has ended just now.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, ExchangeError> {
        if self.upload.phase() == UploadPhase::AwaitingContinue {
            return Ok(Poll::Pending);
        }
        let Some(sender) = &mut self.sender else {
            return Ok(Poll::Pending);
        };
        let Poll::Ready(sent) = sender.poll_send(cx) else {
            let phase = if sender.awaits_body() {
                UploadPhase::AwaitingClient
            } else {
                UploadPhase::Sending
            };
            let pieces = match &self.replay {
                Some(body) => body.pieces(),
                None => 0,
            };
            let moved = std::mem::replace(&mut self.moved, pieces) != pieces;
            self.upload.follow(phase, moved);
            return Ok(Poll::Pending);
        };
        match sent {
            Err(SendFailure::Body(error)) => return Err(ExchangeError::Body(error)),
            Err(SendFailure::Stalled) => return Err(ExchangeError::Overdue),
            // The response tells why the upstream wants no more.
            Err(SendFailure::Reset(_) | SendFailure::Connection(_)) => {}
            Ok(()) => self.upload.follow(UploadPhase::Complete, false),
        }
        self.sender = None;
        self.since = clock::now();
        Ok(Poll::Ready(()))
    }
}

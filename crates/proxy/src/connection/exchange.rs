//! A connection to an upstream, with the exchange of a request and a response that it carries.
//!
//! The connection has no task of its own: the caller that waits for the response drives it, then
//! the reader of the response's body. Guarantees that it is used again only after both messages
//! have ended, and closes otherwise.

mod deadline;
mod response_body;

use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::BytesMut;
use http::{Method, Response, StatusCode};
use tokio::time::Instant;

use super::failure::{ExchangeError, FailedExchange, RetryPermission};
use super::pool::{Pool, Pooled};
use super::response::{ENDLESS, HeadReader, InvalidResponse, ResponseHead};
use super::upload::{Upload, UploadPhase};
use super::upstream_request::UpstreamRequest;
use crate::request_source::InterimRelay;
use crate::upstream::UpstreamSpec;
use crate::upstream::endpoints::PickedEndpoint;
use crate::upstream::metrics::CountedConnection;
use tollgate_limiter::clock;
use tollgate_wire::http::deadline::{UpstreamTimeouts, UpstreamWait, Wait as _};
use tollgate_wire::http::h1::body_decoder::BodyDecoder;
use tollgate_wire::http::h1::upgrade::Upgraded;
use tollgate_wire::http::h1::write_buffer::WriteBuffer;
use tollgate_wire::http::h1::{BodyFraming, buffers};
use tollgate_wire::http::interim::MOST_READ;
use tollgate_wire::http::timer::Timer;
use tollgate_wire::transport::Stream;
use tollgate_wire::transport::immediate_write::ImmediateWriter;

/// After a large body, reads stay large for this many small bodies.
const LARGE_READS: u8 = 8;

/// A connection to an upstream. Dropped in the middle of an exchange, it closes.
pub struct UpstreamConnection {
    io: Stream,
    input: BytesMut,
    output: WriteBuffer,
    timer: Timer,
    /// When the deadlines of the exchange are checked next.
    due: Instant,
    /// The pool that gets the connection after each exchange.
    pool: Weak<Pool<Box<Self>>>,
    key: Arc<str>,
    spec: Arc<UpstreamSpec>,
    timeouts: UpstreamTimeouts,
    counted: CountedConnection,
    /// The connection has carried an exchange before this one.
    used: bool,
    /// Not zero: reads are large, since a body was large lately.
    large_reads: u8,
    leased_at: Instant,
    exchange: ExchangeState,
}

/// The state of the exchange under way.
#[derive(Default)]
struct ExchangeState {
    endpoint: Option<PickedEndpoint>,
    upload: Option<Upload>,
    /// A part of the request was sent, so it cannot count as unsent any more.
    begun: bool,
    /// The upstream takes no more of the request; it may still have answered.
    write_closed: bool,
    /// No other exchange follows on this connection.
    last: bool,
    /// The upstream was asked for a 100 and has sent none.
    awaits_continue: bool,
    /// How many interim responses came.
    interim_responses: u16,
    head: HeadReader,
    decoder: Option<BodyDecoder>,
    /// The deadline for the next piece of the response body is running. Progress of the upload
    /// stops it, too.
    waiting: bool,
}

/// Counts a connection that left HTTP, and its request, until dropped.
pub struct UpgradeGuard {
    _endpoint: Option<PickedEndpoint>,
    _counted: CountedConnection,
}

impl UpstreamConnection {
    /// A connection that was just opened and goes to `pool` after each exchange.
    pub fn new(
        io: Stream,
        pool: &Arc<Pool<Box<Self>>>,
        key: &Arc<str>,
        spec: &Arc<UpstreamSpec>,
        counted: CountedConnection,
    ) -> Self {
        let now = clock::now();
        Self {
            io,
            input: BytesMut::new(),
            output: WriteBuffer::default(),
            timer: Timer::default(),
            due: now,
            pool: Arc::downgrade(pool),
            key: Arc::clone(key),
            spec: Arc::clone(spec),
            timeouts: timeouts_of(spec),
            counted,
            used: false,
            large_reads: 0,
            leased_at: now,
            exchange: ExchangeState::default(),
        }
    }

    /// Begins another exchange, with `endpoint` counting it.
    pub fn lease(&mut self, spec: &Arc<UpstreamSpec>, endpoint: PickedEndpoint, now: Instant) {
        if !Arc::ptr_eq(&self.spec, spec) {
            self.spec = Arc::clone(spec);
            self.timeouts = timeouts_of(spec);
        }
        self.leased_at = now;
        self.exchange.endpoint = Some(endpoint);
    }

    /// The endpoint of this exchange.
    pub fn endpoint(&self) -> Option<&PickedEndpoint> {
        self.exchange.endpoint.as_ref()
    }

    /// When this exchange began.
    pub fn leased_at(&self) -> Instant {
        self.leased_at
    }

    /// Sends the request and waits for the response's header section.
    ///
    /// # Errors
    /// When the exchange fails before that; says whether the request may be sent again.
    pub async fn send(
        &mut self,
        request: &mut UpstreamRequest<'_>,
    ) -> Result<Response<()>, Box<FailedExchange>> {
        let host = self
            .exchange
            .endpoint
            .as_ref()
            .map(|endpoint| endpoint.host());
        let is_last = self.spec.proxy_protocol;
        self.exchange.upload = request.hand_over_upload();
        self.exchange.awaits_continue = request.expects_continue();
        self.output.push(|out| request.write(out, host, is_last));
        if let Some(upload) = &mut self.exchange.upload {
            upload.start(self.leased_at);
        }
        self.due = self.leased_at + self.first_deadline();
        let to_head = *request.method() == Method::HEAD;
        let interim = request.interim;
        match poll_fn(|cx| self.poll_response(to_head, interim, cx)).await {
            Ok(head) => Ok(self.begin_body(head)),
            Err(error) => Err(self.fail(error)),
        }
    }

    fn phase(&self) -> UploadPhase {
        self.exchange
            .upload
            .as_ref()
            .map_or(UploadPhase::Complete, Upload::phase)
    }

    fn poll_response(
        &mut self,
        to_head: bool,
        interim: InterimRelay<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ResponseHead, ExchangeError>> {
        loop {
            self.poll_request(cx)?;
            match self.poll_fill(cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(ExchangeError::Closed)),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending if self.poll_overdue(cx)? => continue,
                Poll::Pending => return Poll::Pending,
            }
            while let Some(head) = self.take_head(to_head)? {
                // Only a 101 is final.
                if !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS
                {
                    return Poll::Ready(Ok(head));
                }
                self.exchange.last |= head.last;
                self.exchange.interim_responses += 1;
                if self.exchange.interim_responses > MOST_READ {
                    return Poll::Ready(Err(InvalidResponse::new(ENDLESS).into()));
                }
                // A server that answers had not closed the connection when the request came: no
                // reason to send that again.
                self.used = false;
                // A 100 is for the gateway: the client gets its own when its body is read.
                if head.status != StatusCode::CONTINUE {
                    interim.relay(head.status, head.headers);
                    continue;
                }
                self.exchange.awaits_continue = false;
                if let Some(upload) = &mut self.exchange.upload {
                    upload.release();
                }
            }
            // An upstream that keeps sending interim responses leaves the timer no turn.
            if clock::now() >= self.due {
                self.check_deadline()?;
            }
        }
    }

    fn take_head(&mut self, to_head: bool) -> Result<Option<ResponseHead>, InvalidResponse> {
        let Self {
            input,
            exchange,
            spec,
            ..
        } = self;
        exchange.head.take(input, to_head, &spec.response_head)
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // Readiness is checked first, without a system call: a connection that waits needs no
        // buffer.
        ready!(self.io.poll_read_ready(cx))?;
        let (head, piece) = if self.large_reads > 0 {
            (buffers::WHOLE, buffers::LARGE)
        } else {
            (buffers::SMALL, buffers::SMALL)
        };
        let wanted = self
            .exchange
            .decoder
            .as_ref()
            // Reads grow with the section: otherwise each would move it to a little larger buffer.
            .map_or(head.max(self.input.len()), |decoder| decoder.wanted(piece));
        let polled = buffers::poll_fill(&mut self.io, cx, &mut self.input, wanted);
        if matches!(polled, Poll::Ready(Ok(read)) if read >= buffers::SMALL) {
            self.large_reads = LARGE_READS;
        }
        polled
    }

    /// Sends as much of the request as is there and the upstream takes.
    fn poll_request(&mut self, cx: &mut Context<'_>) -> Result<(), ExchangeError> {
        while !self.exchange.write_closed {
            if let Some(upload) = self
                .exchange
                .upload
                .as_mut()
                .filter(|upload| !upload.is_complete())
            {
                upload
                    .move_to(&mut self.output, cx)
                    .map_err(ExchangeError::Body)?;
            }
            if self.output.is_flushed() {
                break;
            }
            let (flushed, _) = self.record_flush(|output, io| output.poll_flush(io, cx));
            match flushed {
                Poll::Pending => break,
                Poll::Ready(Err(error)) if !self.exchange.begun => return Err(error.into()),
                // The upstream may have answered before it stopped reading.
                Poll::Ready(Err(_)) => self.exchange.write_closed = true,
                // The client may have sent more.
                Poll::Ready(Ok(())) if self.phase() == UploadPhase::Sending => {}
                Poll::Ready(Ok(())) => break,
            }
        }
        Ok(())
    }

    /// Lets `flush` write, and records what the upstream has taken. Returns whether that is
    /// anything.
    fn record_flush(
        &mut self,
        flush: impl FnOnce(&mut WriteBuffer, &mut Stream) -> Poll<io::Result<()>>,
    ) -> (Poll<io::Result<()>>, bool) {
        let before = (self.output.waiting(), self.io.encrypted_bytes_sent());
        let flushed = flush(&mut self.output, &mut self.io);
        let moved = (self.output.waiting(), self.io.encrypted_bytes_sent()) != before;
        if moved {
            self.exchange.begun = true;
            // A response that began before its request has ended does not stall while the request
            // moves.
            self.exchange.waiting = false;
            // Any progress counts, however little: the upstream is not stalled.
            if let Some(upload) = self
                .exchange
                .upload
                .as_mut()
                .filter(|upload| upload.has_body())
            {
                upload.record_progress();
            }
        }
        (flushed, moved)
    }

    /// Whether the upstream has taken more of the request than the socket has reported. The socket
    /// reports room late, so this is checked before the upstream counts as stalled.
    fn has_taken_more(&mut self) -> bool {
        if self.exchange.write_closed || self.output.is_flushed() {
            return false;
        }
        let mut cx = Context::from_waker(Waker::noop());
        self.record_flush(|output, io| output.poll_flush(&mut ImmediateWriter(io), &mut cx))
            .1
    }

    fn begin_body(&mut self, head: ResponseHead) -> Response<()> {
        // An upstream that answers without a 100 does not say whether it reads the body. It could
        // take the body for another request, and the answer to that for the next client's.
        self.exchange.last |= head.last || self.exchange.awaits_continue;
        if matches!(head.framing, BodyFraming::Length(length) if length > buffers::SMALL as u64) {
            self.large_reads = LARGE_READS;
        }
        self.exchange.decoder = Some(BodyDecoder::new(head.framing, self.spec.response_head));
        let mut response = Response::new(());
        *response.status_mut() = head.status;
        *response.version_mut() = head.version;
        *response.headers_mut() = head.headers;
        if let Some(reason) = head.reason {
            response.extensions_mut().insert(reason);
        }
        response
    }

    /// The failure to answer with, and whether the request may be sent again.
    fn fail(&mut self, error: ExchangeError) -> Box<FailedExchange> {
        let ExchangeState { upload, begun, .. } = &mut self.exchange;
        tracing::debug!(endpoint = %self.key, error = %error, used = self.used, "an exchange failed");
        let closed = matches!(error, ExchangeError::Closed | ExchangeError::Io(_));
        let upload = upload.take();
        let error = match &upload {
            Some(upload) if *begun => error.with_upload(upload.standing()),
            _ => error,
        };
        let permission = match upload {
            Some(upload) if closed && !*begun && upload.is_unread() => {
                RetryPermission::Unsent(upload)
            }
            Some(upload) if closed && self.used && self.input.is_empty() => {
                RetryPermission::Stale(upload)
            }
            _ => RetryPermission::Never,
        };
        let was_sent = *begun;
        let mut failed = error.failed(self.exchange.endpoint.take(), permission);
        failed.was_sent &= was_sent;
        failed
    }

    /// Whether the whole request was sent.
    pub fn is_sent(&self) -> bool {
        self.phase() == UploadPhase::Complete
            && self.output.is_flushed()
            && !self.exchange.write_closed
    }

    /// When the whole request was sent. `None`: it is not.
    pub fn sent_at(&self) -> Option<Instant> {
        if !self.is_sent() {
            return None;
        }
        let since = self.exchange.upload.as_ref().and_then(Upload::since);
        Some(since.unwrap_or(self.leased_at))
    }

    /// How long `wait` may take.
    pub fn wait_limit(&self, wait: UpstreamWait) -> Duration {
        wait.limit(&self.timeouts)
    }

    /// The connection as a plain socket, once both sides have agreed that it leaves HTTP.
    pub fn upgrade(self: Box<Self>) -> (Upgraded, UpgradeGuard) {
        let Self {
            io,
            input,
            counted,
            exchange,
            ..
        } = *self;
        (
            Upgraded::new(io, input.freeze()),
            UpgradeGuard {
                _endpoint: exchange.endpoint,
                _counted: counted,
            },
        )
    }

    /// Gives the read buffer back, if nothing is in it.
    fn release_buffer(&mut self) {
        if self.input.is_empty() {
            buffers::give_back(std::mem::take(&mut self.input));
        }
    }
}

/// The time limits of an upstream, as waits take them.
pub fn timeouts_of(spec: &UpstreamSpec) -> UpstreamTimeouts {
    UpstreamTimeouts::new(
        spec.connect_timeout,
        spec.response_timeout,
        spec.idle_timeout,
        spec.keepalive_timeout,
    )
    .with_tunnel_idle(spec.tunnel_idle_timeout)
}

impl Pooled for Box<UpstreamConnection> {
    fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// A server sends nothing between two exchanges: anything to read is the connection's end, or a
    /// response to no request.
    fn is_closed(&mut self) -> bool {
        self.io.has_input()
    }

    fn release_buffer(&mut self) {
        UpstreamConnection::release_buffer(self);
    }
}

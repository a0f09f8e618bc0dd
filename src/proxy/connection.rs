//! A connection to an upstream, with the exchange that it carries.
//!
//! Driven by whoever waits for the response, then by whoever reads its body: no task of its own, and nothing shared.
//! Guarantees that it is used again only after both messages ended, and closes otherwise. Knows nothing of what is in a
//! message.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Method, Response, StatusCode};
use http_body::{Frame, SizeHint};
use tokio::net::TcpStream;
use tokio::task::coop;
use tokio::time::Instant;

use super::outbound::Outbound;
use super::pool::{Pool, Pooled};
use super::response::{self, BOUNDS, Head, Invalid};
use super::retry::{Failed, Permission};
use super::upload::{CONTINUE_WAIT, Phase, Upload};
use crate::body::{Body, BoxError, Tail};
use crate::clock;
use crate::error::Failure;
use crate::http::h1::body_decoder::BodyDecoder;
use crate::http::h1::timer::Timer;
use crate::http::h1::upgrade::Upgraded;
use crate::http::h1::write_buffer::WriteBuffer;
use crate::http::h1::{BodyFraming, buffers};
use crate::upstream::UpstreamSpec;
use crate::upstream::endpoints::PickedEndpoint;
use crate::upstream::metrics::CountedConnection;

/// After a large body, so many small ones until less is read at once again.
const LARGE_AGAIN: u8 = 8;

/// A connection. Dropped in the middle of an exchange, it closes.
pub struct Connection {
    io: TcpStream,
    input: BytesMut,
    output: WriteBuffer,
    timer: Timer,
    /// When it is to be looked at what is being waited for.
    due: Instant,
    home: Weak<Pool<Box<Self>>>,
    key: Arc<str>,
    spec: Arc<UpstreamSpec>,
    open: CountedConnection,
    /// It has carried an exchange before this one.
    used: bool,
    /// Responses are large here: not zero.
    large: u8,
    leased_at: Instant,
    exchange: Exchange,
}

/// What is true of one exchange only.
#[derive(Default)]
struct Exchange {
    endpoint: Option<PickedEndpoint>,
    upload: Option<Upload>,
    /// Some of the request is on its way, so it must not be sent again as if nothing were.
    begun: bool,
    /// The upstream takes no more; it may still have answered.
    deaf: bool,
    /// Nothing follows on this connection.
    last: bool,
    decoder: Option<BodyDecoder>,
    /// Its time runs for the response body's next piece.
    waiting: bool,
}

/// What must stay while a connection that left HTTP is open.
pub struct Kept {
    _endpoint: Option<PickedEndpoint>,
    _open: CountedConnection,
}

/// Why an exchange came to nothing, in the words of whoever finds out.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("the upstream closed the connection")]
    Closed,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Invalid(#[from] Invalid),
    #[error("the upstream took too long")]
    Overdue,
    #[error("the request's body: {0}")]
    Body(BoxError),
}

/// The upstream stopped in the middle of its response.
#[derive(Debug, thiserror::Error)]
enum Cut {
    #[error("the upstream's response stalled")]
    Stalled,
    #[error("the upstream closed the connection within its response")]
    Closed,
}

impl Connection {
    /// A connection just opened, which goes `home` after each exchange.
    pub fn new(
        io: TcpStream,
        home: &Arc<Pool<Box<Self>>>,
        key: &Arc<str>,
        spec: &Arc<UpstreamSpec>,
        open: CountedConnection,
    ) -> Self {
        let now = clock::now();
        Self {
            io,
            input: BytesMut::new(),
            output: WriteBuffer::default(),
            timer: Timer::default(),
            due: now,
            home: Arc::downgrade(home),
            key: Arc::clone(key),
            spec: Arc::clone(spec),
            open,
            used: false,
            large: 0,
            leased_at: now,
            exchange: Exchange::default(),
        }
    }

    /// Starts another exchange.
    pub fn lease(&mut self, spec: &Arc<UpstreamSpec>, endpoint: PickedEndpoint, now: Instant) {
        if !Arc::ptr_eq(&self.spec, spec) {
            self.spec = Arc::clone(spec);
        }
        self.leased_at = now;
        self.exchange.endpoint = Some(endpoint);
    }

    /// When this exchange got it.
    pub fn leased_at(&self) -> Instant {
        self.leased_at
    }

    /// Sends the request and waits for the response's header section.
    pub async fn send(&mut self, request: &mut Outbound<'_>) -> Result<Response<()>, Failed> {
        let host = self.exchange.endpoint.as_ref().map(|endpoint| endpoint.host());
        self.output.push(|out| request.write(out, host));
        self.exchange.upload = request.upload.take();
        if let Some(upload) = &mut self.exchange.upload {
            upload.start(self.leased_at);
        }
        let to_head = *request.method() == Method::HEAD;
        self.due = self.leased_at + self.first_look();
        match poll_fn(|cx| self.poll_response(to_head, cx)).await {
            Ok(head) => Ok(self.begin_body(head)),
            Err(broken) => Err(self.explain(broken)),
        }
    }

    /// Nothing is overdue before it.
    fn first_look(&self) -> Duration {
        let spec = &self.spec;
        match self.phase() {
            Phase::Held => CONTINUE_WAIT,
            Phase::Sending | Phase::Starved => spec.idle_timeout.min(spec.response_timeout),
            Phase::Whole => spec.response_timeout,
        }
    }

    fn phase(&self) -> Phase {
        self.exchange.upload.as_ref().map_or(Phase::Whole, Upload::phase)
    }

    fn poll_response(&mut self, to_head: bool, cx: &mut Context<'_>) -> Poll<Result<Head, Broken>> {
        loop {
            self.poll_request(cx)?;
            match self.poll_fill(cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(Broken::Closed)),
                Poll::Ready(read) => drop(read?),
                Poll::Pending if self.poll_overdue(cx)? => continue,
                Poll::Pending => return Poll::Pending,
            }
            while let Some(head) = response::take(&mut self.input, to_head)? {
                // What comes before the response is for us (RFC 9110 §15.2), but for a 101, which is one.
                if !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS {
                    return Poll::Ready(Ok(head));
                }
                self.exchange.last |= head.last;
                if let (StatusCode::CONTINUE, Some(upload)) = (head.status, &mut self.exchange.upload) {
                    upload.release();
                }
            }
            // Whoever always has something to say, but never a response, leaves no time to wait for the timer.
            if clock::now() >= self.due {
                self.look_at_time()?;
            }
        }
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // Asked first: who waits needs no buffer. This is no system call.
        ready!(self.io.poll_read_ready(cx))?;
        let usual = if self.large > 0 { buffers::LARGE } else { buffers::USUAL };
        let wanted = self.exchange.decoder.as_ref().map_or(usual, |decoder| decoder.wanted(usual));
        let polled = buffers::poll_fill(&mut self.io, cx, &mut self.input, wanted);
        if matches!(polled, Poll::Ready(Ok(read)) if read >= buffers::USUAL) {
            self.large = LARGE_AGAIN;
        }
        polled
    }

    /// Sends as much of the request as there is and the upstream takes.
    fn poll_request(&mut self, cx: &mut Context<'_>) -> Result<(), Broken> {
        while !self.exchange.deaf {
            if let Some(upload) = self.exchange.upload.as_mut().filter(|upload| !upload.is_whole()) {
                upload.move_to(&mut self.output, cx).map_err(Broken::Body)?;
            }
            let before = self.output.waiting();
            if before == 0 {
                break;
            }
            let flushed = self.output.poll_flush(&mut self.io, cx);
            if self.output.waiting() < before {
                self.exchange.begun = true;
                // However little it was: an upstream that takes something is not waited for in vain.
                if let Some(upload) = self.exchange.upload.as_mut().filter(|upload| upload.is_some()) {
                    upload.taken();
                }
            }
            match flushed {
                Poll::Pending => break,
                Poll::Ready(Err(error)) if !self.exchange.begun => return Err(error.into()),
                // It may have answered before it stopped listening.
                Poll::Ready(Err(_)) => self.exchange.deaf = true,
                // The client may have more of it.
                Poll::Ready(Ok(())) if self.phase() == Phase::Sending => {}
                Poll::Ready(Ok(())) => break,
            }
        }
        Ok(())
    }

    /// Whether there is something to do because of the time; an error once there is nothing left to wait for. The time of
    /// a response starts when the request is complete; until then it is that of whoever is waited for.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Result<bool, Broken> {
        if self.timer.poll(cx, self.due).is_pending() {
            return Ok(false);
        }
        self.look_at_time().map(|()| true)
    }

    fn look_at_time(&mut self) -> Result<(), Broken> {
        let (phase, since) = match &self.exchange.upload {
            Some(upload) => (upload.phase(), upload.since().unwrap_or(self.leased_at)),
            None => (Phase::Whole, self.leased_at),
        };
        let patience = match phase {
            Phase::Held => CONTINUE_WAIT,
            Phase::Starved | Phase::Sending => self.spec.idle_timeout,
            Phase::Whole => self.spec.response_timeout,
        };
        let due = since + patience;
        if clock::now() < due {
            self.due = due;
            return Ok(());
        }
        match (phase, &mut self.exchange.upload) {
            (Phase::Held, Some(upload)) => upload.release(),
            (Phase::Starved, _) => return Err(Broken::Body(Upload::starved())),
            _ => return Err(Broken::Overdue),
        }
        self.due = clock::now() + self.spec.idle_timeout.min(self.spec.response_timeout);
        Ok(())
    }

    fn begin_body(&mut self, head: Head) -> Response<()> {
        self.exchange.last |= head.last;
        if matches!(head.framing, BodyFraming::Length(length) if length > buffers::USUAL as u64) {
            self.large = LARGE_AGAIN;
        }
        self.exchange.decoder = Some(BodyDecoder::new(head.framing, BOUNDS));
        let mut response = Response::new(());
        *response.status_mut() = head.status;
        *response.version_mut() = head.version;
        *response.headers_mut() = head.headers;
        if let Some(reason) = head.reason {
            response.extensions_mut().insert(reason);
        }
        response
    }

    fn explain(&mut self, broken: Broken) -> Failed {
        let Exchange { upload, begun, .. } = &mut self.exchange;
        tracing::debug!(endpoint = %self.key, error = %broken, used = self.used, "an exchange failed");
        let closed = matches!(broken, Broken::Closed | Broken::Io(_));
        let permission = match upload.take() {
            Some(upload) if closed && !*begun && upload.is_fresh() => Permission::Unsent(upload),
            Some(upload) if closed && self.used && self.input.is_empty() && !upload.is_some() => {
                Permission::Stale(upload)
            }
            _ => Permission::Never,
        };
        let failure = match broken {
            Broken::Closed | Broken::Io(_) => Failure::UpstreamClosed,
            Broken::Invalid(_) => Failure::UpstreamInvalid,
            Broken::Overdue => Failure::ResponseTimeout,
            Broken::Body(error) => super::retry::body_failure(&*error),
        };
        Failed { failure, permission }
    }

    /// Whether the upstream was sent the whole request.
    pub fn is_sent(&self) -> bool {
        self.phase() == Phase::Whole && self.output.waiting() == 0 && !self.exchange.deaf
    }

    /// The response's body. With its end the connection is free again; dropped before, it closes. `now`: the header section
    /// has just come.
    pub fn carry(mut self: Box<Self>, now: Instant) -> Body {
        // Most have arrived whole with their header section: then nobody has to wait for the client to read them.
        let waiting = self.size_hint().exact().filter(|length| *length <= self.input.len() as u64);
        let Some(length) = waiting.and_then(|length| usize::try_from(length).ok()) else { return Body::tailed(self) };
        let whole = self.input.split_to(length).freeze();
        self.finish(now);
        Body::from(whole)
    }

    /// Keeps the connection, if another exchange can follow.
    fn finish(mut self: Box<Self>, now: Instant) {
        let sent = self.is_sent();
        let exchange = std::mem::take(&mut self.exchange);
        self.large = self.large.saturating_sub(1);
        if sent
            && !exchange.last
            && self.input.is_empty()
            && let Some(home) = self.home.upgrade()
        {
            self.used = true;
            let (limit, expires) = (self.spec.keepalive_connections, now + self.spec.keepalive_timeout);
            home.put(self, limit, expires);
        }
    }

    /// The connection, once both sides have agreed that it leaves HTTP.
    pub fn upgrade(self: Box<Self>) -> (Upgraded, Kept) {
        let Self { io, input, open, exchange, .. } = *self;
        (Upgraded::new(io, input.freeze()), Kept { _endpoint: exchange.endpoint, _open: open })
    }

    fn decode(&mut self) -> Result<Option<Frame<Bytes>>, BoxError> {
        let Self { input, exchange, .. } = self;
        exchange.decoder.as_mut().map_or(Ok(None), |decoder| decoder.decode(input).map_err(Into::into))
    }

    /// Others may use the buffer, if nothing is in it.
    fn rest(&mut self) {
        if self.input.is_empty() {
            buffers::give_back(std::mem::take(&mut self.input));
        }
    }

    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<BoxError> {
        if !std::mem::replace(&mut self.exchange.waiting, true) {
            self.due = clock::now() + self.spec.idle_timeout;
            self.rest();
        }
        self.timer.poll(cx, self.due).map(|()| Cut::Stalled.into())
    }
}

impl Tail for Connection {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            // A response may begin before its request has ended: the rest goes on beside it.
            if let Err(broken) = self.poll_request(cx) {
                return Poll::Ready(Some(Err(broken.into())));
            }
            if let Some(frame) = self.decode().transpose() {
                self.exchange.waiting = false;
                return Poll::Ready(Some(frame));
            }
            if self.is_over() {
                return Poll::Ready(None);
            }
            match self.poll_fill(cx) {
                Poll::Ready(Ok(0)) if self.exchange.decoder.as_mut().is_some_and(BodyDecoder::close) => {
                    return Poll::Ready(None);
                }
                Poll::Ready(Ok(0)) => return Poll::Ready(Some(Err(Cut::Closed.into()))),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                Poll::Pending => return self.poll_stalled(cx).map(|error| Some(Err(error))),
            }
        }
    }

    fn is_over(&self) -> bool {
        self.exchange.decoder.as_ref().is_none_or(BodyDecoder::is_over)
    }

    fn size_hint(&self) -> SizeHint {
        self.exchange.decoder.as_ref().map_or_else(|| SizeHint::with_exact(0), BodyDecoder::size_hint)
    }

    fn ended(self: Box<Self>) {
        self.finish(clock::now());
    }
}

impl Pooled for Box<Connection> {
    fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// A server has nothing to say between two exchanges: what there is to read is the connection's end, or no answer
    /// that anybody asked for. Not of the task's turn: at its end everything would seem to be open.
    fn is_closed(&self) -> bool {
        let mut looking = coop::unconstrained(poll_fn(|cx| self.io.poll_read_ready(cx)));
        let may_have_more = Pin::new(&mut looking).poll(&mut Context::from_waker(Waker::noop())).is_ready();
        // A read that happened to fill its buffer leaves that open.
        let is_empty = || matches!(self.io.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        may_have_more && !is_empty()
    }

    fn rest(&mut self) {
        Connection::rest(self);
    }
}

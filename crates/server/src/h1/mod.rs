//! HTTP/1 on one connection, in one task: a request is read, handled and answered, and then the
//! next one.
//!
//! `client_reader` reads the connection, `request_head` parses requests, and handlers read bodies
//! through `request_body`. `response_encoder` makes bytes of responses, and `client_writer` writes
//! them.
//!
//! Guarantees that a request which cannot be read in one way is refused in its turn and no other is
//! read after it; that an unread body is skipped or ends the connection; that a request is dropped
//! when its client goes away; and that a response which broke off never looks complete.

mod client_reader;
mod client_writer;
mod connection_options;
mod request_body;
pub mod request_head;
mod request_line;
mod response_encoder;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};

use self::client_reader::{Arrival, ClientReader};
use self::client_writer::ClientWriter;
use self::connection_options::ConnectionOptions;
use self::request_body::ReaderHandle;
use self::response_encoder::{BreakVisibility, ResponseEncoder};
use super::coalesced_write::CoalescedWrite;
use super::connection_info::ConnectionInfo;
use super::connection_limit::ClientActivity;
use super::drain::Drain;
use super::handler::Handler;
use super::socket::Socket;
use tollgate_limiter::clock::{self, Instant};
use tollgate_spec::listener::ListenerSpec;
use tollgate_wire::body::{Body, BoxError};
use tollgate_wire::error::Failure;
use tollgate_wire::http::h1::BodyFraming;
use tollgate_wire::http::h1::upgrade::{self, UpgradeSender, Upgraded};
use tollgate_wire::http::interim::InterimSlot;
use tollgate_wire::http::min_rate::MinBodyRates;
use tollgate_wire::transport::Stream;

/// The interim response to a client that waits for it before it sends a body (RFC 9110 §15.2.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The end of a connection.
enum ConnectionEnd {
    /// An end in order: the client gets to read its last response.
    Closed,
    /// The client has gone.
    Gone,
    /// A response broke that the client takes no more of, or that could not be begun.
    Broken(BoxError),
    /// The content of a response broke off. The client gets the part that came.
    Incomplete(BreakVisibility),
    /// The client speaks HTTP/2.
    Http2,
    /// The connection leaves HTTP: the client has its 101.
    Upgraded(UpgradeSender),
}

/// A connection that speaks HTTP/1.
pub struct H1Connection<'a> {
    reader: ReaderHandle,
    writer: ClientWriter,
    drain: &'a Drain,
    activity: Arc<ClientActivity>,
}

/// The HTTP/1 side of a listener.
pub struct Http1 {
    spec: Arc<ListenerSpec>,
    rates: MinBodyRates,
}

impl Http1 {
    pub fn new(spec: &Arc<ListenerSpec>, rates: &MinBodyRates) -> Self {
        Self {
            spec: Arc::clone(spec),
            rates: rates.clone(),
        }
    }

    /// Begins to speak on `socket`.
    pub fn begin<'a>(
        &self,
        socket: Socket,
        connection: &ConnectionInfo,
        drain: &'a Drain,
    ) -> Box<H1Connection<'a>> {
        let Self { spec, rates } = self;
        let activity = Arc::clone(socket.permit.activity());
        let (read, write) = socket.stream.into_split();
        let mut reader = ClientReader::new(read, socket.permit, spec, rates.request.clone());
        if !socket.early.is_empty() || connection.tls.is_some() {
            reader.begin_with(
                &socket.early,
                connection.tls.is_none() && connection.refusal.is_none(),
            );
        }
        let reader = ReaderHandle::Held(Box::new(reader));
        let writer = ClientWriter::new(write, spec, rates.response.clone());
        Box::new(H1Connection {
            reader,
            writer,
            drain,
            activity,
        })
    }
}

impl H1Connection<'_> {
    /// Serves until the connection ends. Returns the connection when the client speaks HTTP/2.
    pub async fn drive<H: Handler>(
        mut self: Box<Self>,
        connection: &Arc<ConnectionInfo>,
        handler: &H,
    ) -> Option<Upgraded> {
        // Polled once: from then on a drain wakes this task, which then checks whether it has
        // begun.
        let mut drain = self.drain.clone();
        let mut begun = pin!(drain.begun());
        // Another connection that needs room wakes this task, too.
        poll_fn(|cx| {
            self.activity.wake(cx.waker());
            Poll::Ready(begun.as_mut().poll(cx).is_ready())
        })
        .await;
        let end = loop {
            let arrival = self.next().await;
            // Boxed: a connection that is idle does not carry the room for a request.
            if let Err(end) = Box::pin(self.serve_requests(arrival, connection, handler)).await {
                break end;
            }
        };
        Box::pin(self.end(end)).await
    }

    /// Serves the request that has arrived. While connections are few, also the next requests: the
    /// connection keeps the room for them. An error is the end of the connection.
    async fn serve_requests<H: Handler>(
        &mut self,
        mut arrival: Arrival,
        connection: &Arc<ConnectionInfo>,
        handler: &H,
    ) -> Result<(), ConnectionEnd> {
        loop {
            self.serve_request(arrival, connection, handler).await?;
            if !self.is_one_of_few() {
                return Ok(());
            }
            arrival = self.next().await;
        }
    }

    /// Serves one request. An error is the end of the connection.
    async fn serve_request<H: Handler>(
        &mut self,
        arrival: Arrival,
        connection: &Arc<ConnectionInfo>,
        handler: &H,
    ) -> Result<(), ConnectionEnd> {
        self.activity.set_active();
        let (options, upgrade_sender);
        let response = {
            // A request is lent, since moving it costs. The rest of its body is dropped with it, at
            // the end of this block: only then is it known whether the connection can go on.
            let mut request = Request::new(Body::empty());
            let accepted = match arrival {
                Arrival::Head(length) => match connection.refusal {
                    None => self.accept(length, &mut request),
                    Some(why) => Err(Failure::BadRequest(why)),
                },
                Arrival::Refused(failure) => {
                    Err(connection.refusal.map_or(failure, Failure::BadRequest))
                }
                Arrival::Http2 => return Err(ConnectionEnd::Http2),
                Arrival::Idle => return Err(ConnectionEnd::Closed),
                Arrival::Gone => return Err(ConnectionEnd::Gone),
            };
            match accepted {
                Ok(accepted) => {
                    (options, upgrade_sender) = accepted;
                    let interim = InterimSlot::default();
                    let handling = pin!(handler.handle(connection, &interim, &mut request));
                    self.await_response(handling, &interim).await?
                }
                Err(failure) => {
                    (options, upgrade_sender) = (self.refuse(), None);
                    handler.refuse(connection, failure)
                }
            }
        };
        let closes = poll_fn(|cx| Poll::Ready(self.must_close(cx))).await;
        let now = clock::now();
        self.writer.begin_response();
        let output = &mut self.writer.output;
        let mut encoder = ResponseEncoder::begin(output, response, &options, closes, now)
            .map_err(ConnectionEnd::Broken)?;
        self.write(&mut encoder)
            .await
            .map_err(ConnectionEnd::Broken)?;
        if let Some(visibility) = encoder.broken {
            return Err(ConnectionEnd::Incomplete(visibility));
        }
        if !self.finish_request().await {
            return Err(ConnectionEnd::Closed);
        }
        if let Some(upgrade_sender) = upgrade_sender
            && encoder.switches
        {
            return Err(ConnectionEnd::Upgraded(upgrade_sender));
        }
        if encoder.closes {
            return Err(ConnectionEnd::Closed);
        }
        self.begin_keepalive(encoder.now.unwrap_or_else(clock::now));
        Ok(())
    }

    fn is_one_of_few(&self) -> bool {
        matches!(&self.reader, ReaderHandle::Held(reader) if reader.is_one_of_few())
    }

    /// Waits for a request. While the server drains, not for long.
    async fn next(&mut self) -> Arrival {
        poll_fn(|cx| match self.reader.poll_reader(cx) {
            Poll::Ready(reader) => reader.poll_arrival(cx, self.drain.has_begun()),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Takes the request that has arrived into `request`. Returns its options for the connection.
    fn accept(
        &mut self,
        length: usize,
        request: &mut Request<Body>,
    ) -> Result<(ConnectionOptions, Option<UpgradeSender>), Failure> {
        let options = match &mut self.reader {
            ReaderHandle::Held(reader) => reader.take_head(length, request)?,
            // No request arrives before the body of the one before it has ended.
            ReaderHandle::HandedOver(_) => {
                return Err(Failure::BadRequest("the request before it has not ended"));
            }
        };
        if options.framing != BodyFraming::Length(0) {
            *request.body_mut() = self.reader.hand_over();
        }
        if !options.upgrade {
            return Ok((options, None));
        }
        let (upgrade_sender, on_upgrade) = upgrade::channel();
        request.extensions_mut().insert(on_upgrade);
        Ok((options, Some(upgrade_sender)))
    }

    /// The options for the answer to a request that cannot be read. No request is read after it.
    fn refuse(&mut self) -> ConnectionOptions {
        let mut is_head = false;
        if let ReaderHandle::Held(reader) = &mut self.reader {
            is_head = reader.is_head();
            reader.stop_reading();
        }
        ConnectionOptions::for_refused(is_head)
    }

    /// Waits for the response. An error means that the client has gone.
    fn await_response(
        &mut self,
        mut handling: Pin<&mut impl Future<Output = Response<Body>>>,
        interim: &InterimSlot,
    ) -> impl Future<Output = Result<Response<Body>, ConnectionEnd>> {
        poll_fn(move |cx| {
            let handled = handling.as_mut().poll(cx);
            while let Some(interim) = interim.take() {
                self.writer
                    .output
                    .push(|out| response_encoder::write_interim(out, &interim));
            }
            if let Poll::Ready(response) = handled {
                return Poll::Ready(Ok(response));
            }
            let gone = self.reader.poll_gone(cx);
            // Checked after `poll_gone` has registered this task: the body may be read on another
            // thread.
            if self.reader.take_continue_request() {
                self.writer
                    .output
                    .push(|out| out.extend_from_slice(CONTINUE));
            }
            match self.writer.poll_flush(cx) {
                Poll::Ready(Err(_)) => Poll::Ready(Err(ConnectionEnd::Gone)),
                _ => gone.map(|()| Err(ConnectionEnd::Gone)),
            }
        })
    }

    /// Whether the connection must close after the response: unread content would be taken for a
    /// request, or a request for content that the client withholds, or the server drains or needs
    /// room for others.
    fn must_close(&mut self, cx: &mut Context<'_>) -> bool {
        let unread = match self.reader.poll_reader(cx) {
            Poll::Ready(reader) => !reader.can_skip_content(),
            Poll::Pending => self.reader.is_body_withheld(),
        };
        unread || self.drain.has_begun() || self.activity.must_close()
    }

    /// Writes the response to its end, or to where it breaks off.
    async fn write(&mut self, encoder: &mut ResponseEncoder) -> Result<(), BoxError> {
        poll_fn(|cx| {
            loop {
                let content = encoder.poll_content(&mut self.writer.output, cx);
                // Flushed before more content is awaited, and before a response breaks off.
                let flushed = self.writer.poll_flush(cx)?;
                match content {
                    Poll::Ready(true) if flushed.is_ready() => return Poll::Ready(Ok(())),
                    Poll::Ready(false) if flushed.is_ready() => continue,
                    Poll::Ready(_) => {}
                    Poll::Pending if self.reader.poll_gone(cx).is_ready() => {
                        return Poll::Ready(Err(
                            io::Error::from(io::ErrorKind::ConnectionAborted).into()
                        ));
                    }
                    Poll::Pending => {}
                }
                encoder.now = None;
                return Poll::Pending;
            }
        })
        .await
    }

    /// Waits for the end of the request's body, and skips unread content. False: no request may
    /// follow.
    async fn finish_request(&mut self) -> bool {
        let mut waits = false;
        poll_fn(|cx| {
            let reader = ready!(self.reader.poll_reader(cx));
            if !reader.can_skip_content() {
                return Poll::Ready(false);
            }
            let skipped = reader.poll_skip_content(cx);
            if skipped.is_pending() {
                if self.activity.must_close() {
                    return Poll::Ready(false);
                }
                // The client has its answer: the connection may make room for others.
                if !std::mem::replace(&mut waits, true) {
                    self.activity.set_idle(clock::now());
                }
            }
            skipped
        })
        .await
    }

    fn begin_keepalive(&mut self, now: Instant) {
        self.activity.set_idle(now);
        if let ReaderHandle::Held(reader) = &mut self.reader {
            reader.begin_keepalive(now);
        }
    }

    /// Ends the connection. Returns a connection that goes on with HTTP/2.
    async fn end(mut self: Box<Self>, end: ConnectionEnd) -> Option<Upgraded> {
        match end {
            ConnectionEnd::Gone => {}
            ConnectionEnd::Broken(error) => {
                tracing::debug!(error, "a response broke off");
                self.writer.reset();
            }
            ConnectionEnd::Incomplete(BreakVisibility::Close) => self.close().await,
            ConnectionEnd::Incomplete(BreakVisibility::Reset) => {
                self.await_client().await;
                self.writer.reset();
            }
            ConnectionEnd::Closed => self.close().await,
            ConnectionEnd::Http2 => return self.reunite(),
            ConnectionEnd::Upgraded(upgrade_sender) => {
                if let Some(upgraded) = self.reunite() {
                    upgrade_sender.send(upgraded);
                }
            }
        }
        None
    }

    async fn close(&mut self) {
        if let Err(error) = self.writer.shut_down().await {
            return tracing::debug!(%error, "a connection was not shut down cleanly");
        }
        // The client has its answer: the connection may make room for others.
        self.activity.set_idle(clock::now());
        if let ReaderHandle::Held(reader) = &mut self.reader {
            reader
                .linger(|| self.drain.has_begun() || self.activity.must_close())
                .await;
        }
    }

    /// Gives the client time to take the bytes that were sent: a reset discards the rest.
    async fn await_client(&mut self) {
        poll_fn(|cx| match self.reader.poll_gone(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => self.writer.poll_taken(cx),
        })
        .await;
    }

    /// The whole socket, with the bytes that were read too early.
    fn reunite(self: Box<Self>) -> Option<Upgraded> {
        let ReaderHandle::Held(reader) = self.reader else {
            return None;
        };
        let (read, permit, early) = reader.into_parts();
        let stream = Stream::reunite(read, self.writer.into_half())?;
        Some(Upgraded::new(
            CoalescedWrite(Socket {
                stream,
                early: Bytes::new(),
                permit,
            }),
            early,
        ))
    }
}
